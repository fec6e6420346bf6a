"""Manager and Loop on the simulated runtime: the order of every change, what is undone, what comes back."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.cpuset import CPUSet
from pinfold.core.pods import ContainerRef, Pod, PodUID
from pinfold.core.presets import from_shape
from pinfold.core.reconcile import Wanted, drift, wanted
from pinfold.core.state import State
from pinfold.core.topology import Topology
from pinfold.errors import StateError
from pinfold.manager.kept import KeptWorkloads
from pinfold.manager.manager import Manager, Note
from pinfold.manager.notes import Notes
from pinfold.manager.supervisor import Host as Machine
from pinfold.manager.supervisor import PodExists, UnknownPod
from pinfold.manager.workloads import Common
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.simulated import SimulatedRuntime
from tests.property.strategies import pinned, pod_of, pods

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from signal import Signals

    from pinfold.node.groups import Limit


MACHINE = from_shape("cores:4,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
FIRST = ADMITTER.policy.start(State.new())
ONE, TWO = pod_of(pinned(1), uid="one"), pod_of(pinned(2), uid="two")
ALL_OF_IT = pod_of(pinned(8), uid="all")


class MemoryStore:
    """A store that forgets at the end, and can refuse."""

    def __init__(self, log: list[str]) -> None:
        self.state: State | None = None
        self.full = False
        self._log = log

    def save(self, state: State) -> None:
        if self.full:
            raise StateError("the disk is full")
        self._log.append("save")
        self.state = state


class RecordingRuntime(SimulatedRuntime):
    """The simulated runtime, which also says when it was asked; `stuck` makes it pretend to have applied.

    If it is `late` it fails once, when it has applied.
    What it cannot do to a container are its `troubles`.
    """

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.stuck = False
        self.late = False
        self.troubles: dict[tuple[str, ContainerRef], Exception] = {}
        self.limits: list[tuple[ContainerRef, Limit]] = []
        self._log = log

    def attach(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> None:
        self._fail("attach", ref)
        super().attach(ref, pid, lent=lent)

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        self._fail("signal", ref)
        super().signal(ref, number)

    def forget(self, ref: ContainerRef) -> list[int]:
        self._fail("forget", ref)
        return super().forget(ref)

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        self.limits.append((ref, limit))
        super().make_shared(ref, limit)

    def _fail(self, verb: str, ref: ContainerRef) -> None:
        if (verb, ref) in self.troubles:
            raise self.troubles[verb, ref]

    def apply(self, want: Wanted) -> None:
        self._log.append("apply")
        if not self.stuck:
            super().apply(want)
        if self.late:
            self.late = False
            raise ApplyError("too late")


class Node:
    """A Manager with all that is around it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.notes: list[Note] = []
        self.store = MemoryStore(self.log)
        self.runtime = RecordingRuntime(self.log)
        self.manager = Manager(ADMITTER, self.runtime, self.store, FIRST, self.notes.append, MACHINE)
        self.manager.start()

    def check(self) -> None:
        """See that memory, disk and kernel agree on a sound State."""
        state = self.manager.state
        assert state.check(MACHINE.online) == []
        assert self.store.state == state
        assert self.runtime.shared == state.shared
        assert list(drift(wanted(state), self.runtime.observe())) == []

    def told(self, what: str) -> list[Note]:
        return [note for note in self.notes if note.what == what]


@pytest.fixture
def node() -> Node:
    node = Node()
    node.check()
    return node


def refs(pod: Pod) -> list[ContainerRef]:
    return [pod.ref(container) for container in pod.all_containers]


def test_at_the_start_the_state_is_saved_and_applied(node: Node) -> None:
    assert node.log == ["save", "apply"]
    assert list(node.runtime.applied) == [Wanted(MACHINE.online, {})]


def test_a_change_is_saved_before_it_is_applied(node: Node) -> None:
    node.log.clear()
    admission = node.manager.admit(ONE)
    assert admission.refusal is None
    assert node.log == ["save", "apply"]
    (told,) = node.told("assigned")
    assert told.fields == {"pod": "one", "container": "app", "cpus": str(node.manager.state.exclusive)}
    node.check()


def test_when_a_pod_is_let_in_everyone_else_has_left_its_cpus(node: Node) -> None:
    other = ContainerRef(PodUID("other"), "app")
    node.runtime.containers[other] = MACHINE.online
    cpus = node.manager.admit(TWO).decisions["app"].cpus
    assert cpus is not None
    assert not node.runtime.containers[other] & cpus
    assert not node.manager.state.shared & cpus


def test_a_refusal_changes_nothing_and_is_told(node: Node) -> None:
    node.log.clear()
    admission = node.manager.admit(ALL_OF_IT)
    assert admission.refusal is not None
    assert admission.state == node.manager.state == FIRST
    assert node.log == []
    assert node.told("refused")[0].fields["pod"] == "all"
    node.check()


def test_of_a_refused_pod_no_container_keeps_what_it_had_got(node: Node) -> None:
    admission = node.manager.admit(pod_of(pinned(2), pinned(6, "more"), uid="greedy"))
    assert admission.container == "more"
    assert node.manager.state == FIRST
    node.check()


def test_what_cannot_be_saved_is_not_applied(node: Node) -> None:
    node.store.full = True
    node.log.clear()
    with pytest.raises(StateError, match="full"):
        node.manager.admit(ONE)
    assert node.log == []
    node.check()
    node.store.full = False
    assert node.manager.admit(ONE).refusal is None
    node.check()


def test_what_cannot_be_applied_is_undone(node: Node) -> None:
    node.manager.admit(ONE)
    before = node.manager.state
    node.runtime.stuck = True
    with pytest.raises(ApplyError, match="shared pool"):
        node.manager.admit(TWO)
    assert node.told("undone")
    assert node.manager.state == before
    node.check()
    node.runtime.stuck = False
    assert node.manager.admit(TWO).refusal is None
    node.check()


def test_a_runtime_that_is_gone_for_a_while_loses_nothing(node: Node) -> None:
    node.manager.admit(ONE)
    before = node.manager.state
    node.runtime.fail = "no answer"
    with pytest.raises(ApplyError, match="no answer"):
        node.manager.admit(TWO)
    with pytest.raises(ApplyError, match="no answer"):
        node.manager.release(refs(ONE))
    assert node.manager.state == node.store.state == before
    node.runtime.fail = None
    node.manager.reconcile()
    node.check()
    node.manager.release(refs(ONE))
    assert node.manager.state == FIRST


def test_admit_then_release_gives_the_state_back(node: Node) -> None:
    for pod in (ONE, TWO):
        node.manager.admit(pod)
        node.check()
    for pod in (ONE, TWO):
        for ref in refs(pod):
            node.runtime.forget(ref)
        node.manager.release(refs(pod))
        node.check()
    assert node.manager.state == FIRST


def test_to_release_what_has_nothing_does_nothing(node: Node) -> None:
    node.log.clear()
    node.manager.release([ContainerRef(PodUID("nobody"), "app")])
    assert (node.log, node.told("released")) == ([], [])


def test_only_active_pods_are_kept(node: Node) -> None:
    node.manager.admit(ONE)
    node.manager.admit(TWO)
    node.manager.keep_only({TWO.uid})
    assert set(node.manager.state.assignments) == {TWO.uid}
    node.check()
    node.manager.keep_only([])
    assert node.manager.state == FIRST
    node.check()


def test_drift_is_found_told_and_repaired(node: Node) -> None:
    node.manager.admit(ONE)
    (ref,) = refs(ONE)
    node.runtime.shared = MACHINE.online
    node.runtime.containers[ref] = CPUSet.of(7)
    found = node.manager.reconcile()
    assert [(difference.container, difference.found) for difference in found] == [
        (None, MACHINE.online),
        (ref, CPUSet.of(7)),
    ]
    assert len(node.told("drift")) == node.manager.drifts_repaired == 2
    node.check()
    assert node.manager.reconcile() == []
    assert node.manager.drifts_repaired == 2


def test_drift_that_cannot_be_repaired_does_not_count_as_repaired(node: Node) -> None:
    node.runtime.shared = CPUSet.of(0)
    node.runtime.stuck = True
    node.manager.reconcile()
    assert node.manager.drifts_repaired == 0


def test_another_configuration_keeps_what_it_allows_and_moves_the_rest(node: Node) -> None:
    node.manager.admit(ONE)
    node.manager.admit(TWO)
    one = node.manager.state.cpus(ONE.uid, "app")
    other = Config("static", reserved=Reservation.of(CPUSet.of(0, 2))).build(MACHINE)
    node.manager.reconfigure(other, node.store, {pod.uid: pod for pod in (ONE, TWO)})
    state = node.manager.state
    assert state.cpus(ONE.uid, "app") == one
    assert not state.exclusive & CPUSet.of(0, 2)
    assert {len(cpus) for cpus in state.assignments[TWO.uid].values()} == {2}
    node.check()


def test_a_cpu_that_goes_offline_is_replaced_and_one_that_comes_is_shared(node: Node) -> None:
    node.manager.admit(ONE)
    node.manager.admit(TWO)
    one, two = (node.manager.state.cpus(pod.uid, "app") for pod in (ONE, TWO))
    assert two is not None
    gone = max(two)
    online = MACHINE.online - CPUSet.of(gone)
    left = Topology(tuple(row for row in MACHINE.cpus if row.cpu != gone), offline=CPUSet.of(gone))
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)))
    node.manager.reconfigure(config.build(left), node.store, {pod.uid: pod for pod in (ONE, TWO)}, left)
    now = node.manager.state.cpus(TWO.uid, "app")
    assert now is not None
    assert (node.manager.state.cpus(ONE.uid, "app"), len(now), gone in now) == (one, 2, False)
    assert node.manager.wanted.shared | node.manager.state.exclusive == online
    assert [note.fields["cpus"] for note in node.told("assigned")][-1] == str(now)
    node.manager.reconfigure(ADMITTER, node.store, {}, MACHINE)
    assert node.manager.state.cpus(TWO.uid, "app") == now
    assert gone in node.manager.state.shared
    node.check()


def test_a_configuration_that_cannot_be_applied_leaves_the_one_before(node: Node) -> None:
    node.manager.admit(ONE)
    before = node.manager.state
    node.runtime.stuck = True
    other = Config("static", reserved=Reservation.of(before.exclusive)).build(MACHINE)
    with pytest.raises(ApplyError):
        node.manager.reconfigure(other, node.store, {ONE.uid: ONE})
    node.runtime.stuck = False
    assert node.manager.admitter is ADMITTER
    assert node.manager.state == before
    node.check()


@given(st.data())
def test_whatever_fails_memory_disk_and_kernel_agree_afterwards(data: st.DataObject) -> None:
    node = Node()
    running: dict[PodUID, Pod] = {}
    seldom = st.sampled_from([False, False, False, True])
    for step in range(data.draw(st.integers(1, 8))):
        node.store.full, node.runtime.stuck = data.draw(seldom), data.draw(seldom)
        try:
            if data.draw(st.booleans()) and running:
                gone = data.draw(st.sampled_from(sorted(running)))
                node.manager.release(refs(running[gone]))
                for ref in refs(running.pop(gone)):
                    node.runtime.forget(ref)
            else:
                pod = data.draw(pods(f"p{step}", most=3))
                if node.manager.admit(pod).refusal is None:
                    running[pod.uid] = pod
        except (ApplyError, StateError):
            pass
        node.store.full = node.runtime.stuck = False
        node.manager.reconcile()
        node.check()


# -- the Loop, on a clock that tests set


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time goes on by itself, and by leaps."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    async def leap(self, seconds: float) -> None:
        """Let so much time pass at once, and see to what is due."""
        self.ahead += seconds
        for _ in range(10):
            await asyncio.sleep(0)


class Host:
    """A Loop with all that is around it."""

    def __init__(self, directory: Path) -> None:
        self.node = Node()
        self.notes = Notes(io.StringIO())
        kept = KeptWorkloads(directory)
        self.loop = Machine(self.node.manager, self.node.runtime, self.notes, kept, Common(directory))

    @property
    def shared(self) -> CPUSet:
        return self.node.manager.state.shared

    def told(self) -> list[str]:
        return [entry.what for entry in self.notes.after(0)]


def on_a_clock(directory: Path, scenario: Callable[[Host, Clock], Coroutine[None, None, None]]) -> None:
    clock = Clock()

    async def play() -> None:
        host = Host(directory)
        events = asyncio.create_task(host.loop.follow())
        await scenario(host, clock)
        events.cancel()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(play())


def test_cpus_that_were_reserved_for_nobody_come_back(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        _, admission = host.loop.reserve("x", 1)
        assert admission.refusal is None
        assert len(host.shared) == 7
        await clock.leap(20)
        assert len(host.shared) == 7
        await clock.leap(20)
        assert host.shared == MACHINE.online
        assert host.loop.workloads == {}
        assert "never-attached" in host.told()
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_cpus_of_a_process_that_was_attached_stay(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        pod, _ = host.loop.reserve("x", 1)
        host.loop.attach(pod.uid, 12345)
        await clock.leap(100)
        assert len(host.shared) == 7
        host.node.runtime.end(pod.ref(pod.containers[0]))
        await clock.leap(1)
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)


def test_a_reservation_is_not_given_up_for_an_earlier_one_of_its_name(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        pod, _ = host.loop.reserve("x", 1)
        host.loop.attach(pod.uid, 12345)
        host.node.runtime.end(pod.ref(pod.containers[0]))
        await clock.leap(25)
        host.loop.reserve("x", 1)
        await clock.leap(10)
        assert len(host.shared) == 7
        assert "never-attached" not in host.told()

    on_a_clock(tmp_path, scenario)


def test_a_process_cannot_be_attached_where_nothing_is_reserved(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        with pytest.raises(UnknownPod):
            host.loop.attach(PodUID("run-x"), 12345)

    on_a_clock(tmp_path, scenario)


def test_a_name_can_be_used_again_when_its_owner_is_gone(tmp_path: Path) -> None:
    async def scenario(host: Host, _clock: Clock) -> None:
        host.loop.reserve("x", 1)
        with pytest.raises(PodExists):
            host.loop.reserve("x", 1)
        await host.loop.delete("x")
        host.loop.reserve("x", 1)
        await host.loop.delete("x")
        assert host.shared == MACHINE.online
        host.node.check()

    on_a_clock(tmp_path, scenario)
