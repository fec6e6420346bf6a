"""Plans a node: admits and removes pods one after the other.

The same Admitter as the daemon's decides; nothing here chooses a CPU. Traces are made only when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.admission import Admission
from pinfold.core.allocators.order import Fidelity
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.outcome import Outcome
from pinfold.core.explaining.sharing import missed_pinning
from pinfold.core.localmemory import asks_for_local_memory, with_local_memory
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.state import State
from pinfold.core.stock import MEMORY, NO_STOCK, PlannedHints, Stock, is_memory
from pinfold.core.topologymanager.others import WHOLE, NotEnoughResources
from pinfold.core.trace import Recorder, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.config import Config
    from pinfold.core.explaining.alignment import Alignment, Leftover
    from pinfold.core.explaining.sharing import MissedPinning
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, Pod
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.core.trace import Defect
    from pinfold.errors import AdmissionError


class Placement(NamedTuple):
    """The result for one container."""

    outcome: Outcome
    container: Container
    wanted: int
    """How many exclusive CPUs it asks for; 0: it uses the shared pool."""
    cpus: CPUSet | None
    alignment: Alignment | None

    @property
    def pod(self) -> Pod:
        """Its pod."""
        return self.outcome.pod

    @property
    def refusal(self) -> AdmissionError | None:
        """Why its pod was refused; None if it was not."""
        return self.outcome.refusal

    @property
    def is_culprit(self) -> bool:
        """Whether it is the refused container, or its pod was refused as a whole."""
        return self.refusal is not None and self.outcome.admission.container in {None, self.container.name}

    @property
    def trace(self) -> Trace:
        """The steps of the decision; those of the pod if it was decided as a whole."""
        traces = self.outcome.traces()
        return traces.get(self.container.name) or traces.get(WHOLE) or Trace()


class Walk:
    """Admits and removes pods one after the other, each on the State that the previous one left."""

    __slots__ = ("_admitter", "_local_memory", "_refused", "_topology", "state", "stock")

    def __init__(
        self,
        admitter: Admitter,
        state: State,
        stock: Stock = NO_STOCK,
        topology: Topology | None = None,
        *,
        local_memory: bool = False,
    ) -> None:
        """*topology* and *local_memory*, for pods that do not say whether they want it, are needed with a stock."""
        self._admitter = admitter
        self._topology = topology
        self._local_memory = local_memory
        self._refused: Pod | None = None
        self.state = state
        """The State now; the first containers of a refused pod hold their CPUs until the next step."""
        self.stock = stock
        """The rest of other resources."""

    def admit(self, pod: Pod, others: OtherHints | None = None) -> Outcome:
        """Admit or refuse the next pod; *others* are the hints of other resources, those of the stock by default."""
        before = self.settle()
        is_local = self._has_local_memory(pod)
        others = self.stock.hints(pod, is_asked=is_local) if others is None else others
        try:
            self.stock.check(pod)
            admission = self._admitter.admit(before, pod, others=others)
            if is_local:
                admission = with_local_memory(pod, self.stock, admission, before, self._memory_nodes)
        except NotEnoughResources as refusal:
            admission = Admission(before, {}, {}, refusal)
        self.state = admission.state
        if admission.refusal is None and isinstance(admission.others, PlannedHints):
            self.stock = admission.others.stock
        if admission.refusal is not None:
            self._refused = pod
        return Outcome(pod, before, admission, self._admitter, others=others)

    def _has_local_memory(self, pod: Pod) -> bool:
        """Whether a pod has memory of its CPUs' NUMA nodes alone; False where their memory is not known."""
        asked = asks_for_local_memory(pod)
        is_known = self._topology is not None and any(map(is_memory, self.stock.total))
        several = self._topology is not None and len(self._topology.numa_nodes) > 1
        return is_known and several and (self._local_memory if asked is None else asked)

    def _memory_nodes(self, _: ContainerRef, cpus: CPUSet) -> CPUSet:
        """Return the NUMA nodes of these CPUs that have memory."""
        nodes = self._topology.numa_nodes if self._topology is not None else ()
        memory = self.stock.total.get(MEMORY, {})
        return CPUSet.of(*(node.id for node in nodes if node.cpus & cpus and memory.get(node.id, 1)))

    def remove(self, pod: PodUID) -> None:
        """Take back the CPUs of a pod; do nothing if it is not running."""
        state = self.settle()
        for name in state.assignments.get(pod, ()):
            state = self._admitter.policy.release(state, ContainerRef(pod, name)).state
        self.state = state
        self.stock = self.stock.without(pod)

    def settle(self) -> State:
        """Return the State without stale Assignments of a refused pod."""
        refused, self._refused = self._refused, None
        if refused is not None and refused.uid in self.state.assignments:
            self.remove(refused.uid)
        return self.state


@dataclass(frozen=True)
class Plan:
    """The results for all pods on a node, in the order of arrival."""

    topology: Topology
    config: Config
    admitter: Admitter
    before: State
    outcomes: tuple[Outcome, ...]
    after: State
    stock: Stock = NO_STOCK
    """What containers have of other resources, and what is left."""

    @property
    def reserved(self) -> CPUSet:
        """The CPUs that are never exclusive."""
        return self.admitter.policy.reserved

    @property
    def shared(self) -> CPUSet:
        """The CPUs on which containers without exclusive CPUs run afterwards."""
        return self.admitter.policy.pools.shared(self.after)

    @cached_property
    def ruler(self) -> Ruler:
        """Measures how CPUs are spread on this node."""
        seen = self.admitter.policy.pools.seen(self.topology)
        return Ruler(seen, seen.online - self.reserved)

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """Every container, in the order of decisions."""
        return tuple(
            self._placement(outcome, container) for outcome in self.outcomes for container in outcome.pod.all_containers
        )

    def _placement(self, outcome: Outcome, container: Container) -> Placement:
        wanted = self.admitter.policy.request(outcome.pod, container)
        cpus = outcome.cpus(container)
        alignment = None if cpus is None else self.ruler.measure(cpus)
        return Placement(outcome, container, wanted, cpus, alignment)

    @cached_property
    def names(self) -> Mapping[PodUID, str]:
        """The names of the plan's pods by UID."""
        return {outcome.pod.uid: outcome.pod.name for outcome in self.outcomes}

    @property
    def refused(self) -> tuple[Outcome, ...]:
        """The pods that were refused."""
        return tuple(outcome for outcome in self.outcomes if outcome.refusal is not None)

    @property
    def misaligned(self) -> tuple[Placement, ...]:
        """The containers on more cores, caches, NUMA nodes or sockets than necessary."""
        return tuple(
            placement
            for placement in self.placements
            if placement.alignment is not None and not placement.alignment.is_aligned
        )

    @cached_property
    def missed(self) -> tuple[MissedPinning, ...]:
        """The containers that ask for whole CPUs but share, of the pods that are admitted."""
        pods = (outcome.pod for outcome in self.outcomes if outcome.refusal is None and not outcome.was_running)
        return tuple(missed for pod in pods for missed in missed_pinning(self.admitter.policy, pod))

    @cached_property
    def leftover(self) -> Leftover:
        """The free CPUs afterwards."""
        return self.ruler.leftover(self.admitter.policy.pools.assignable(self.after))

    @cached_property
    def defects(self) -> tuple[tuple[str, Defect, str], ...]:
        """The kubelet's defects in this plan: the container, the defect, and how; each once.

        Only fidelity `kubelet` has any. Every decision is repeated to find them.
        """
        if self.admitter.fidelity is not Fidelity.KUBELET:
            return ()
        found = [defect for outcome in self.outcomes for defect in outcome.defects]
        return tuple(dict.fromkeys([*self._reserving(), *found]))

    def _reserving(self) -> list[tuple[str, Defect, str]]:
        """Return the defects in the choice of reserved CPUs."""
        recorder = Recorder()
        self.config.build_policy(self.topology, recorder)
        return [("reserved CPUs", defect, what) for defect, what in recorder.trace().defects]

    @property
    def broken(self) -> tuple[str, ...]:
        """The invariants that the State breaks afterwards, in words; only fidelity `kubelet` breaks any."""
        policy = self.admitter.policy
        if not policy.allocatable:
            return ()
        kept_apart, idle = policy.kept_apart, policy.pools.idle(self.after)
        broken = self.after.check(self.topology.online, kept_apart=kept_apart, idle=idle)
        return tuple(map(self._with_names, broken))

    def _with_names(self, text: str) -> str:
        """Return *text* with pod names instead of UIDs."""
        words = text.split(" ")
        pairs = zip(["", *words], words, strict=False)
        names = self.names
        return " ".join(names.get(PodUID(word), word) if last in _BEFORE_UIDS else word for last, word in pairs)


_BEFORE_UIDS: Final = ("pod", "pods", "and")


def start(admitter: Admitter, topology: Topology, state: State | None = None) -> State:
    """Return the State to start with: *state* if it fits this node, or that of an empty node."""
    first = admitter.policy.start(State.new() if state is None else state)
    return first if first.shared or state is not None else State(topology.online)  # policy none keeps no State


class Running(NamedTuple):
    """What a node has at the start: its State, its known running pods, and those that leave first."""

    state: State | None = None
    """None: the node is empty."""
    pods: Sequence[Pod] = ()
    gone: Sequence[PodUID] = ()


EMPTY_NODE: Final = Running()


def make_plan(pods: Iterable[Pod], topology: Topology, config: Config, running: Running = EMPTY_NODE) -> Plan:
    """Return the plan of a node that gets *pods*, one after the other.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
    >>> from pinfold.core.machine.presets import preset
    >>> two = Resources(Amounts(2000, 1 << 30), Amounts(2000, 1 << 30))
    >>> pods = [Pod(PodUID(name), name, containers=(Container("app", two),)) for name in "abc"]
    >>> plan = make_plan(pods, preset("cores:3,threads:2"), Config("static", reserved=Reservation.of(CPUSet.of(0, 3))))
    >>> [str(placement.cpus or placement.refusal) for placement in plan.placements]
    ['1,4', '2,5', 'not enough cpus available to satisfy request: requested=2, available=0']
    """
    admitter = config.build(topology)
    first, stock = start(admitter, topology, running.state), Stock.of(topology.resources)
    walk = Walk(admitter, first, stock, topology, local_memory=config.local_memory)
    for uid in running.gone:
        walk.remove(uid)
    before = walk.state
    for pod in running.pods:
        walk.stock = walk.stock.with_running(pod, before, topology)
    there = [Outcome(pod, before, Admission(before, {}, {}), admitter, was_running=True) for pod in running.pods]
    outcomes = (*there, *[walk.admit(pod) for pod in pods])
    return Plan(topology, config, admitter, before, outcomes, walk.settle(), walk.stock)
