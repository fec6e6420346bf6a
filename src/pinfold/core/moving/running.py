"""RunningRules: which CPUs a container that runs may have besides those that it has, under the options of its pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.policies.caches import KeptOutsideError
from pinfold.core.policies.placing import IsolatedCPUsError, SMTIsolationError
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from pinfold.core.policies.placing import Placing
    from pinfold.core.policies.pools import Pools
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints


class NotResizable(AdmissionError):  # noqa: N818 - the fact
    """The container cannot have any other size."""

    reason = "NotResizable"


class TooFewFreeError(AdmissionError):
    """Too few CPUs are free for the container to grow."""

    reason = "NotEnoughCPUs"

    def __init__(self, wanted: int, free: CPUSet) -> None:
        super().__init__(f"{wanted} more CPUs are needed, {len(free)} are free ({free or 'none'})")
        self.wanted = wanted
        self.free = free


class RunningRules(NamedTuple):
    """The rules for running containers of pods with the same options.

    CPUs are masks, as the machine without idle siblings has them (`Placing.seen`).
    """

    placing: Placing

    def hints(self, state: State, held: int, count: int, others: int) -> Hints:
        """Return the hints for a container that keeps what it has; *others* are CPUs that its pod keeps beside it."""
        more = count - held.bit_count()
        free, caches = self.placing.free(state, more, 0), self.placing.caches
        need = count + others.bit_count()
        return self.placing.hints_within(
            free, held | others, need, lambda area: not more or bool(caches.beside(free & area, held, count))
        )

    def hints_of_part(self, held: int, kept: int, count: int, others: int) -> Hints:
        """Return the hints for *count* of the *held* CPUs, with all *kept* ones."""
        caches, need = self.placing.caches, count + others.bit_count()
        return self.placing.hints_within(
            held & ~kept, kept | others, need, lambda area: bool(caches.largest(held & area, kept, count))
        )

    def room(self, state: State, held: int, more: int, near: int) -> int:
        """Return the CPUs of which any *more* keep what the options promise; or raise why there are too few."""
        options, free = self.placing.options, self.placing.free(state, more, 0)
        if free.bit_count() < more:
            if options.require_isolated_cpus:
                raise IsolatedCPUsError(more, CPUSet(free))
            if options.isolate_smt_siblings:
                raise SMTIsolationError(more, free.bit_count())
            raise TooFewFreeError(more, CPUSet(free))
        if not options.require_align_cpus_by_uncorecache:
            return free
        count, caches = held.bit_count() + more, self.placing.caches
        for place in self._places(held, near):
            if found := caches.beside(free & place, held, count):
                return found
        raise KeptOutsideError(count, caches.fewest(count), held.bit_count())

    def _places(self, held: int, near: int) -> tuple[int, ...]:
        """Return where to look for caches, the closest place first."""
        machine = self.placing.static.machine
        nodes, sockets = (
            sum(group for group in row.masks if group & held) for row in (machine.numa_nodes, machine.sockets)
        )
        return near & nodes, near & sockets, near, machine.online

    def part(self, held: int, kept: int, count: int) -> int:
        """Return the *held* CPUs of which *count*, with all *kept* ones, keep what the options promise; or raise."""
        if not self.placing.options.require_align_cpus_by_uncorecache:
            return held
        caches = self.placing.caches
        if found := caches.largest(held, kept, count):
            return found
        raise KeptOutsideError(count, caches.fewest(count), kept.bit_count() or count)

    def is_aligned(self, cpus: int) -> bool:
        """Whether CPUs are in few enough caches, if they must be."""
        return not self.placing.options.require_align_cpus_by_uncorecache or self.placing.caches.aligned(cpus)

    def kinds(self, held: int) -> tuple[int, ...]:
        """Return isolated and other CPUs, those first of which the container has more CPUs to come; or all CPUs."""
        machine, isolated = self.placing.static.machine, self.placing.pools.isolated.mask
        options = self.placing.options
        if not isolated or not (options.prefer_isolated_cpus or options.require_isolated_cpus):
            return (machine.online,)
        kinds = isolated & machine.online, machine.online & ~isolated
        return kinds if held & isolated or not held else kinds[::-1]

    def check(self, state: State, held: CPUSet) -> None:
        """Raise if a container has its CPUs from a time when the options of its pod were not in force."""
        options, pools = self.placing.options, self.placing.pools
        if options.isolate_smt_siblings and not self.is_isolating(state, held):
            raise NotResizable(_OLD.format("isolate-smt-siblings", held))
        if options.require_isolated_cpus and not held <= pools.isolated:
            raise NotResizable(_OLD.format("require-isolated-cpus", held - pools.isolated))

    def area(self, state: State, held: CPUSet) -> int | None:
        """Return the CPUs to which a container may move; None if it has to stay.

        A move exchanges isolated CPUs for isolated ones and others for others, so the shared pool keeps its size. With
        idle siblings it exchanges cores of the same size.
        """
        options, pools = self.placing.options, self.placing.pools
        topology, isolated = pools.topology, pools.isolated
        area = topology.online - pools.reserved
        if held & isolated:
            area &= isolated
            if held - isolated or not (options.prefer_isolated_cpus or options.require_isolated_cpus):
                return None
        elif options.require_isolated_cpus:
            return None
        else:
            area -= isolated
        if not options.isolate_smt_siblings:
            split = self.whole_cores and topology.siblings(held) != held
            return None if split or pools.with_idle(state, held) != held else area.mask
        sizes = {core.mask.bit_count() for core in topology.cores if core.mask & held.mask}
        if len(sizes) > 1 or not self.is_isolating(state, held):
            return None
        return area.mask & sum(core.mask for core in topology.cores if core.mask.bit_count() in sizes)

    @property
    def whole_cores(self) -> bool:
        """Whether a move takes whole cores only."""
        return self.placing.static.options.full_pcpus_only or self.placing.options.isolate_smt_siblings

    def most_caches(self, count: int) -> int | None:
        """Return the most uncore caches that *count* CPUs may be in; None if any number."""
        required = self.placing.options.require_align_cpus_by_uncorecache
        return self.placing.caches.fewest(count) if required else None

    def is_isolating(self, state: State, held: CPUSet) -> bool:
        """Whether each of these CPUs is on a core of its own, whose siblings are idle."""
        whole = self.placing.pools.topology.siblings(held)
        cores = self.placing.seen(held)
        return len(cores) == len(held) and self.placing.pools.with_idle(state, held) == whole


_OLD = "CPUs {1} were assigned without the option {0}; restart the container, then it can be resized"


def changed_pool(pools: Pools, state: State, held: CPUSet, occupied: CPUSet, others: CPUSet = EMPTY) -> CPUSet:
    """Return the CPUs of no container after one has *occupied* CPUs instead of those that it *held*.

    *others* are the CPUs of other containers of the pod, which may be the same ones.
    """
    freed = pools.with_idle(state, held) - pools.with_idle(state, others)
    return (state.shared | freed) - occupied
