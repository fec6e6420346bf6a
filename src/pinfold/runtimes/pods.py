"""PodApplier: sets the CPUs of Kubernetes containers through the cgroups that the kubelet and the runtime made.

The shared pool is set on the groups above the containers wherever the kernel lets us, so that moving all of them off
some CPUs takes the same time for ten containers as for a thousand. Decides nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Cause, Drift, Fault, Observed, Wanted, steps
from pinfold.formats.pods.runtime import ref_of
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError
from pinfold.node.podgroups.paths import unit_of
from pinfold.node.podgroups.settings import Quota
from pinfold.runtimes.base import ApplyError, Members
from pinfold.runtimes.brevity import Brevity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.formats.pods.runtime import RuntimeContainer
    from pinfold.node.podgroups.settings import GroupSetting
    from pinfold.node.podgroups.systemd import Systemd
    from pinfold.runtimes.podplaces import PodPlaces

_OUTSIDERS: Final = "processes outside of Kubernetes pods may run on exclusive CPUs"
_ROUNDS: Final = 5
_THROTTLED: Final = "a CPU quota limits the container or its pod, although it has exclusive CPUs"
_WATCHING: Final = "nothing is pinned: a kubelet manages CPUs here itself"
_UNTOLD: Final = (
    "systemd manages the pods' cgroups and cannot be told of their CPUs, as there is no /run/systemd/system here: "
    "it may set other CPUs until the next reconcile"
)


class PodApplier:
    """Sets and reads back the CPUs and quotas of the pods on a Roster."""

    def __init__(
        self, name: str, places: PodPlaces, systemd: Systemd | None = None, *, read_only: bool = False
    ) -> None:
        self.name = name
        self.read_only = read_only
        """Whether a kubelet manages CPUs here, so that nothing may be changed."""
        self.gives_quotas = True
        """Whether containers without exclusive CPUs have CPU limits: a kubelet can turn them off."""
        self._places = places
        self._groups = places.groups
        self._roster = places.roster
        self._systemd = SystemdRecord(systemd) if systemd is not None else None
        self._pool: CPUSet | None = None
        self._owners: dict[ContainerRef, CPUSet] = {}
        self._astray = False
        """Whether the last close look has found a container on other CPUs than its own."""
        self._throttled: set[ContainerRef] = set()
        """The exclusive containers that it has found with a quota, their own or their pod's."""
        self.brevity: Brevity[str] = Brevity()
        """Where nothing was written, each look reads a part of many containers."""

    @property
    def kind(self) -> str:
        """How containers are kept on their CPUs."""
        return self._groups.kind + (" and systemd" if self._systemd is not None else "")

    @property
    def weaker(self) -> tuple[str, ...]:
        """The guarantees that do not hold here, in words."""
        found = {_WATCHING: self.read_only, _UNTOLD: not self.read_only and self._is_untold()}
        return (*(reason for reason, holds in found.items() if holds), _OUTSIDERS)

    def _is_untold(self) -> bool:
        """Whether the pods' groups are units of a systemd that is not reached, as from a pod."""
        top = self._groups.tree.kubepods()
        return self._systemd is None and top is not None and unit_of(top.name) is not None

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs of exclusive containers; *closely* those of every container."""
        found: dict[ContainerRef, CPUSet] = {}
        if self.read_only:
            return Observed(None, found)
        everything = self._roster.containers
        part = self.brevity.part(everything) if closely else ()
        for ref, container in self._places.live(self._owners) if not closely else self._due(part):
            if cpus := self._places.cpus(container):
                found[ref] = cpus
        if not closely:
            return Observed(None, found)
        pool = self._pool or EMPTY
        self._astray = any(cpus != self._owners.get(ref, pool) for ref, cpus in found.items())
        owners = self._places.live(ref for ref in found if ref in self._owners)
        self._throttled = {ref for ref, container in owners if self._places.is_throttled(container)}
        self._groups.heed_balance(self._owned)
        self._groups.tree.paths.trim(len(self._roster.pods), len(everything))
        clean = not self._astray and not self._throttled
        if not clean or len(part) == len(everything):
            self.brevity.looked(everything, clean=clean)
        return Observed(None, found, dict.fromkeys(self._throttled, Fault(Cause.LIMIT, _THROTTLED)))

    def _owned(self) -> set[Path]:
        """Return the groups of the owners."""
        groups = (self._places.group(container) for _, container in self._places.live(self._owners))
        return {group for group in groups if group is not None}

    def _due(self, part: Collection[str]) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        """Yield the owners, and those of *part*, by the runtime's own ids, that have their CPUs by now."""
        yield from self._places.live(self._owners)
        chosen, known = set(part), self._roster.containers
        for pod in dict.fromkeys(known[one].pod for one in part):
            for ref, container in self._roster.of(pod).live:
                is_due = container.id in chosen and not self._places.awaits_its_start(container)
                if is_due and ref not in self._owners:
                    yield ref, container

    def apply(self, want: Wanted) -> None:
        """Take CPUs away first, then give, one step after the other."""
        if self.read_only:
            return
        self.brevity.forget()
        now = {ref: cpus for ref, found in self._places.live(want.exclusive) if (cpus := self._places.cpus(found))}
        gone = self._owners.keys() - want.exclusive.keys()
        # A container that goes on without CPUs of its own has the old ones in its group: they must grow to the pool.
        self._astray |= any(True for _ in self._places.live(gone))
        settings: list[GroupSetting] = []
        pool = self._pool
        # New owners, or a container elsewhere, or the pool is not known: those that share leave first.
        if pool is None or self._astray or want.exclusive.keys() - self._owners.keys():
            pool = want.shared if pool is None else pool & want.shared or pool
            settings += self._set_pool(pool, want)
        way = steps(Wanted(pool, now), want)
        for step in way:
            if step.container is None:
                settings += self._set_pool(step.cpus, want)
            else:
                settings += self._set_owner(step.container, step.cpus, want)
        for ref in self._throttled & want.exclusive.keys():
            settings += self._set_owner(ref, want.exclusive[ref], want)
        for ref in gone:
            settings += self._give_quota_back(self._roster.find(ref))
        if gone and not any(step.container is None for step in way):
            settings += self._set_pool(want.shared, want)
        self._pool, self._owners, self._astray = want.shared, dict(want.exclusive), False
        self._throttled.clear()
        self._record(settings)

    def mend(self, ref: ContainerRef, want: Wanted) -> Drift | None:
        """Correct the CPUs of one container; return what was wrong. A container without a group yet is correct."""
        container = self._roster.find(ref)
        group = self._places.group(container) if container is not None else None
        if self.read_only or container is None or group is None:
            return None
        found, wanted = self._places.cpus(container), want.cpus_of(ref)
        if found == wanted and not (ref in want.exclusive and self._places.is_throttled(container)):
            return None
        if ref in want.exclusive:
            self._record(self._groups.set_container(group, wanted, want.mems.get(ref)))
        else:
            singles = [group] if self._roster.of(container.pod).guaranteed else []
            self._record(self._groups.set_pool(wanted, singles=singles, settled=self._places.settled()))
        now = self._places.cpus(container)
        if not now <= wanted:
            raise ApplyError(f"container {ref.name} has CPUs {now} instead of {wanted}, and they cannot be corrected")
        return Drift(ref, wanted, found)

    def is_clear(self, want: Wanted) -> bool:
        """Return whether exclusive CPUs are free of other containers, checking only the groups above them."""
        guaranteed, singles = self._places.pooled(want)
        above = (*self._groups.tree.pooled(), *guaranteed, *singles)
        owners = ((container, want.exclusive[ref]) for ref, container in self._places.live(want.exclusive))
        try:
            if any(not self._groups.cpus(group) <= want.shared for group in above):
                return False
            return all(self._places.cpus(container) <= cpus for container, cpus in owners)
        except CgroupError:
            return False  # a group has just been removed: the next close check finds out

    def vacate(self, ref: ContainerRef) -> list[int]:  # noqa: ARG002 - the protocol
        """Do nothing: the container runtime ends its containers and removes their groups."""
        return []

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the kernel lets a container use now, as text."""
        container = self._roster.find(ref)
        return str(self._places.cpus(container)) if container is not None else ""

    def members(self, ref: ContainerRef) -> Members:
        """Return the cgroup and the processes of a container."""
        container = self._roster.find(ref)
        group = self._places.group(container) if container is not None else None
        if group is None:
            return Members()
        try:
            return Members([group], self._groups.tree.members(group))
        except CgroupError:  # it has just been removed
            return Members()

    async def leave(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> None:
        """Give every group of pods these CPUs again, and systemd too, until there is nothing left to change.

        While systemd is told of one unit, it can write its old values into another.
        """
        if self.read_only:
            return
        settings: tuple[GroupSetting, ...] = ()
        for turn in range(_ROUNDS):
            told = await self._systemd.tell(settings) if self._systemd is not None else ()
            settings = self._groups.widen_all(cpus, kept)
            if turn and not told and not any(setting.changed for setting in settings):
                return
        raise ApplyError(f"another program keeps groups of pods from CPUs {cpus}; stop it, then try again")

    def _set_pool(self, cpus: CPUSet, want: Wanted) -> tuple[GroupSetting, ...]:
        guaranteed, singles = self._places.pooled(want)
        closely = self._pool is None or self._astray
        return self._groups.set_pool(cpus, guaranteed, singles, closely=closely, settled=self._places.settled())

    def _set_owner(self, ref: ContainerRef, cpus: CPUSet, want: Wanted) -> tuple[GroupSetting, ...]:
        container = self._roster.find(ref)
        group = self._places.group(container) if container is not None else None
        if group is not None:
            return self._groups.set_container(group, cpus, want.mems.get(ref))
        mine = (pod_id for pod_id in self._roster.find_pods(ref.pod) if ref in self._roster.refs(pod_id))
        pod = next((group for group in map(self._places.pod_group, mine) if group is not None), None)
        return () if pod is None else self._groups.open_pod(pod, cpus)

    def _give_quota_back(self, container: RuntimeContainer | None) -> tuple[GroupSetting, ...]:
        """Restore the CPU limits of a container that lost its exclusive CPUs, and those of its pod."""
        group = self._places.group(container) if container is not None else None
        pod = self._roster.of(container.pod).pod if container is not None else None
        if container is None or group is None or pod is None or not self.gives_quotas:
            return ()
        period = container.period or Quota(None).period
        limits = {found.name: found.resources.limits.cpu or 0 for found in pod.all_containers}
        whole = Quota.of_millicpu(sum(limits.values()), period) if all(limits.values()) else Quota(None)
        own = limits[ref_of(self._roster.pods[container.pod], container).name]
        settings = self._groups.set_quota(group.parent, whole)
        return settings + self._groups.set_quota(group, Quota.of_millicpu(own, period)) if own else settings

    def _record(self, settings: Iterable[GroupSetting]) -> None:
        if self._systemd is not None:
            self._systemd.keep(settings)


class SystemdRecord:
    """Tells systemd what was set in the kernel, or systemd would undo it later."""

    def __init__(self, systemd: Systemd) -> None:
        self._systemd = systemd
        self._untold: dict[tuple[Path, str], GroupSetting] = {}
        self._telling: asyncio.Task[None] | None = None

    def keep(self, settings: Iterable[GroupSetting]) -> None:
        """Tell systemd without waiting for it; of each file only the newest setting."""
        self._untold.update(((setting.group, setting.file), setting) for setting in settings if setting.properties)
        if self._untold and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def tell(self, settings: Iterable[GroupSetting]) -> tuple[str, ...]:
        """Tell systemd these settings after all earlier ones, and return the units it did not have so; or raise."""
        if self._telling is not None:
            await asyncio.wait({self._telling})
        return await self._systemd.keep(setting for setting in settings if setting.properties)

    async def _tell(self) -> None:
        """Tell one batch after the other: an older setting must not come after a newer one."""
        while self._untold:
            settings, self._untold = list(self._untold.values()), {}
            with suppress(GroupError):  # the next reconcile checks the result
                await self._systemd.keep(settings)
