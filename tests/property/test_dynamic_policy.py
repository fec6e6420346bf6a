"""Laws of the policy `dynamic`, for any order of admitting, releasing, resizing, moving, hotplug, reload, restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinfold.core.admission import Admitter, Asked
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.moving.baselines import baseline
from pinfold.core.moving.repack import Packer
from pinfold.core.moving.repacking import Consent
from pinfold.core.moving.resizing import NotResized
from pinfold.core.policies.options import OPTION_GATES, OPTIONS
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.recover import carry_over
from pinfold.core.state import State
from pinfold.errors import ConfigError
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from tests.property.promises import broken_promises
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.policies.options import Options

SHAPES: Final = (
    "sockets:2,l3:2,cores:2,threads:2",
    "l3:2,cores:4,threads:2",
    "sockets:2,cores:8",
    "numa:4,cores:2,threads:2",
)
KUBELETS: Final = (
    (),
    ("full-pcpus-only",),
    ("strict-cpu-reservation",),
    ("align-by-socket",),
    ("prefer-align-cpus-by-uncorecache",),
    ("distribute-cpus-across-numa",),
    ("distribute-cpus-across-cores",),
)
ASKABLE: Final = (
    "isolate-smt-siblings",
    "require-align-cpus-by-uncorecache",
    "prefer-isolated-cpus",
    "require-isolated-cpus",
)
ALIGNMENTS: Final = ("none", "best-effort", "restricted", "single-numa-node")
RESERVED: Final = CPUSet.of(0)
OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()}


@st.composite
def given_options(draw: st.DrawFn) -> dict[str, str]:
    """Options as a user gives them: some of the kubelet's, and some of pinfold's own."""
    given = dict.fromkeys(draw(st.sampled_from(KUBELETS)), "true")
    for name in draw(st.sets(st.sampled_from(ASKABLE), max_size=2)):
        given[name] = draw(st.sampled_from(["true", "per-pod"]))
    return given | {"min-shared-cpus": str(draw(st.sampled_from([0, 0, 2, 4])))}


class DynamicLife(RuleBasedStateMachine):
    """A node on which containers come, go, grow, shrink and move, and whose CPUs and options come and go."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        isolated=st.sampled_from(["", "4-7", "2-9", "3,5,7,9,11"]),
        given=given_options(),
        alignment=st.sampled_from(ALIGNMENTS),
    )
    def start(self, shape: str, isolated: str, given: dict[str, str], alignment: str) -> None:
        self.isolated = CPUSet.parse(isolated) if isolated else EMPTY
        self.all = replace(from_shape(shape), isolated=self.isolated)
        self.given, self.alignment = {}, alignment
        self.admitter = self.build(self.all, {}) or self.build_plain()
        if admitter := self.build(self.all, given):
            self.given, self.admitter = given, admitter
        self.state = self.policy.start(State.new())
        self.pods: dict[PodUID, Pod] = {}
        self.promised: dict[ContainerRef, Options] = {}
        self.born = 0

    def build_plain(self) -> Admitter:
        self.alignment = "none"
        return Config("dynamic", {}, Reservation.of(RESERVED)).build(self.all)

    def build(self, topology: Topology, given: dict[str, str]) -> Admitter | None:
        """Return the rules; None if these options are refused."""
        reserved = Reservation.of(RESERVED)
        config = Config("dynamic", given, reserved, topology_policy=self.alignment, gates=OPEN)
        try:
            return config.build(topology)
        except ConfigError:
            return None

    @property
    def policy(self) -> StaticPolicy:
        policy = self.admitter.policy
        assert isinstance(policy, StaticPolicy)
        return policy

    @property
    def topology(self) -> Topology:
        return self.policy.machine.topology

    def owners(self) -> list[ContainerRef]:
        return [ref for ref, _ in self.state.flat()]

    def asked(self, ref: ContainerRef) -> Asked:
        return Asked(annotations=self.pods[ref.pod].annotations)

    def promise(self, ref: ContainerRef) -> None:
        """Expect of a container what the options of its pod promise now."""
        self.promised[ref] = self.policy.options.for_pod(self.pods[ref.pod].annotations)

    def promise_what_holds(self) -> None:
        """Expect of every container what holds now: options and CPUs have changed under it."""
        self.promised.clear()
        for ref in self.owners():
            self.promise(ref)
            if broken_promises(self.policy, self.state, ref, self.promised[ref]):
                del self.promised[ref]

    @rule(count=st.integers(1, 5), asks=st.sets(st.sampled_from(ASKABLE), max_size=2))
    def admit(self, count: int, asks: set[str]) -> None:
        self.born += 1
        pod = replace(
            pod_of(pinned(count), uid=f"p{self.born}"),
            annotations={f"pinfold.dev/{name}": "true" for name in sorted(asks)},
        )
        admission = self.admitter.admit(self.state, pod)
        if admission.refusal is None:
            self.pods[pod.uid] = pod
            self.state = admission.state
            ref = pod.ref(pod.containers[0])
            self.promise(ref)
            # As the kubelet does, full-pcpus-only can give the sibling of a reserved CPU.
            if broken_promises(self.policy, self.state, ref, self.promised[ref]) == ["full-pcpus-only"]:
                del self.promised[ref]

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(self.owners()))
        self.state = self.policy.release(self.state, ref).state
        self.promised.pop(ref, None)

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data(), count=st.integers(1, 8))
    def resize(self, data: st.DataObject, count: int) -> None:
        ref = data.draw(st.sampled_from(self.owners()))
        before = self.state
        held = before.cpus(*ref) or EMPTY
        base = baseline(before, ref) & held
        try:
            decision = self.admitter.resize(before, ref, count, asked=self.asked(ref))
        except NotResized as refusal:
            nearest = refusal.nearest
            decision = None
        if decision is None:
            if nearest not in {None, len(held)}:
                near = self.admitter.resize(before, ref, nearest or 0, asked=self.asked(ref))
                assert len(near.cpus or ()) == nearest
            return
        assert decision.cpus is not None
        assert len(decision.cpus) == count
        assert decision.cpus <= held or held <= decision.cpus
        assert base <= decision.cpus or decision.cpus <= base, "the baseline stays until the size is below it"
        self.state = decision.state
        pool, left = self.policy.pools.shared(before), self.policy.pools.shared(self.state)
        assert left >= pool or len(left) >= self.policy.options.min_shared_cpus
        self.pods[ref.pod] = replace(self.pods[ref.pod], containers=pod_of(pinned(count), uid=ref.pod).containers)
        if count != len(held):
            options = self.policy.options.for_pod(self.pods[ref.pod].annotations)
            old = {*broken_promises(self.policy, before, ref, options)} - {"require-align-cpus-by-uncorecache"}
            assert {*broken_promises(self.policy, self.state, ref, options)} <= old
            self.promised.pop(ref, None)
            if not old:
                self.promise(ref)

    @rule(budget=st.integers(0, 4), follows=st.booleans())
    def repack(self, budget: int, *, follows: bool) -> None:
        policy = self.policy
        assert policy.repacking is not None
        meter = Packer(self.topology).meter
        cost = meter.total(self.occupied())
        may_move = {ref: Consent(follows, self.asked(ref).annotations) for ref in self.owners()}
        plan = policy.repacking.plan(self.state, may_move, budget)
        assert len(plan.moves) <= budget
        for move in plan.moves:
            free = self.state.shared - policy.reserved
            own = policy.pools.with_idle(self.state, move.before)
            assert (move.after | move.idle) - own <= free, "it moves through free CPUs"
            assert len(move.after) == len(move.before)
            assert policy.repacking.is_possible(self.state, move)
            pool = len(policy.pools.shared(self.state))
            self.state = policy.repacking.moved(self.state, move)
            assert len(policy.pools.shared(self.state)) == pool
            self.state_is_sound()
            self.promises_hold()
            now = meter.total(self.occupied())
            assert now <= cost
            cost = now
        again = policy.repacking.plan(self.state, may_move, 100)
        assert not again.moves or again.after < again.before

    def occupied(self) -> list[CPUSet]:
        return [self.policy.pools.with_idle(self.state, cpus) for _, cpus in self.state.flat()]

    @rule(data=st.data())
    def plug(self, data: st.DataObject) -> None:
        """Let any CPUs but the reserved one be offline, and the others online."""
        others = list(self.all.online - RESERVED)
        off = data.draw(st.sets(st.sampled_from(others), max_size=3))
        rows = []
        for core in self.all.cores:
            left = [cpu for cpu in core.cpus if cpu not in off]
            rows += [row._replace(core=min(left)) for row in self.all.cpus if row.cpu in left]
        topology = replace(Topology.from_rows(rows), isolated=self.isolated - CPUSet.from_cpus(off))
        if admitter := self.build(topology, self.given):
            self.carry_over(admitter)

    @rule(given=given_options())
    def reconfigure(self, given: dict[str, str]) -> None:
        if admitter := self.build(self.topology, given):
            self.given = given
            self.carry_over(admitter)

    def carry_over(self, admitter: Admitter) -> None:
        """Go on under new rules."""
        self.admitter = admitter
        before = {ref: len(cpus) for ref, cpus in self.state.flat()}
        recovered = carry_over(admitter, self.state, self.pods)
        self.state = recovered.state
        for ref, cpus in self.state.flat():
            assert len(cpus) >= before[ref] or ref in recovered.degraded
        for ref in recovered.degraded:
            assert self.state.cpus(*ref), "a degraded container keeps what is left"
        for ref in recovered.changed.keys() - recovered.degraded.keys():
            options = self.policy.options.for_pod(self.pods[ref.pod].annotations)
            if self.promised.get(ref) == options:
                # A core can be split without a decision: when a sibling comes back that another container may have.
                assert {*broken_promises(self.policy, self.state, ref, options)} <= {"full-pcpus-only"}
        self.promise_what_holds()

    @rule()
    def crash(self) -> None:
        name = self.policy.name
        file = format_checkpoint(name, self.state, resize=True)
        found = parse_checkpoint(file, policy=name, resize=True)
        assert found.assignments == self.state.assignments
        assert all(baseline(found, ref) == baseline(self.state, ref) for ref in self.owners())
        self.state = self.policy.start(found)

    @invariant()
    def state_is_sound(self) -> None:
        policy, idle = self.policy, self.policy.pools.idle(self.state)
        assert self.state.check(self.topology.online, kept_apart=policy.kept_apart, idle=idle) == []
        assert policy.pools.shared(self.state)
        assert not self.state.exclusive & policy.reserved
        assert not idle & (self.state.exclusive | self.state.shared)

    @invariant()
    def promises_hold(self) -> None:
        for ref, options in self.promised.items():
            assert broken_promises(self.policy, self.state, ref, options) == []

    @invariant()
    def baselines_belong_to_owners(self) -> None:
        for pod, containers in self.state.baselines.items():
            assert containers
            for name in containers:
                assert self.state.cpus(pod, name) is not None


def test_every_option_takes_part() -> None:
    assert {name for some in KUBELETS for name in some} | {*ASKABLE, "min-shared-cpus"} == {*OPTIONS}


TestDynamicLife = DynamicLife.TestCase
TestDynamicLife.settings = settings(stateful_step_count=25)
