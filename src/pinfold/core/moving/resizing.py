"""Resizing: more or fewer exclusive CPUs for a container that runs.

A container grows next to the CPUs that it has, and gives back its worst-placed CPUs first. Its baseline, the CPUs from
before its first resize, stays its own; only the policy `dynamic` goes below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of
from pinfold.core.moving.baselines import baseline, held_by, resized
from pinfold.core.moving.running import NotResizable, RunningRules, changed_pool
from pinfold.core.policies.base import Decision
from pinfold.core.policies.wholecores import SMTAlignmentError, UnequalCoresError, make_up
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.trace import Recorder


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
    running: RunningRules
    below_baseline: bool = False

    def for_pod(self, annotations: Mapping[str, str]) -> Resizing:
        """Return the rules for a pod with these annotations."""
        return self._replace(running=RunningRules(self.policy.placing(annotations)))

    @property
    def _static(self) -> StaticPolicy:
        """The policy that chooses: with the reference's options alone, perhaps on a machine without SMT."""
        return self.running.placing.static

    def hints(self, state: State, container: ContainerRef, count: int, *, whole_pod: bool = False) -> Hints:
        """Return the hints for *count* CPUs: every NUMA node of the CPUs that it keeps is required.

        *whole_pod*: the hints are for all containers of the pod together, which keep their CPUs.
        """
        held = held_by(state, container)
        self.running.check(state, held)
        seen = self.running.placing.seen
        others = seen(state.cpus_of_pod(container.pod) - held).mask if whole_pod else 0
        if count >= len(held):
            return self.running.hints(state, seen(held).mask, count, others)
        of, kept = self._of_which(state, container, count)
        return self.running.hints_of_part(seen(of).mask, seen(kept).mask, count, others)

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
        held = held_by(state, container)
        if self.policy.machine.exact:
            raise NotResizable("the kubelet does not resize containers with exclusive CPUs")
        if container.pod in state.pods:
            raise NotResizable("its pod has pod-level resources: the pod's CPUs are divided among its containers")
        if count < 1:
            raise NotResizable(f"a container cannot have {count} exclusive CPUs; the minimum is 1")
        self.running.check(state, held)
        near = self._static.machine.online if affinity is None else self._static.near(affinity)
        if count > len(held):
            seen = self.running.placing.seen(held)
            cpus = held | CPUSet(self._grow(state, seen.mask, count - len(held), near, recorder))
        else:
            cpus = self._smaller(state, container, count, near)
            if recorder is not None and cpus != held:
                recorder.step(f"gave back CPUs {held - cpus}", 0, "its worst-placed CPUs come first")
        return Decision(self.with_cpus(state, container, cpus), cpus)

    def with_cpus(self, state: State, container: ContainerRef, cpus: CPUSet) -> State:
        """Return the State in which the container has *cpus*, and its baseline is recorded.

        CPUs that another container of the pod has stay out of the shared pool, and so do siblings that must be idle.
        """
        placing = self.running.placing
        others = EMPTY
        for name, theirs in state.assignments[container.pod].items():
            others |= theirs if name != container.name else EMPTY
        held, occupied = held_by(state, container), placing.occupied(cpus)
        return resized(state, container, cpus, changed_pool(placing.pools, state, held, occupied, others))

    def given_back(self, state: State, container: ContainerRef, cpus: CPUSet) -> State:
        """Return the State in which the container has *cpus* of its baseline again, or raise an AdmissionError."""
        running, held = self.running, held_by(state, container)
        running.check(state, held)
        after = self.with_cpus(state, container, cpus)
        running.check(after, cpus)
        pools, occupied = running.placing.pools, running.placing.occupied(cpus)
        before = state._replace(shared=state.shared | pools.with_idle(state, held))
        if not occupied <= before.shared - pools.reserved:
            raise NotResizable("the CPUs of its baseline are not free")
        pools.check_left(before, occupied)
        if not running.is_aligned(running.placing.seen(cpus).mask):
            raise NotResizable("the CPUs of its baseline are in more caches than necessary")
        return after

    def _smaller(self, state: State, container: ContainerRef, count: int, near: int) -> CPUSet:
        of, kept = self._of_which(state, container, count)
        seen = self.running.placing.seen
        left = self._shrink(self.running.part(seen(of).mask, seen(kept).mask, count), seen(kept).mask, count, near)
        # A container whose siblings are idle does not always have the first CPU of a core.
        return of & self.policy.machine.topology.siblings(CPUSet(left)) if seen(of) != of else CPUSet(left)

    def _of_which(self, state: State, container: ContainerRef, count: int) -> tuple[CPUSet, CPUSet]:
        """Return the CPUs of which a smaller size consists, and those of them that it must keep; or raise."""
        held = held_by(state, container)
        kept = baseline(state, container) & held
        if count >= len(kept):
            return held, kept
        if not self.below_baseline:
            raise BelowBaselineError(count, kept)
        return kept, EMPTY

    def _grow(self, state: State, held: int, more: int, near: int, recorder: Recorder | None) -> int:
        policy, placing = self._static, self.running.placing
        if policy.options.full_pcpus_only:
            self._check_cores(held.bit_count() + more, placing.free(state, more, 0).bit_count() + held.bit_count())
        free = self.running.room(state, held, more, near)
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
        placing.pools.check_left(state, placing.occupied(CPUSet(taken)))
        return taken

    def _areas(self, held: int, near: int) -> Iterator[tuple[str, int]]:
        """Yield where to grow, the closest CPUs first; an option that spreads CPUs has other places."""
        for kind in self.running.kinds(held):
            yield from self._areas_of(held, near & kind)
        yield "near its affinity", near
        yield "elsewhere", self._static.machine.online

    def _areas_of(self, held: int, near: int) -> Iterator[tuple[str, int]]:
        machine, arrangement = self._static.machine, self._static.arrangement
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

    def _only_whole_cores(self, free: int, taken: int, more: int) -> int:
        """Return *taken* if it is whole cores, else whole cores of any place that add up to as many CPUs."""
        cores = self._static.whole_cores(free)
        if all(not core & taken or not core & ~taken for core in cores):
            return taken
        return make_up(cores, more)

    def _check_cores(self, count: int, free: int) -> None:
        per_core, even = self._static.machine.cpus_per_core, self._static.machine.even
        if even and count % per_core:
            raise SMTAlignmentError(count, per_core)
        if count > free:
            raise SMTAlignmentError(count, per_core, free)

    def part(self, cpus: CPUSet, kept: CPUSet, count: int) -> CPUSet:
        """Return the best-placed *count* of some CPUs, with all that must be *kept*; all of them if they are fewer."""
        return CPUSet(self._drop(cpus.mask, kept.mask, min(count, len(cpus)), self.policy.machine.online))

    def _shrink(self, held: int, kept: int, count: int, near: int) -> int:
        """Return *count* of the *held* CPUs, with all that must be *kept*."""
        if self._static.options.full_pcpus_only:
            self._check_cores(count, count)
        return self._drop(held, kept, count, near)

    def _drop(self, held: int, kept: int, count: int, near: int) -> int:
        units = [1 << cpu for cpu in cpus_of(held)]
        if self._static.options.full_pcpus_only:
            units = [core & held for core in self._static.machine.cores.masks if core & held]
        first = self.running.kinds(held)[0]
        while excess := held.bit_count() - count:
            loose = [unit for unit in units if not unit & kept and unit.bit_count() <= excess]
            if not loose:
                raise UnequalCoresError(count, {unit.bit_count() for unit in units})
            worst = min(loose, key=lambda unit: (bool(unit & near), bool(unit & first), *self._rank(unit, held)))
            held &= ~worst
            units.remove(worst)
        return held

    def _rank(self, unit: int, held: int) -> tuple[int, ...]:
        """Order CPUs from the worst placed: where the container has the fewest others."""
        machine, arrangement = self._static.machine, self._static.arrangement
        own = [
            (_touched(row.masks, unit) & held).bit_count()
            for row in (machine.sockets, machine.numa_nodes, machine.uncore_caches, machine.cores)
        ]
        if arrangement.group:  # equal parts of several NUMA nodes: the largest part shrinks
            own[_NUMA] = -own[_NUMA]
        if arrangement.spread:
            own = [-own[_CORE]]
        return (*own, -unit)


_NUMA: Final = 1
_CORE: Final = 3


def _split(area: tuple[str, int], name: str, own: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the part of an area that is in the container's *own* groups of a level, and the rest."""
    where, cpus = area
    return (where or name, cpus & own), (where, cpus & ~own)


def _touched(groups: tuple[int, ...], cpus: int) -> int:
    """Return all CPUs of the groups that have one of *cpus*."""
    return sum(group for group in groups if group & cpus)
