"""Policies `static` and `dynamic`: whole CPUs of Guaranteed pods are exclusive, all other containers share the rest.

They decide alike. Under `dynamic` the exclusive CPUs may change while a container runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.allocators.order import PACKED, Fidelity, Machine, note_core_size
from pinfold.core.allocators.packed import take_packed_in
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.moving.baselines import without_baseline
from pinfold.core.moving.repacking import Repacking
from pinfold.core.moving.resizing import Resizing
from pinfold.core.moving.running import RunningRules
from pinfold.core.pods.pod import ANNOTATION_PREFIX, exclusive_cpus, exclusive_pod_cpus
from pinfold.core.policies.base import Decision, Kept
from pinfold.core.policies.keeping import keep_what_fits
from pinfold.core.policies.options import DEFAULT, OWN
from pinfold.core.policies.placing import Placing
from pinfold.core.policies.podlevel import check_budget, divide
from pinfold.core.policies.pools import EmptySharedPoolError, Pools
from pinfold.core.policies.reserving import allocator_of, arrangement_of
from pinfold.core.policies.wholecores import SMTAlignmentError, make_up
from pinfold.core.state import NOTHING, State
from pinfold.core.topologymanager.cpu import cpu_hints, hints_for_assigned
from pinfold.core.topologymanager.hint import UNSATISFIABLE
from pinfold.core.trace import Defect, Recorder
from pinfold.core.validation import EmptySharedPool, validate
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
    from pinfold.core.policies.options import Options
    from pinfold.core.topologymanager.hint import Hints


DYNAMIC: Final = "dynamic"
"""The name of the policy whose containers may change their CPUs."""


class StaticPolicy:
    """Exclusive CPUs for whole-CPU containers of Guaranteed pods, spread as the options say."""

    def __init__(
        self,
        machine: Machine,
        reserved: CPUSet,
        options: Options = DEFAULT,
        *,
        pod_level: bool = False,
        dynamic: bool = False,
    ) -> None:
        """Apply these rules; *dynamic*: exclusive CPUs may change while a container runs (the policy `dynamic`)."""
        self.name: Final = DYNAMIC if dynamic else "static"
        self.machine: Final = machine
        self.options: Final = options
        self.reserved: Final = reserved
        self.reserved_physical: Final = machine.topology.siblings(reserved)
        self.pod_level: Final = pod_level
        self.arrangement: Final = arrangement_of(options, machine)
        self._allocator: Final = allocator_of(self.arrangement)
        packed = self.arrangement == PACKED
        self._nodes: Final = {1 << node.id: node for node in machine.numa_nodes.places} if packed else {}
        """The NUMA nodes by affinity, if the CPUs of one node are taken as they are with no other node."""
        self._exact: Final = machine.fidelity is Fidelity.KUBELET
        self._by_own_size: Final = not self._exact and not machine.even
        self.pools: Final = Pools.of(machine.topology, reserved, options)
        self._has_own: Final = options.offers(*OWN)
        self._placings: Final[dict[Options, Placing]] = {}

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that can be exclusive."""
        return self.pools.allocatable

    @property
    def kept_apart(self) -> CPUSet:
        """The reserved CPUs that strict-cpu-reservation keeps out of the shared pool."""
        return self.reserved if self.options.strict_cpu_reservation else EMPTY

    @property
    def resizing(self) -> Resizing:
        """The rules for a container that grows or shrinks while it runs."""
        return Resizing(self, RunningRules(self.placing({})), below_baseline=self.name == DYNAMIC)

    @property
    def repacking(self) -> Repacking | None:
        """The rules for containers that move while they run; None if the policy is static."""
        return Repacking(self) if self.name == DYNAMIC else None

    @property
    def defects(self) -> tuple[tuple[Defect, str], ...]:
        """The kubelet's defects with these options on this machine, for any request."""
        recorder = Recorder()
        if self._exact and self.options.full_pcpus_only:
            note_core_size(recorder, self.machine)
        return recorder.trace().defects

    def start(self, state: State) -> State:
        """Return the State to start with: *state* if it fits the machine and the reserved CPUs."""
        strict, idle = self.options.strict_cpu_reservation, self.pools.idle(state)
        whole = state._replace(shared=state.shared | idle) if idle else state
        whole = validate(whole, online=self.machine.topology.online, reserved=self.reserved, strict=strict)
        if self.pools.isolated and not self.pools.shared(whole):
            raise EmptySharedPool
        return state if idle else whole

    def keep(self, found: State) -> Kept:
        """Return a sound State that keeps as much of *found* as the rules allow."""
        return keep_what_fits(found, self.start(State.new()).shared, self.pools)

    def _placing(self, pod: Pod, recorder: Recorder | None = None) -> Placing | None:
        """Return what places the pod; None if no option of pinfold's own is in force on the node."""
        if recorder is not None:
            for name in self.options.not_offered(pod.annotations):
                recorder.step(
                    f"ignored the annotation {ANNOTATION_PREFIX}{name}", 0, "the node does not offer the option"
                )
        return self.placing(pod.annotations) if self._has_own else None

    def placing(self, annotations: Mapping[str, str]) -> Placing:
        """Return what places containers of pods with these annotations."""
        options = self.options.for_pod(annotations)
        found = self._placings.get(options)
        if found is None:
            topology = self.machine.topology
            machine = Machine(topology.without_smt) if options.isolate_smt_siblings else self.machine
            found = Placing(StaticPolicy(machine, self.reserved, options.reference), self.pools, options)
            self._placings[options] = found
        return found

    def request(self, pod: Pod, container: Container) -> int:
        """Return how many exclusive CPUs the container must have; 0 puts it into the shared pool."""
        return exclusive_cpus(pod, container, pod_level=self.pod_level)

    def hints(self, state: State, pod: Pod, container: Container) -> Hints | None:
        """Return the hints of the container; None if it needs no exclusive CPUs."""
        need = self.request(pod, container)
        if not need:
            return None
        cpus = state.cpus(pod.uid, container.name)
        if cpus is not None:
            return self._hints_for_assigned(pod, cpus, need)
        return self._hints(state, pod, need, state.reusable.get(pod.uid, EMPTY))

    def pod_hints(self, state: State, pod: Pod) -> Hints | None:
        """Return the hints for all containers of the pod together."""
        need = exclusive_pod_cpus(pod, pod_level=self.pod_level)
        if not need:
            return None
        for container in pod.all_containers if pod.uid in state.assignments else ():
            cpus = state.cpus(pod.uid, container.name)
            if cpus is not None and len(cpus) != self.request(pod, container):
                return UNSATISFIABLE
        assigned = state.cpus_of_pod(pod.uid)
        if len(assigned) == need:
            return self._hints_for_assigned(pod, assigned, need)
        return self._hints(state, pod, need, state.reusable.get(pod.uid, EMPTY) | assigned)

    def _hints(self, state: State, pod: Pod, need: int, reusable: CPUSet) -> Hints:
        placing = self._placing(pod)
        if placing is not None:
            return placing.hints(state, need, reusable.mask)
        available = state.shared.mask & ~self.reserved.mask
        if self.options.full_pcpus_only and self._by_own_size:
            # A core that is larger than the request cannot be part of it.
            available = sum(mask for mask in self.whole_cores(available) if mask.bit_count() <= need)
        by_socket = self.options.align_by_socket
        return cpu_hints(self.machine.topology, available, reusable.mask, need, align_by_socket=by_socket)

    def _hints_for_assigned(self, pod: Pod, cpus: CPUSet, need: int) -> Hints:
        placing = self._placing(pod)
        if placing is not None:
            return placing.hints_for_assigned(cpus, need)
        by_socket = self.options.align_by_socket
        return hints_for_assigned(self.machine.topology, cpus.mask, need, align_by_socket=by_socket)

    def admit(
        self,
        state: State,
        pod: Pod,
        container: Container,
        affinity: int | None = None,
        recorder: Recorder | None = None,
    ) -> Decision:
        """Give the container its CPUs, near the NUMA nodes of the mask *affinity* if there is one."""
        count = exclusive_cpus(pod, container, pod_level=self.pod_level)
        if not count:
            return Decision(state)
        containers = state.assignments.get(pod.uid)
        cpus = containers.get(container.name) if containers else None
        if cpus is not None:
            return Decision(_with(state, state.shared, state.assignments, _reusable(state, pod, container, cpus)), cpus)
        reusable, held = self._reusable_now(state, pod, container)
        placing = self._placing(pod, recorder)
        if placing is None:
            occupied = cpus = CPUSet(self._choose(state, count, affinity, reusable, held, recorder))
        else:
            cpus = placing.choose(state, count, affinity, reusable, recorder)
            occupied = placing.occupied(cpus)
        mine = {**containers, container.name: cpus} if containers else {container.name: cpus}
        assignments = {**state.assignments, pod.uid: mine}
        shared = CPUSet(state.shared.mask & ~occupied.mask)
        return Decision(_with(state, shared, assignments, _reusable(state, pod, container, cpus)), cpus)

    def _reusable_now(self, state: State, pod: Pod, container: Container) -> tuple[int, int]:
        """Return the CPUs of finished init containers to reuse, and those that other containers of the pod hold.

        differs: the kubelet also reuses the latter when a container is admitted again after all others.
        """
        reusable = state.reusable.get(pod.uid, EMPTY).mask
        if not reusable:
            return 0, 0
        held = 0
        for other in pod.all_containers:
            if other.name != container.name and (other.sidecar or other not in pod.init):
                cpus = state.cpus(pod.uid, other.name)
                held |= cpus.mask if cpus is not None else 0
        return (reusable, reusable & held) if self._exact else (reusable & ~held, 0)

    def _choose(  # noqa: PLR0913, PLR0917 - all that a decision depends on
        self,
        state: State,
        count: int,
        affinity: int | None,
        reusable: int,
        held: int = 0,
        recorder: Recorder | None = None,
    ) -> int:
        """Return the mask of the CPUs for a request, or raise an AdmissionError."""
        if recorder is not None and held:
            what = f"CPUs {CPUSet(held)} count as free, but containers of the pod have them"
            recorder.defect(Defect.REUSED_WHILE_HELD, what)
        available = state.shared.mask & ~self.reserved.mask | reusable
        if self.options.full_pcpus_only and not self._by_own_size:
            self._check_whole_cores(state, count, recorder)
        return self.left_some(state, self.choose_from(available, count, affinity, recorder), recorder)

    def choose_from(self, available: int, count: int, affinity: int | None, recorder: Recorder | None) -> int:
        """Return *count* of the *available* CPUs, near the affinity if there is one."""
        if self.options.full_pcpus_only and self._by_own_size:
            return self._take_whole_cores(available, count, affinity, recorder)
        if affinity is None:
            return self._allocator(self.machine, available, count, self.arrangement, recorder)
        return self._take_near(available, count, affinity, recorder)

    def left_some(self, state: State, taken: int, recorder: Recorder | None) -> int:
        """Return the taken CPUs; raise if the shared pool would be empty."""
        if state.shared.mask & ~taken:
            return taken
        # differs: the kubelet gives the last shared CPU away.
        if not self._exact:
            raise EmptySharedPoolError(taken.bit_count(), state.shared)
        if recorder is not None:
            what = f"shared containers stay on CPUs {state.shared}, which belong to others now"
            recorder.defect(Defect.EMPTY_SHARED_POOL, f"the shared pool is empty: {what}")
        return taken

    def _take_near(self, available: int, count: int, affinity: int | None, recorder: Recorder | None) -> int:
        """Take CPUs of the NUMA nodes in *affinity* first, then of all nodes."""
        node = self._nodes.get(affinity) if recorder is None and affinity else None
        if node is not None and (available & node.mask).bit_count() >= count:
            return take_packed_in(self.machine, node, available, count)
        taken = 0
        if affinity is not None:
            near = available & self.near(affinity)
            taken = self.take(near, min(count, near.bit_count()), recorder)
        if taken.bit_count() < count:
            taken |= self.take(available & ~taken, count - taken.bit_count(), recorder)
        return taken

    def _take_whole_cores(self, available: int, count: int, affinity: int | None, recorder: Recorder | None) -> int:
        """Return whole cores of a machine with cores of several sizes, near the affinity if possible.

        differs: the kubelet counts every core with the average size, and splits some.
        """
        cores = self.whole_cores(available)
        free = sum(cores)
        if count > free.bit_count():
            raise SMTAlignmentError(count, self.machine.cpus_per_core, free.bit_count())
        near = free if affinity is None else free & self.near(affinity)
        if near.bit_count() < count:
            near = free
        taken = self.take(near, count)
        if all(not mask & taken or not mask & ~taken for mask in cores):
            return self.take(near, count, recorder) if recorder is not None else taken
        taken = make_up([mask for mask in cores if not mask & ~near], count)
        if recorder is not None:
            recorder.step("took whole cores", taken, f"of several sizes, they make up {count} CPUs")
        return taken

    def whole_cores(self, available: int) -> list[int]:
        """Return the cores of which all CPUs are available."""
        return [mask for mask in self.machine.cores.masks if not mask & ~available]

    def take(self, available: int, count: int, recorder: Recorder | None = None) -> int:
        """Return *count* CPUs of *available*, spread as the options say."""
        return self._allocator(self.machine, available, count, self.arrangement, recorder)

    def near(self, affinity: int) -> int:
        """Return the CPUs of the NUMA nodes in *affinity*, or of their whole sockets, as the options say."""
        machine = self.machine
        return machine.sockets_of(affinity) if self.options.align_by_socket else machine.numa_mask(affinity)

    def _check_whole_cores(self, state: State, count: int, recorder: Recorder | None) -> None:
        per_core = self.machine.cpus_per_core
        if recorder is not None:
            note_core_size(recorder, self.machine)
        if count % per_core:
            raise SMTAlignmentError(count, per_core)
        # Siblings of reserved CPUs are free, but a partly reserved core is not a free core.
        free = (state.shared.mask & ~self.reserved_physical.mask).bit_count()
        if count > free:
            raise SMTAlignmentError(count, per_core, free)

    def admit_pod(
        self, state: State, pod: Pod, affinity: int | None = None, recorder: Recorder | None = None
    ) -> Decision:
        """Give a pod with pod-level resources its CPUs, and its containers their parts."""
        count = exclusive_pod_cpus(pod, pod_level=self.pod_level) if pod.resources is not None else 0
        if not count:
            return Decision(state)
        known = state.pods.get(pod.uid)
        if known is None:
            return self._assign_pod(state, pod, count, affinity, recorder)
        if recorder is not None:
            self._record_restart(recorder)
        return Decision(state, known)

    def _assign_pod(
        self, state: State, pod: Pod, count: int, affinity: int | None, recorder: Recorder | None
    ) -> Decision:
        check_budget(pod, count)
        placing = self._placing(pod, recorder)
        if placing is None:
            occupied = cpus = CPUSet(self._choose(state, count, affinity, 0, 0, recorder))
        else:
            cpus = placing.choose(state, count, affinity, 0, recorder)
            occupied = placing.occupied(cpus)
        pods = {**state.pods, pod.uid: cpus}
        shared = state.shared - occupied
        try:
            parts = divide(pod, cpus.mask, partial((placing or self).take, recorder=recorder))
        except AdmissionError as refusal:
            if not self._exact:
                raise
            # differs: only the kubelet keeps the CPUs of a pod that it has refused.
            if recorder is not None:
                recorder.defect(Defect.REFUSED_POD_KEEPS_CPUS, f"CPUs {cpus} stay with the refused pod {pod.name}")
            return Decision(State(shared, state.assignments, pods, state.baselines), None, refusal)
        return Decision(State(shared, {**state.assignments, pod.uid: parts}, pods, state.baselines), cpus)

    def _record_restart(self, recorder: Recorder) -> None:
        recorder.step("kept the pod's CPUs", 0, "it has been admitted before")
        if self._exact:
            recorder.defect(Defect.POD_NOT_RESTARTABLE, "after a restart the kubelet divides the pod's CPUs again")

    def release(self, state: State, container: ContainerRef) -> Decision:
        """Take the container's CPUs back, except those that another container of the pod still uses."""
        containers = state.assignments.get(container.pod)
        cpus = containers.get(container.name) if containers else None
        if containers is None or cpus is None:
            return Decision(state)
        state = without_baseline(state, container)
        rest = {}
        if len(containers) > 1:
            rest = {name: held for name, held in containers.items() if name != container.name}
        assignments = {**state.assignments}
        if container.pod in state.pods:
            freed = self.pools.with_idle(state, state.pods[container.pod])
            return Decision(_without_pod_container(state, container.pod, assignments, rest, freed), cpus)
        kept = 0
        if rest:
            assignments[container.pod] = rest
            for held in rest.values():
                kept |= held.mask
        else:
            del assignments[container.pod]
        freed = self.pools.with_idle(state, CPUSet(cpus.mask & ~kept))
        return Decision(_with(state, CPUSet(state.shared.mask | freed.mask), assignments, state.reusable), cpus)


def _without_pod_container(
    state: State,
    pod: PodUID,
    assignments: dict[PodUID, Mapping[str, CPUSet]],
    rest: Mapping[str, CPUSet],
    freed: CPUSet,
) -> State:
    """Return the State without a container of a pod with pod-level CPUs; after the last one the CPUs are *freed*."""
    if rest:
        assignments[pod] = rest
        return _with(state, state.shared, assignments, state.reusable)
    del assignments[pod]
    pods = {uid: cpus for uid, cpus in state.pods.items() if uid != pod}
    return State(state.shared | freed, assignments, pods, state.baselines, state.reusable)


def _reusable(state: State, pod: Pod, container: Container, cpus: CPUSet) -> Mapping[PodUID, CPUSet]:
    """Return the CPUs of the pod's init containers that are free again, for later containers of the pod to reuse.

    Reusable CPUs of other pods are dropped: pods are admitted one after the other.
    """
    if not pod.init and not state.reusable:
        return NOTHING
    before = state.reusable.get(pod.uid, EMPTY)
    if any(init.name == container.name and not init.sidecar for init in pod.init):
        return {pod.uid: before | cpus}
    return {pod.uid: before - cpus} if before else NOTHING


def _with(
    state: State, shared: CPUSet, assignments: Mapping[PodUID, Mapping[str, CPUSet]], reusable: Mapping[PodUID, CPUSet]
) -> State:
    return State(shared, assignments, state.pods, state.baselines, reusable)
