"""The life of a Manager on any machine: pods come and go, CPUs and rules change, others interfere, and it is killed.

After every step the State is sound, disk and kernel agree with it, and what was answered is still so after a crash.
CI and `make torture` take more steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import assume, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Topology
from pinfold.core.reconcile import drift
from pinfold.errors import PinfoldError, StateError
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.saving.store import StateStore
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.now import now
from tests.property.strategies import pods, regular_topologies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.admission import Admitter
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.reconcile import Wanted
    from pinfold.core.state import State

STEPS: Final = 30
"""A life has at most so many steps …"""
EXAMPLES: Final = max(1, int(os.environ.get("TORTURE_STEPS", "1000")) // (STEPS * 2 // 3))
"""… and mostly more than two thirds of them."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only the directory's parent, where a sync costs nothing
UIDS: Final = [f"p{number}" for number in range(8)]
LED: Final = Counter[str]()
"""How many steps and lives there were."""


@pytest.fixture(autouse=True)
def show_how_many() -> Iterator[None]:
    """Print how many steps a test has made."""
    LED.clear()
    yield
    sys.stdout.write(f"\n{LED['steps']} steps in {LED['lives']} lives\n")


class Killed(BaseException):
    """The daemon was killed, between two of its calls to disk and kernel."""


class Mortal:
    """Counts the calls of a daemon to disk and kernel, and kills it at one of them."""

    def __init__(self) -> None:
        self.left: int | None = None

    def call(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed


class Kernel(SimulatedApplier):
    """A kernel that outlives the daemon; it may refuse, and the daemon may be killed before or after it acts."""

    def __init__(self, life: Mortal) -> None:
        super().__init__()
        self._life = life

    def apply(self, want: Wanted) -> None:
        self._life.call()
        super().apply(want)
        self._life.call()


class Disk(StateStore):
    """A disk that may be full; the daemon may be killed before or after it writes."""

    life: Mortal
    full = False

    async def save(self, state: State) -> None:
        self.life.call()
        if self.full:
            raise StateError("the disk is full")
        await super().save(state)
        self.life.call()


class ManagerLife(RuleBasedStateMachine):
    """A Manager with its disk and its kernel."""

    policy = "static"

    @initialize(machine=regular_topologies(12), strict=st.booleans())
    def begin(self, machine: Topology, *, strict: bool) -> None:
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.machine, self.topology, self.life = machine, machine, Mortal()
        assume(len(machine.online) > 1)
        self.options = {"strict-cpu-reservation": "true"} if strict else {}
        self.reserved = CPUSet.of(machine.online.lowest)
        self.pods: dict[PodUID, Pod] = {}
        self.held: dict[ContainerRef, CPUSet] = {}
        """The exclusive CPUs that were answered to be a container's."""
        self.kernel = Kernel(self.life)
        self.start()

    def teardown(self) -> None:
        LED["lives"] += 1
        if hasattr(self, "directory"):
            self.directory.cleanup()

    # -- the daemon

    def admitter(self) -> Admitter:
        return Config(self.policy, dict(self.options), reserved=Reservation.of(self.reserved)).build(self.topology)

    def start(self) -> None:
        """Start a daemon on what the last one has left on the disk and in the kernel."""
        admitter, self.roster = self.admitter(), Roster()
        self.disk = Disk(Path(self.directory.name), admitter.policy)
        self.disk.life = self.life
        running: dict[PodUID, dict[str, CPUSet]] = {}
        for ref, cpus in self.kernel.containers.items():
            if cpus != self.kernel.shared:
                running.setdefault(ref.pod, {})[ref.name] = cpus
        loaded = self.disk.load(running)
        assert loaded.problem is None
        rules = Rules(admitter, self.topology, self.disk)
        self.manager = Manager(rules, loaded.state, self.kernel, self.roster, Telling(Bus(time.time)))
        now(self.manager.start())
        here = set(self.pods)
        now(self.manager.release([ref for ref, _ in self.manager.state.flat() if ref.pod not in here]))

    def changed(self) -> None:
        """Remember what is answered now."""
        self.held = dict(self.manager.state.flat())

    # -- pods

    @rule(pod=st.sampled_from(UIDS).flatmap(pods), kill=st.none() | st.integers(0, 6))
    def admit(self, pod: Pod, kill: int | None) -> None:
        if pod.uid in self.pods:
            return
        self.life.left = kill
        self.pods[pod.uid] = pod
        try:
            now(self.manager.admit(pod))
        except PinfoldError as refusal:
            note(str(refusal))
            del self.pods[pod.uid]
        except Killed:
            del self.pods[pod.uid]  # it had no answer
            self.start_when_possible()
        self.life.left = None
        self.check_held()
        self.changed()

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), kill=st.none() | st.integers(0, 6))
    def release(self, data: st.DataObject, kill: int | None) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        refs = [self.pods[uid].ref(container) for container in self.pods[uid].all_containers]
        self.life.left = kill
        del self.pods[uid]
        try:
            now(self.manager.release(refs))
        except PinfoldError as error:
            note(str(error))
            self.start_when_possible()
        except Killed:
            self.start_when_possible()
        self.life.left = None
        self.check_held()
        self.changed()

    # -- the machine and the rules change

    @rule(data=st.data())
    def hotplug(self, data: st.DataObject) -> None:
        rows = list(self.machine.cpus)
        off = data.draw(st.sets(st.sampled_from([row.cpu for row in rows]), max_size=len(rows) - 2))
        if off & set(self.reserved):
            return
        self.topology = Topology.from_rows([row for row in rows if row.cpu not in off])
        self.reconfigure()

    @rule(data=st.data(), strict=st.booleans())
    def change_rules(self, data: st.DataObject, *, strict: bool) -> None:
        before = self.reserved, self.options
        self.options = {"strict-cpu-reservation": "true"} if strict else {}
        self.reserved = CPUSet.of(data.draw(st.sampled_from(list(self.topology.online))))
        try:
            self.admitter()
        except PinfoldError:
            self.reserved, self.options = before
            return
        self.reconfigure()

    def reconfigure(self) -> None:
        admitter = self.admitter()
        disk = Disk(Path(self.directory.name), admitter.policy)
        disk.life, disk.full, self.disk = self.life, self.disk.full, disk
        try:
            now(self.manager.reconfigure(Rules(admitter, self.topology, disk), lambda: self.pods))
        except PinfoldError as error:
            note(str(error))
            self.disk.full, self.kernel.fail = False, None
            now(self.manager.reconfigure(Rules(admitter, self.topology, disk), lambda: self.pods))
        self.changed()

    # -- interference

    @rule(data=st.data())
    def drift(self, data: st.DataObject) -> None:
        """Let another program change CPUs behind the daemon's back; a look repairs it."""
        some = CPUSet.from_cpus(data.draw(st.sets(st.sampled_from(list(self.topology.online)), min_size=1)))
        who = data.draw(st.sampled_from([None, *sorted(self.kernel.containers)]))
        if who is None:
            self.kernel.shared = some
        else:
            self.kernel.containers[who] = some
        with suppress(PinfoldError):
            self.manager.reconcile()
            assert list(drift(self.manager.wanted, self.kernel.observe(closely=True))) == []

    @rule(full=st.booleans())
    def fill_the_disk(self, *, full: bool) -> None:
        self.disk.full = full
        if not full:
            now(self.manager.keep())

    @rule(refuses=st.booleans())
    def make_the_kernel_refuse(self, *, refuses: bool) -> None:
        self.kernel.fail = "the kernel says no" if refuses else None

    @rule()
    def kill(self) -> None:
        """Kill the daemon while it does nothing, and start the next one."""
        self.start_when_possible()
        self.check_held()

    def start_when_possible(self) -> None:
        self.disk.full, self.kernel.fail, self.life.left = False, None, None
        self.start()

    # -- what is always so

    def check_held(self) -> None:
        """See that containers whose pods are here have the CPUs that were answered."""
        for ref, cpus in self.held.items():
            has = self.manager.state.cpus(*ref)
            assert ref.pod not in self.pods or has == cpus or (has is None and self.is_init(ref))

    def is_init(self, ref: ContainerRef) -> bool:
        return any(container.name == ref.name for container in self.pods[ref.pod].init)

    @invariant()
    def the_state_is_sound(self) -> None:
        LED["steps"] += 1
        if hasattr(self, "manager"):
            apart = self.manager.rules.admitter.policy.kept_apart
            assert self.manager.state.check(self.manager.rules.topology.online - apart) == []

    @invariant()
    def the_disk_has_the_state(self) -> None:
        if hasattr(self, "manager") and not self.manager.saves.unsaved:
            saved, state = parse_checkpoint(self.disk.path.read_text(), policy=self.policy), self.manager.state
            assert (saved.shared, saved.assignments) == (state.shared, state.assignments)

    @invariant()
    def the_kernel_has_no_overlap(self) -> None:
        if not hasattr(self, "manager") or self.kernel.fail is not None:
            return
        self.manager.reconcile()
        exclusive = dict(self.manager.state.flat())
        for ref, cpus in self.kernel.containers.items():
            others = [theirs for other, theirs in exclusive.items() if other.pod != ref.pod]
            assert not any(cpus & theirs for theirs in others)


TestManagerLife = ManagerLife.TestCase
TestManagerLife.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
