"""An Applier that also gives containers their part of the cache and of the memory bandwidth, through resctrl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.caching import plan_caches
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Cause, Fault
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.caching import CacheClass, CachePlan, CacheUsage
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Drift, Observed, Wanted
    from pinfold.node.resctrl.groups import Resctrl
    from pinfold.runtimes.base import Applier, Members


class CachingApplier:
    """Applies CPUs by another Applier first, then cache classes. All else is the other's."""

    def __init__(
        self,
        inner: Applier,
        resctrl: Resctrl,
        table: Mapping[str, CacheClass],
        only_watches: Callable[[], bool] = lambda: False,
    ) -> None:
        """Use *inner* for CPUs; while it *only_watches*, resctrl is left alone too."""
        self._inner = inner
        self._only_watches = only_watches
        self._resctrl = resctrl
        self._table = table
        self._last: CachePlan | None = None
        """The classes that were applied last."""

    @property
    def name(self) -> str:
        """The runtime's name, as users write it."""
        return self._inner.name

    @property
    def kind(self) -> str:
        """How containers are kept on their CPUs, for people to read."""
        return self._inner.kind

    @property
    def weaker(self) -> tuple[str, ...]:
        """The guarantees that do not hold here, in words."""
        return self._inner.weaker

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs of each container; *closely* also compares its resctrl group with what was applied."""
        found = self._inner.observe(closely=closely)
        if not closely or self._last is None or self._only_watches():
            return found
        wrong = self._resctrl.wrong(self._last.members)
        return found._replace(faults={**{ref: Fault(Cause.CACHE, why) for ref, why in wrong.items()}, **found.faults})

    def apply(self, want: Wanted) -> None:
        """Set the CPUs, then the groups of resctrl; raise on failure."""
        plan = plan_caches(self._table, want)
        if plan.unknown:
            names = ", ".join(sorted({row.name for row in plan.unknown}))
            known = ", ".join(self._table)
            raise ApplyError(f"cache class {names} is not known; these are in --cache-classes: {known}")
        self._inner.apply(want)
        if not self._only_watches():
            self._resctrl.apply(plan.members)
            self._last = plan

    def usage(self) -> list[CacheUsage]:
        """Return how much cache and memory bandwidth the containers use."""
        return self._resctrl.usage()

    def mend(self, ref: ContainerRef, want: Wanted) -> Drift | None:
        """Correct the CPUs of one container that is about to run, or raise; return what was wrong."""
        return self._inner.mend(ref, want)

    def is_clear(self, want: Wanted) -> bool:
        """Return whether exclusive CPUs are certainly free of other containers; a quick check."""
        return self._inner.is_clear(want)

    def vacate(self, ref: ContainerRef) -> list[int]:
        """End a container's remaining processes and remove its group; return the lent processes, which go on."""
        return self._inner.vacate(ref)

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the kernel lets a container use now, as text; empty if it has none."""
        return self._inner.allowed(ref)

    def members(self, ref: ContainerRef) -> Members:
        """Return the cgroups and the processes of a container."""
        return self._inner.members(ref)

    async def leave(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> None:
        """Give every group *cpus* again, and everything the whole cache; or raise."""
        if not self._only_watches():
            self._resctrl.leave()
        await self._inner.leave(cpus, kept)
