"""Laws of the policy `dynamic`: whatever is admitted, released, resized, repacked, unplugged and restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinfold.core.admission import Admitter
from pinfold.core.allocators.order import Machine
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.policies.options import Options
from pinfold.core.policies.resizing import NotResized, baseline
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.recover import carry_over
from pinfold.core.repack import Packer
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID

SHAPES = ("sockets:2,l3:2,cores:2,threads:2", "l3:2,cores:4,threads:2", "sockets:2,cores:8", "numa:4,cores:2,threads:2")
OPTIONS = (
    Options(),
    Options(full_pcpus_only=True),
    Options(strict_cpu_reservation=True),
    Options(align_by_socket=True),
)


class DynamicLife(RuleBasedStateMachine):
    """A node on which containers come, go, grow, shrink and move, and whose CPUs come and go."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        options=st.sampled_from(OPTIONS),
        alignment=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    )
    def start(self, shape: str, options: Options, alignment: str) -> None:
        self.all = from_shape(shape)
        self.options = options
        by_socket = options.align_by_socket and alignment == "single-numa-node"
        self.alignment = "none" if by_socket else alignment
        self.admitter = self.build(self.all)
        self.state = self.admitter.policy.start(State.new())
        self.pods: dict[PodUID, Pod] = {}
        self.born = 0

    def build(self, topology: Topology) -> Admitter:
        policy = StaticPolicy(Machine(topology), CPUSet.of(0), self.options, dynamic=True)
        return Admitter(policy, TopologyManager.for_machine(self.alignment, {}, topology, any_machine=True))

    @property
    def topology(self) -> Topology:
        policy = self.admitter.policy
        assert isinstance(policy, StaticPolicy)
        return policy.machine.topology

    def owners(self) -> list[ContainerRef]:
        return [ref for ref, _ in self.state.flat()]

    @rule(count=st.integers(1, 5))
    def admit(self, count: int) -> None:
        self.born += 1
        pod = pod_of(pinned(count), uid=f"p{self.born}")
        admission = self.admitter.admit(self.state, pod)
        if admission.refusal is None:
            self.pods[pod.uid] = pod
            self.state = admission.state

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.state = self.admitter.policy.release(self.state, data.draw(st.sampled_from(self.owners()))).state

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data(), count=st.integers(1, 8))
    def resize(self, data: st.DataObject, count: int) -> None:
        ref = data.draw(st.sampled_from(self.owners()))
        before = self.state
        base = baseline(before, ref) & (before.cpus(*ref) or CPUSet())
        try:
            decision = self.admitter.resize(before, ref, count)
        except NotResized:
            assert self.state is before
            return
        assert decision.cpus is not None
        assert len(decision.cpus) == count
        assert base <= decision.cpus or decision.cpus <= base, "the baseline stays until the size is below it"
        self.state = decision.state
        self.pods[ref.pod] = pod_of(pinned(count), uid=ref.pod)

    @rule(budget=st.integers(0, 4), follows=st.booleans())
    def repack(self, budget: int, *, follows: bool) -> None:
        policy = self.admitter.policy
        assert policy.repacking is not None
        meter = Packer(self.topology).meter
        cost = meter.total(cpus for _, cpus in self.state.flat())
        plan = policy.repacking.plan(self.state, dict.fromkeys(self.owners(), follows), budget)
        assert len(plan.moves) <= budget
        for move in plan.moves:
            assert move.after - move.before <= self.state.shared - policy.reserved, "it moves through free CPUs"
            self.state = policy.repacking.moved(self.state, move)
            self.state_is_sound()
            now = meter.total(cpus for _, cpus in self.state.flat())
            assert now <= cost
            cost = now

    @rule(data=st.data())
    def plug(self, data: st.DataObject) -> None:
        """Let any CPUs but the reserved one be offline, and the others online."""
        others = list(self.all.online - CPUSet.of(0))
        off = data.draw(st.sets(st.sampled_from(others), max_size=3))
        rows = []
        for core in self.all.cores:
            left = [cpu for cpu in core.cpus if cpu not in off]
            rows += [row._replace(core=min(left)) for row in self.all.cpus if row.cpu in left]
        self.admitter = self.build(Topology.from_rows(rows))
        before = {ref: len(cpus) for ref, cpus in self.state.flat()}
        recovered = carry_over(self.admitter, self.state, self.pods)
        self.state = recovered.state
        for ref, cpus in self.state.flat():
            assert len(cpus) >= before[ref] or ref in recovered.degraded
        for ref in recovered.degraded:
            assert self.state.cpus(*ref), "a degraded container keeps what is left"

    @rule()
    def crash(self) -> None:
        name = self.admitter.policy.name
        file = format_checkpoint(name, self.state, resize=True)
        found = parse_checkpoint(file, policy=name, resize=True)
        assert found.assignments == self.state.assignments
        assert all(baseline(found, ref) == baseline(self.state, ref) for ref in self.owners())
        self.state = self.admitter.policy.start(found)

    @invariant()
    def state_is_sound(self) -> None:
        policy = self.admitter.policy
        assert self.state.check(self.topology.online, kept_apart=policy.kept_apart) == []
        assert not self.state.exclusive & policy.reserved

    @invariant()
    def baselines_belong_to_owners(self) -> None:
        for pod, containers in self.state.baselines.items():
            assert containers
            for name in containers:
                assert self.state.cpus(pod, name) is not None


TestDynamicLife = DynamicLife.TestCase
TestDynamicLife.settings = settings(stateful_step_count=25)
