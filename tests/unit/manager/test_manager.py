"""Manager on the simulated machine: the order of every change, what is undone, what comes back."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
from pinfold.core.reconcile import Wanted, drift, wanted
from pinfold.core.recover import Fate
from pinfold.core.state import State
from pinfold.errors import StateError
from pinfold.manager.admitting import Refusal
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node
from pinfold.manager.repairing.fights import FIGHT
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher
from tests.now import now
from tests.property.strategies import pinned, pod_of, pods

if TYPE_CHECKING:
    from collections.abc import Sequence
    from signal import Signals

    from pinfold.core.admission import Admitter
    from pinfold.core.events.entries import Entry
    from pinfold.runtimes.base import Main


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
        self.full_after: int | None = None
        """After so many saves it is full."""
        self.gate: asyncio.Event | None = None
        self.tries = 0
        self._log = log

    async def save(self, state: State) -> None:
        self.tries += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.full:
            raise StateError("the disk is full")
        if self.full_after is not None:
            self.full_after -= 1
            self.full = self.full_after == 0
        self._log.append("save")
        self.state = state


class RecordingApplier(SimulatedApplier):
    """The simulated applier, which also says when it was asked; `stuck` makes it pretend to have applied.

    If it is `late` it fails once, when it has applied.
    What it cannot do to a container are its `troubles`.
    """

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.stuck = False
        self.late = False
        self.refused: set[PodUID] = set()
        """The pods whose groups it cannot make."""
        self.troubles: dict[tuple[str, ContainerRef], Exception] = {}
        self._log = log

    def vacate(self, ref: ContainerRef) -> list[int]:
        self.fail_at("vacate", ref)
        return super().vacate(ref)

    def fail_at(self, verb: str, ref: ContainerRef) -> None:
        if (verb, ref) in self.troubles:
            raise self.troubles[verb, ref]

    def apply(self, want: Wanted) -> None:
        self._log.append("apply")
        if self.refused & {ref.pod for ref in want.exclusive}:
            raise ApplyError("refused")
        if not self.stuck:
            super().apply(want)
        if self.late:
            self.late = False
            raise ApplyError("too late")


class TroubledLauncher(SimulatedLauncher):
    """The simulated launcher, with the troubles of its applier."""

    def __init__(self, applier: RecordingApplier) -> None:
        super().__init__(applier)
        self._troubled = applier

    def attach(self, ref: ContainerRef, main: Main) -> None:
        self._troubled.fail_at("attach", ref)
        super().attach(ref, main)

    def signal(self, ref: ContainerRef, number: Signals) -> None:
        self._troubled.fail_at("signal", ref)
        super().signal(ref, number)


class Stand:
    """A Manager with all that is around it."""

    def __init__(self, *, full: bool = False) -> None:
        self.log: list[str] = []
        self.bus = Bus(time.time)
        self.store = MemoryStore(self.log)
        self.store.full = full
        self.applier = RecordingApplier(self.log)
        self.roster = Roster()
        rules = Rules(ADMITTER, MACHINE, self.store)
        self.manager = Manager(rules, FIRST, self.applier, self.roster, Telling(self.bus))
        now(self.manager.start())

    def rules(self, admitter: Admitter, topology: Topology = MACHINE) -> Rules:
        return Rules(admitter, topology, self.store)

    def check(self) -> None:
        """See that memory, disk and kernel agree on a sound State."""
        state = self.manager.state
        assert state.check(MACHINE.online) == []
        assert self.store.state == state
        assert self.applier.shared == state.shared
        assert list(drift(wanted(state, state.shared), self.applier.observe())) == []

    def told(self, what: str) -> list[Entry]:
        return [entry for entry in self.bus.after(0) if entry.what == what]


@pytest.fixture
def node() -> Stand:
    node = Stand()
    node.check()
    return node


def refs(pod: Pod) -> list[ContainerRef]:
    return [pod.ref(container) for container in pod.all_containers]


def test_at_the_start_the_state_is_saved_and_applied(node: Stand) -> None:
    assert node.log == ["save", "apply"]
    assert [want[:2] for want in node.applier.applied] == [(MACHINE.online, {})]


def test_a_change_is_saved_before_it_is_applied(node: Stand) -> None:
    node.log.clear()
    now(node.manager.admit(ONE))
    assert node.log == ["save", "apply"]
    (told,) = node.told("assigned")
    cpus = str(node.manager.state.exclusive)
    assert told.fields == {"namespace": "default", "pod": "one", "container": "app", "cpus": cpus}
    node.check()


def test_when_a_pod_is_admitted_all_others_have_left_its_cpus(node: Stand) -> None:
    other = ContainerRef(PodUID("other"), "app")
    node.applier.containers[other] = MACHINE.online
    cpus = now(node.manager.admit(TWO)).decisions["app"].cpus
    assert cpus is not None
    assert not node.applier.containers[other] & cpus
    assert not node.manager.state.shared & cpus


def test_a_refusal_changes_nothing_and_is_told(node: Stand) -> None:
    node.log.clear()
    with pytest.raises(Refusal, match="not enough cpus"):
        now(node.manager.admit(ALL_OF_IT))
    assert node.manager.state == FIRST
    assert node.log == []
    assert node.told("refused")[0].fields["pod"] == "all"
    node.check()


def test_of_a_refused_pod_no_container_keeps_what_it_had_got(node: Stand) -> None:
    with pytest.raises(Refusal) as refused:
        now(node.manager.admit(pod_of(pinned(2), pinned(6, "more"), uid="greedy")))
    assert refused.value.admission.container == "more"
    assert node.manager.state == FIRST
    node.check()


def test_what_cannot_be_saved_is_not_applied(node: Stand) -> None:
    node.store.full = True
    node.log.clear()
    with pytest.raises(StateError, match="full"):
        now(node.manager.admit(ONE))
    assert node.log == []
    node.check()
    node.store.full = False
    now(node.manager.admit(ONE))
    node.check()


def test_a_node_starts_although_its_state_cannot_be_saved_and_saves_it_later() -> None:
    node = Stand(full=True)
    assert (node.manager.saves.unsaved, len(node.told("not-saved"))) == ("the disk is full", 1)
    now(node.manager.keep())
    assert len(node.told("not-saved")) == 1  # the same problem is reported once
    node.store.full = False
    now(node.manager.keep())
    assert node.manager.saves.unsaved == ""
    node.check()


def test_what_could_not_be_undone_on_the_disk_is_tried_again(node: Stand) -> None:
    node.applier.stuck = True
    node.store.full_after = 1
    with pytest.raises(ApplyError):
        now(node.manager.admit(ONE))
    assert node.manager.saves.unsaved
    assert node.store.state != node.manager.state == FIRST
    node.applier.stuck, node.store.full = False, False
    now(Node(node.manager, node.roster, node.bus).settle())
    node.check()


def test_changes_wait_for_each_other_and_nothing_else_waits_for_the_disk() -> None:
    async def scenario() -> None:
        node = Stand()
        node.store.gate = asyncio.Event()
        changes = [asyncio.create_task(node.manager.admit(pod)) for pod in (ONE, TWO)]
        await asyncio.sleep(0)
        assert node.manager.state == FIRST
        assert node.manager.reconcile() == []  # the kernel has what is durable
        node.store.gate.set()
        await asyncio.gather(*changes)
        assert {*node.manager.state.assignments} == {ONE.uid, TWO.uid}
        node.check()

    asyncio.run(scenario())


def test_many_admissions_at_once_take_one_write_and_those_that_come_meanwhile_the_next() -> None:
    async def scenario() -> None:
        node, pods = Stand(), [pod_of(pinned(1), uid=f"p{number}") for number in range(7)]
        node.store.gate = asyncio.Event()
        node.log.clear()
        changes = [asyncio.create_task(node.manager.admit(pod)) for pod in pods[:4]]
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the first of them leads now, and waits for the disk
        changes += [asyncio.create_task(node.manager.admit(pod)) for pod in pods[4:]]
        await asyncio.sleep(0)
        node.store.gate.set()
        await asyncio.gather(*changes)
        assert node.log == ["save", "apply"] * 2
        assert {*node.manager.state.assignments} == {pod.uid for pod in pods}
        node.check()

    asyncio.run(scenario())


def test_of_changes_at_once_only_the_one_that_cannot_be_applied_fails() -> None:
    async def scenario() -> None:
        node, pods = Stand(), [pod_of(pinned(1), uid=f"p{number}") for number in range(5)]
        node.applier.refused = {pods[2].uid}
        async with node.manager.turn:
            changes = [asyncio.create_task(node.manager.admit(pod)) for pod in pods]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["Admission"] * 2 + ["ApplyError"] + ["Admission"] * 2
        assert {*node.manager.state.assignments} == {pod.uid for pod in pods} - {pods[2].uid}
        node.check()

    asyncio.run(scenario())


def test_a_full_disk_is_tried_once_for_changes_at_once() -> None:
    async def scenario() -> None:
        node = Stand()
        node.store.full, node.store.tries = True, 0
        async with node.manager.turn:
            changes = [asyncio.create_task(node.manager.admit(pod)) for pod in (ONE, TWO, ALL_OF_IT)]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["StateError", "StateError", "Refusal"]
        assert node.store.tries == 1
        assert node.manager.state == FIRST
        node.check()

    asyncio.run(scenario())


def test_a_refusal_for_the_sake_of_a_change_that_was_not_made_is_decided_again() -> None:
    async def scenario() -> None:
        node, both = Stand(), [pod_of(pinned(4), uid="a"), pod_of(pinned(4), uid="b")]
        node.applier.refused = {both[0].uid}
        async with node.manager.turn:
            changes = [asyncio.create_task(node.manager.admit(pod)) for pod in both]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["ApplyError", "Admission"]
        assert len(node.told("refused")) == 0
        node.check()

    asyncio.run(scenario())


def test_what_cannot_be_applied_is_undone(node: Stand) -> None:
    now(node.manager.admit(ONE))
    before = node.manager.state
    node.applier.stuck = True
    with pytest.raises(ApplyError, match="shared pool"):
        now(node.manager.admit(TWO))
    assert node.told("undone")
    assert node.manager.state == before
    node.check()
    node.applier.stuck = False
    now(node.manager.admit(TWO))
    node.check()


def test_a_runtime_that_is_gone_for_a_while_loses_nothing(node: Stand) -> None:
    now(node.manager.admit(ONE))
    before = node.manager.state
    node.applier.fail = "no answer"
    with pytest.raises(ApplyError, match="no answer"):
        now(node.manager.admit(TWO))
    with pytest.raises(ApplyError, match="no answer"):
        now(node.manager.release(refs(ONE)))
    assert node.manager.state == node.store.state == before
    node.applier.fail = None
    node.manager.reconcile()
    node.check()
    now(node.manager.release(refs(ONE)))
    assert node.manager.state == FIRST


def test_admit_then_release_gives_the_state_back(node: Stand) -> None:
    for pod in (ONE, TWO):
        now(node.manager.admit(pod))
        node.check()
    for pod in (ONE, TWO):
        now(node.manager.release(refs(pod)))
        node.check()
    assert node.manager.state == FIRST


def test_to_release_what_has_nothing_does_nothing(node: Stand) -> None:
    node.log.clear()
    now(node.manager.release([ContainerRef(PodUID("nobody"), "app")]))
    assert (node.log, node.told("released")) == ([], [])


def test_drift_is_found_told_and_repaired(node: Stand) -> None:
    now(node.manager.admit(ONE))
    (ref,) = refs(ONE)
    node.applier.shared = MACHINE.online
    node.applier.containers[ref] = CPUSet.of(7)
    found = node.manager.reconcile()
    assert [(difference.container, difference.found) for difference in found] == [
        (None, MACHINE.online),
        (ref, CPUSet.of(7)),
    ]
    assert len(node.told("drift")) == 2
    node.check()
    assert node.manager.reconcile() == []
    assert not node.told("not-repaired")


def test_drift_that_cannot_be_repaired_is_told(node: Stand) -> None:
    node.applier.shared = CPUSet.of(0)
    node.applier.stuck = True
    node.manager.reconcile()
    (told,) = node.told("not-repaired")
    assert told.fields == {"pool": "shared", "found": "0", "wanted": "0-7"}


def test_drift_that_another_program_restores_at_once_is_a_fight(node: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    now(node.manager.admit(ONE))
    (ref,) = refs(ONE)
    apply = node.applier.apply

    def apply_in_vain(want: Wanted) -> None:
        apply(want)
        node.applier.containers[ref] = MACHINE.online

    monkeypatch.setattr(node.applier, "apply", apply_in_vain)
    node.applier.containers[ref] = MACHINE.online
    for look in range(FIGHT + 1):
        node.applier.fail = "the other program was faster than reading back" if look == 2 else None
        with nullcontext() if look != 2 else pytest.raises(ApplyError):
            node.manager.reconcile(spaced=True)
        assert len(node.told("fight")) == (look == FIGHT)
    assert not node.told("not-repaired")


def test_shared_containers_are_kept_off_idle_siblings_and_free_isolated_cpus(node: Stand) -> None:
    machine = replace(MACHINE, isolated=CPUSet.of(3, 7))
    chosen = {"isolate-smt-siblings": "true", "prefer-isolated-cpus": "true"}
    gates = {"CPUManagerPolicyAlphaOptions": True}
    other = Config("static", chosen, Reservation.of(CPUSet.of(0)), gates=gates).build(machine)
    now(node.manager.reconfigure(node.rules(other, machine), dict))
    assert str(node.applier.shared) == "0-2,4-6"
    pods = [pod_of(pinned(1), uid="p1"), pod_of(pinned(1), uid="p2")]
    for pod in pods:
        now(node.manager.admit(pod))
    assert [str(node.applier.containers[ref]) for pod in pods for ref in refs(pod)] == ["3", "1"]
    assert str(node.applier.shared) == "0,2,4,6"
    now(node.manager.release([ref for pod in pods for ref in refs(pod)]))
    assert str(node.applier.shared) == "0-2,4-6"


def test_another_configuration_keeps_what_it_allows_and_moves_the_rest(node: Stand) -> None:
    now(node.manager.admit(ONE))
    now(node.manager.admit(TWO))
    one = node.manager.state.cpus(ONE.uid, "app")
    other = Config("static", reserved=Reservation.of(CPUSet.of(0, 2))).build(MACHINE)
    now(node.manager.reconfigure(node.rules(other), lambda: {pod.uid: pod for pod in (ONE, TWO)}))
    state = node.manager.state
    assert state.cpus(ONE.uid, "app") == one
    assert not state.exclusive & CPUSet.of(0, 2)
    assert {len(cpus) for cpus in state.assignments[TWO.uid].values()} == {2}
    node.check()


def test_a_cpu_that_goes_offline_is_replaced_and_one_that_comes_is_shared(node: Stand) -> None:
    now(node.manager.admit(ONE))
    now(node.manager.admit(TWO))
    one, two = (node.manager.state.cpus(pod.uid, "app") for pod in (ONE, TWO))
    assert two is not None
    gone = max(two)
    online = MACHINE.online - CPUSet.of(gone)
    left = Topology(tuple(row for row in MACHINE.cpus if row.cpu != gone), offline=CPUSet.of(gone))
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)))
    now(node.manager.reconfigure(node.rules(config.build(left), left), lambda: {pod.uid: pod for pod in (ONE, TWO)}))
    other = node.manager.state.cpus(TWO.uid, "app")
    assert other is not None
    assert (node.manager.state.cpus(ONE.uid, "app"), len(other), gone in other) == (one, 2, False)
    assert node.manager.wanted.shared | node.manager.state.exclusive == online
    assert [entry.fields["cpus"] for entry in node.told("assigned")][-1] == str(other)
    now(node.manager.reconfigure(node.rules(ADMITTER), dict))
    assert node.manager.state.cpus(TWO.uid, "app") == other
    assert gone in node.manager.state.shared
    node.check()


def test_a_configuration_that_is_not_agreed_to_changes_nothing_and_says_who_would_move(node: Stand) -> None:
    for pod in (ONE, TWO, pod_of(pinned(3), uid="three")):
        now(node.manager.admit(pod))
    before, seen = node.manager.state, list[Fate]()

    def disagree(fates: Sequence[Fate]) -> None:
        seen.extend(fates)
        raise StateError("no")

    other = Config("static", reserved=Reservation.of(CPUSet.of(0, 2))).build(MACHINE)
    pods = {pod.uid: pod for pod in (ONE, TWO)}
    with pytest.raises(StateError):
        now(node.manager.reconfigure(node.rules(other), lambda: pods, disagree))
    assert (node.manager.state, node.manager.rules.admitter) == (before, ADMITTER)
    assert {fate.container.pod: fate.stays for fate in seen}[ONE.uid]
    assert all(fate.before == before.cpus(*fate.container) for fate in seen)
    assert any(not fate.stays for fate in seen)
    assert node.told("not-kept") == []
    node.check()


def test_a_configuration_that_cannot_be_applied_leaves_the_one_before(node: Stand) -> None:
    now(node.manager.admit(ONE))
    before = node.manager.state
    node.applier.stuck = True
    other = Config("static", reserved=Reservation.of(before.exclusive)).build(MACHINE)
    with pytest.raises(ApplyError):
        now(node.manager.reconfigure(node.rules(other), lambda: {ONE.uid: ONE}))
    node.applier.stuck = False
    assert node.manager.rules.admitter is ADMITTER
    assert node.manager.state == before
    node.check()


@given(st.data())
def test_after_any_failure_memory_disk_and_kernel_agree(data: st.DataObject) -> None:
    node = Stand()
    running: dict[PodUID, Pod] = {}
    seldom = st.sampled_from([False, False, False, True])
    for step in range(data.draw(st.integers(1, 8))):
        node.store.full, node.applier.stuck = data.draw(seldom), data.draw(seldom)
        try:
            if data.draw(st.booleans()) and running:
                gone = data.draw(st.sampled_from(sorted(running)))
                now(node.manager.release(refs(running[gone])))
                del running[gone]
            else:
                pod = data.draw(pods(f"p{step}", most=3))
                now(node.manager.admit(pod))
                running[pod.uid] = pod
        except (ApplyError, StateError, Refusal):
            pass
        node.store.full = node.applier.stuck = False
        node.manager.reconcile()
        node.check()
