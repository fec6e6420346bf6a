"""Resizing: more or fewer exclusive CPUs for a container that runs.

A container grows next to the CPUs that it has, and gives back its worst-placed CPUs first. Its baseline, the CPUs from
before its first resize, stays its own; only the policy `dynamic` goes below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of
from pinfold.core.policies.base import Decision
from pinfold.core.policies.options import OWN
from pinfold.core.policies.wholecores import SMTAlignmentError, UnequalCoresError, make_up
from pinfold.core.state import NOTHING
from pinfold.core.topologymanager.cpu import cpu_hints
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.policies.options import Options
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.trace import Recorder


class NotResizable(AdmissionError):  # noqa: N818 - the fact
    """The container cannot have any other size."""

    reason = "NotResizable"


class BelowBaselineError(AdmissionError):
    """The size is below the CPUs that the container had at its admission."""

    reason = "BelowBaselineError"

    def __init__(self, wanted: int, baseline: CPUSet) -> None:
        super().__init__(
            f"{wanted} CPUs are fewer than the {len(baseline)} (CPUs {baseline}) of its admission; "
            "only the policy dynamic goes below them"
        )
        self.wanted = wanted
        self.baseline = baseline


class TooFewFreeError(AdmissionError):
    """Too few CPUs are free for the container to grow."""

    reason = "NotEnoughCPUs"

    def __init__(self, wanted: int, free: CPUSet) -> None:
        super().__init__(f"{wanted} more CPUs are needed, {len(free)} are free ({free or 'none'})")
        self.wanted = wanted
        self.free = free


class NotResized(AdmissionError):  # noqa: N818 - the fact
    """A resize that cannot be; nothing has changed. *nearest* is the nearest size that the container can have."""

    def __init__(self, wanted: int, refusal: AdmissionError, nearest: int | None) -> None:
        near = "" if nearest is None else f"; the nearest size that it can have is {nearest}"
        super().__init__(f"cannot have {wanted} CPUs: {refusal}{near}")
        self.reason = refusal.reason
        self.wanted = wanted
        self.refusal = refusal
        self.nearest = nearest


class Resizing(NamedTuple):
    """Resizes containers under one static policy; *below_baseline* is the policy `dynamic`."""

    policy: StaticPolicy
    below_baseline: bool = False

    def hints(self, state: State, container: ContainerRef, count: int, *, whole_pod: bool = False) -> Hints:
        """Return the hints for *count* CPUs: every NUMA node of the CPUs that it keeps is required.

        *whole_pod*: the hints are for all containers of the pod together, which keep their CPUs.
        """
        held = _held(state, container)
        if count >= len(held):
            kept, available = held, state.shared.mask & ~self.policy.reserved.mask
        else:
            of, kept = self._of_which(state, container, count)
            available = (of - kept).mask
        need = count
        if whole_pod:
            others = state.cpus_of_pod(container.pod) - held
            kept, need = kept | others, count + len(others)
        topology, by_socket = self.policy.machine.topology, self.policy.options.align_by_socket
        return cpu_hints(topology, available, kept.mask, need, align_by_socket=by_socket)

    def resize(
        self,
        state: State,
        container: ContainerRef,
        count: int,
        affinity: int | None = None,
        recorder: Recorder | None = None,
    ) -> Decision:
        """Return the State in which the container has *count* CPUs, or raise an AdmissionError.

        CPUs near the NUMA nodes of the mask *affinity* come first, and leave last.
        """
        held = _held(state, container)
        if self.policy.machine.exact:
            raise NotResizable("the kubelet does not resize containers with exclusive CPUs")
        if fixed := fixed_by(self.policy.options):
            raise NotResizable(f"the option {fixed} is in force, under which CPUs do not change while a container runs")
        if container.pod in state.pods:
            raise NotResizable("its pod has pod-level resources: the pod's CPUs are divided among its containers")
        if count < 1:
            raise NotResizable(f"a container cannot have {count} exclusive CPUs; the minimum is 1")
        near = self.policy.machine.online if affinity is None else self.policy.near(affinity)
        if count > len(held):
            cpus = held | CPUSet(self._grow(state, held.mask, count - len(held), near, recorder))
        else:
            of, kept = self._of_which(state, container, count)
            cpus = CPUSet(self._shrink(of.mask, kept.mask, count, near))
            if recorder is not None and cpus != held:
                recorder.step(f"gave back CPUs {held - cpus}", 0, "its worst-placed CPUs come first")
        return Decision(resized(state, container, cpus), cpus)

    def _of_which(self, state: State, container: ContainerRef, count: int) -> tuple[CPUSet, CPUSet]:
        """Return the CPUs of which a smaller size consists, and those of them that it must keep; or raise."""
        held = _held(state, container)
        kept = baseline(state, container) & held
        if count >= len(kept):
            return held, kept
        if not self.below_baseline:
            raise BelowBaselineError(count, kept)
        return kept, EMPTY

    def _grow(self, state: State, held: int, more: int, near: int, recorder: Recorder | None) -> int:
        policy = self.policy
        free = state.shared.mask & ~policy.reserved.mask
        if policy.options.full_pcpus_only:
            free = sum(policy.whole_cores(free))
            self._check_cores(held.bit_count() + more, free.bit_count() + held.bit_count())
        if free.bit_count() < more:
            raise TooFewFreeError(more, CPUSet(free))
        taken = 0
        for name, area in self._areas(held, near):
            part = free & area & ~taken
            wanted = min(more - taken.bit_count(), part.bit_count())
            if wanted:
                took = policy.take(part, wanted)
                taken |= took
                if recorder is not None:
                    recorder.step(f"grew {name or 'near its affinity'}", took)
        if policy.options.full_pcpus_only:
            taken = self._only_whole_cores(free, taken, more)
        policy.pools.check_left(state, CPUSet(taken))
        return taken

    def _areas(self, held: int, near: int) -> Iterator[tuple[str, int]]:
        """Yield where to grow, the closest CPUs first; an option that spreads CPUs has other places."""
        machine, arrangement = self.policy.machine, self.policy.arrangement
        if arrangement.spread:
            yield "on other cores", near & ~_touched(machine.cores.masks, held)
        elif not arrangement.group:
            areas = [("", near)]
            for name, row in (
                ("on its own cores", machine.cores),
                ("in its own L3", machine.uncore_caches),
                ("on its own NUMA nodes", machine.numa_nodes),
                ("on its own sockets", machine.sockets),
            ):
                own = _touched(row.masks, held)
                areas = [part for area in areas for part in _split(area, name, own)]
            yield from areas
        yield "near its affinity", near
        yield "elsewhere", machine.online

    def _only_whole_cores(self, free: int, taken: int, more: int) -> int:
        """Return *taken* if it is whole cores, else whole cores of any place that add up to as many CPUs."""
        cores = self.policy.whole_cores(free)
        if all(not core & taken or not core & ~taken for core in cores):
            return taken
        return make_up(cores, more)

    def _check_cores(self, count: int, free: int) -> None:
        per_core, even = self.policy.machine.cpus_per_core, self.policy.machine.even
        if even and count % per_core:
            raise SMTAlignmentError(count, per_core)
        if count > free:
            raise SMTAlignmentError(count, per_core, free)

    def part(self, cpus: CPUSet, kept: CPUSet, count: int) -> CPUSet:
        """Return the best-placed *count* of some CPUs, with all that must be *kept*; all of them if they are fewer."""
        return CPUSet(self._shrink(cpus.mask, kept.mask, min(count, len(cpus)), self.policy.machine.online))

    def _shrink(self, held: int, kept: int, count: int, near: int) -> int:
        """Return *count* of the *held* CPUs, with all that must be *kept*."""
        units = [1 << cpu for cpu in cpus_of(held)]
        if self.policy.options.full_pcpus_only:
            self._check_cores(count, count)
            units = [core & held for core in self.policy.machine.cores.masks if core & held]
        while excess := held.bit_count() - count:
            loose = [unit for unit in units if not unit & kept and unit.bit_count() <= excess]
            if not loose:
                raise UnequalCoresError(count, {unit.bit_count() for unit in units})
            worst = min(loose, key=lambda unit: self._rank(unit, held, near))
            held &= ~worst
            units.remove(worst)
        return held

    def _rank(self, unit: int, held: int, near: int) -> tuple[int, ...]:
        """Order CPUs from the worst placed: outside of the affinity, then where the container has the fewest others."""
        machine, arrangement = self.policy.machine, self.policy.arrangement
        own = [
            (_touched(row.masks, unit) & held).bit_count()
            for row in (machine.sockets, machine.numa_nodes, machine.uncore_caches, machine.cores)
        ]
        if arrangement.group:  # equal parts of several NUMA nodes: the largest part shrinks
            own[_NUMA] = -own[_NUMA]
        if arrangement.spread:
            own = [-own[_CORE]]
        return (int(bool(unit & near)), *own, -unit)


_NUMA: Final = 1
_CORE: Final = 3


def fixed_by(options: Options) -> str:
    """Return the option under which the CPUs of a running container do not change; empty if there is none."""
    return next((name for name in OWN if name != "min-shared-cpus" and options.offers(name)), "")


def baseline(state: State, container: ContainerRef) -> CPUSet:
    """Return the CPUs of a container before its first resize."""
    return state.baselines.get(container.pod, {}).get(container.name) or _held(state, container)


def resized(state: State, container: ContainerRef, cpus: CPUSet) -> State:
    """Return the State in which the container has *cpus*, and its baseline is recorded.

    CPUs that another container of the pod has stay out of the shared pool.
    """
    held, base = _held(state, container), baseline(state, container)
    kept = base if len(cpus) >= len(base) else base & cpus or cpus
    mine = {**state.assignments[container.pod], container.name: cpus}
    others = EMPTY
    for name, theirs in mine.items():
        others |= theirs if name != container.name else EMPTY
    return state._replace(
        shared=(state.shared | held - others) - cpus,
        assignments={**state.assignments, container.pod: mine},
        baselines=state.baselines if cpus == held else _with_baseline(state.baselines, container, kept),
    )


def without_baseline(state: State, container: ContainerRef) -> State:
    """Return the State without the baseline of a container."""
    if container.name not in state.baselines.get(container.pod, {}):
        return state
    mine = {name: cpus for name, cpus in state.baselines[container.pod].items() if name != container.name}
    rest = {pod: containers for pod, containers in state.baselines.items() if pod != container.pod}
    return state._replace(baselines={**rest, container.pod: mine} if mine else rest or NOTHING)


def _with_baseline(
    baselines: Mapping[PodUID, Mapping[str, CPUSet]], container: ContainerRef, cpus: CPUSet
) -> Mapping[PodUID, Mapping[str, CPUSet]]:
    return {**baselines, container.pod: {**baselines.get(container.pod, {}), container.name: cpus}}


def _held(state: State, container: ContainerRef) -> CPUSet:
    held = state.cpus(container.pod, container.name)
    if held is None:
        raise NotResizable("it has no exclusive CPUs")
    return held


def _split(area: tuple[str, int], name: str, own: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the part of an area that is in the container's *own* groups of a level, and the rest."""
    where, cpus = area
    return (where or name, cpus & own), (where, cpus & ~own)


def _touched(groups: tuple[int, ...], cpus: int) -> int:
    """Return all CPUs of the groups that have one of *cpus*."""
    return sum(group for group in groups if group & cpus)
