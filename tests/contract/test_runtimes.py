"""The contract of runtimes, on the kernel this runs on: one suite over every runtime and every kind of groups."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit, Wanted, drift
from pinfold.errors import PinfoldError
from pinfold.node.grouperrors import GroupError, KindUnavailableError
from pinfold.node.processgroups.errors import GroupInUseError
from pinfold.node.processgroups.groups import KINDS, ProcessGroup, ProcessGroups, choose
from pinfold.runtimes.base import ApplyError, LaunchError, Main, ProcessEnded, Start, StillRunning
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher
from tests.contract import workload
from tests.contract.workload import FORKS_WHEN_TOLD, THREADS, Workload, allowed
from tests.needs import IN_GUEST, needs, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

ALL = workload.online()
FIRST, LAST = CPUSet.of(ALL.lowest), CPUSet.of(max(ALL, default=0))
REST = ALL - LAST
APP, OTHER = ContainerRef(PodUID("pod-1"), "app"), ContainerRef(PodUID("pod-2"), "app")
WORKER = ContainerRef(PodUID("pod-3"), "worker")
NOBODY = ContainerRef(PodUID("pod-4"), "nobody")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PINFOLD_TEST": uuid.uuid4().hex}
SHARED_ONLY, EXCLUSIVE = Wanted(ALL, {}), Wanted(REST, {APP: LAST})
SLEEP = ["sleep", "1000"]
WITHIN = 20.0 if not IN_GUEST else 200.0

pytestmark = needs("two CPUs", met=len(ALL) >= 2)


class Breakable:
    """A group that cannot do what is *broken*."""

    def __init__(self, group: ProcessGroup, broken: Mapping[str, Exception]) -> None:
        self._group = group
        self._broken = broken

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of it
        if name in self._broken:
            raise self._broken[name]
        return getattr(self._group, name)


class Watched:
    """Groups that look, after every change, whether the pool and an exclusive container have a CPU in common."""

    def __init__(self, groups: ProcessGroups) -> None:
        self.groups = groups
        self.overlaps: list[str] = []
        self.states: list[str] = []
        self.broken: dict[str, Exception] = {}
        """What cannot be asked of a group, and why."""
        self.deadly = False
        """Whether the first change is the last thing that this process does."""
        self._pid = 0

    def watch(self, pid: int) -> None:
        """Look, with every change, what this process does."""
        self._pid = pid

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of it
        found = getattr(self.groups, name)
        return self._then_look(name, found) if name in {"set_shared", "make_exclusive", "make_shared"} else found

    def group(self, ref: ContainerRef) -> Any:  # noqa: ANN401 - any attribute of it
        return Breakable(self.groups.group(ref), self.broken)

    def _then_look(self, name: str, change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: object) -> None:
            change(*arguments)
            if self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._pid:
                self.states.append(state_of(self._pid))
            for ref, exclusive in self.groups.found().items():
                if exclusive and self.groups.shared_cpus() & self.groups.group(ref).cpus():
                    self.overlaps.append(f"{name}{arguments}")

        return changed


class Runtime:
    """An applier and a launcher that belong together, as one thing to test."""

    def __init__(self, applier: Any, launcher: Any) -> None:  # noqa: ANN401 - of either kind, real or simulated
        self.applier = applier
        self.launcher = launcher

    def __setattr__(self, name: str, value: object) -> None:
        """Move things behind the applier's back."""
        if name in {"applier", "launcher"}:
            super().__setattr__(name, value)
        else:
            setattr(self.applier, name, value)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what either has
        return getattr(self.launcher, name) if hasattr(self.launcher, name) else getattr(self.applier, name)

    def share(self, ref: ContainerRef, limit: Limit) -> None:
        """Apply what is wanted now, with one more container in the shared pool."""
        found = self.applier.observe()
        exclusive = {one: cpus for one, cpus in found.containers.items() if cpus != found.shared}
        self.applier.apply(Wanted(found.shared, exclusive, {ref: limit}))


class Stand:
    """A runtime under test, and how to have another one in the same place."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"pinfold-test-{uuid.uuid4().hex[:12]}"
        self.watched: Watched | None = None
        self.out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the fixture
        self.runtime: Any = None  # a Runtime, and what its parts have
        self.directory = Path(tempfile.mkdtemp())

    @property
    def real(self) -> bool:
        return self.kind != "simulated"

    def make(self) -> Runtime:
        """Return a new runtime; what an earlier one has left running is still there."""
        if not self.real:
            simulated = SimulatedApplier()
            return Runtime(simulated, SimulatedLauncher(simulated))
        self.watched = Watched(choose(self.kind, name=self.name))
        applier = ProcessApplier(self.watched, self.directory)
        return Runtime(applier, ProcessLauncher(applier))

    async def spawn(self, ref: ContainerRef, *command: str, directory: str = "") -> int:
        start = Start(list(command), ENVIRONMENT, directory)
        pid = await self.runtime.spawn(ref, start, lambda: os.fdopen(os.dup(self.out.fileno()), "wb"))
        assert isinstance(pid, int)
        return pid

    def see(self, want: Wanted) -> None:
        """Apply it, and see that it is so."""
        self.runtime.apply(want)
        assert list(drift(want, self.runtime.observe())) == []

    async def end_of(self, ref: ContainerRef) -> ProcessEnded:
        """Return the next event, which is the end of this container."""
        ended = await asyncio.wait_for(anext(self.runtime.events()), WITHIN)
        assert isinstance(ended, ProcessEnded)
        assert ended.container == ref
        return ended


@pytest.fixture(params=["simulated", *KINDS])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    kind = str(request.param)
    try:
        choose(None if kind == "simulated" else kind, name=f"pinfold-test-{uuid.uuid4().hex[:12]}")
    except KindUnavailableError as error:
        pytest.skip(str(error))
    stand = Stand(kind)
    yield stand
    stand.out.close()
    shutil.rmtree(stand.directory)
    for pid in started():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not started())
    if stand.real:
        groups = choose(stand.kind, name=stand.name)
        for ref in groups.found():
            wait_until(partial(is_removed, groups, ref))
        groups.remove_empty()


@pytest.fixture
def real(stand: Stand) -> Stand:
    if not stand.real:
        pytest.skip("nothing really runs")
    return stand


def started() -> list[int]:
    """Return the living processes that these tests have started; those that have ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    mark, found = f"PINFOLD_TEST={ENVIRONMENT['PINFOLD_TEST']}".encode(), []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit() and mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def is_removed(groups: ProcessGroups, ref: ContainerRef) -> bool:
    """Remove a container's group; False if a process that ends is still in it: its environment is gone before."""
    with suppress(GroupInUseError):
        groups.remove(ref)
        return True
    return False


def state_of(pid: int) -> str:
    """Return what a process does: S it waits, T it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def exit_code(child: int) -> int:
    """Wait for a child of this process, and return how it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


def play(stand: Stand, scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a scenario on a new runtime that is ready."""

    async def scene() -> None:
        stand.runtime = stand.make()
        assert stand.runtime.find() == {}
        stand.runtime.prepare(ALL)
        await scenario()

    asyncio.run(scene())


# -- every runtime


def test_it_says_what_it_is_and_what_it_cannot_promise(stand: Stand) -> None:
    async def scenario() -> None:
        assert stand.runtime.name in {"simulated", "processes"}
        assert stand.runtime.kind
        assert all(isinstance(reason, str) and reason for reason in stand.runtime.weaker)
        assert stand.runtime.weaker

    play(stand, scenario)


@pytest.mark.guest
def test_what_is_applied_is_observed(stand: Stand) -> None:
    async def scenario() -> None:
        for want in (SHARED_ONLY, EXCLUSIVE, Wanted(REST, {OTHER: LAST}), EXCLUSIVE, SHARED_ONLY, Wanted(FIRST, {})):
            stand.see(want)
            stand.see(want)

    play(stand, scenario)


def test_a_container_that_is_no_longer_exclusive_shares(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        pid = await stand.spawn(APP, *SLEEP)
        stand.see(SHARED_ONLY)
        assert stand.runtime.observe().containers.get(APP, ALL) == ALL
        if stand.real:
            assert allowed(pid) == {str(ALL)}
        stand.see(EXCLUSIVE)
        if stand.real:
            assert allowed(pid) == {str(LAST)}

    play(stand, scenario)


@pytest.mark.guest
@pytest.mark.parametrize(
    "wants",
    [
        [EXCLUSIVE, SHARED_ONLY, EXCLUSIVE, Wanted(REST, {OTHER: LAST}), SHARED_ONLY],
        [Wanted(LAST, {}), Wanted(FIRST, {APP: LAST}), Wanted(LAST, {})],
    ],
    ids=["shrinks and grows", "moves elsewhere"],
)
def test_while_the_pool_changes_it_never_overlaps_with_exclusive_containers(real: Stand, wants: list[Wanted]) -> None:
    async def scenario() -> None:
        assert real.watched is not None
        for want in wants:
            real.runtime.apply(want)
            assert real.watched.overlaps == [], want

    play(real, scenario)


@pytest.mark.guest
def test_containers_that_exchange_cpus_with_the_pool_do_not_run_meanwhile(real: Stand) -> None:
    async def scenario() -> None:
        real.see(Wanted(FIRST, {APP: LAST}))
        pid = await real.spawn(APP, *SLEEP)
        assert real.watched is not None
        real.watched.watch(pid)
        real.see(Wanted(LAST, {APP: FIRST}))
        # R: on a busy machine it still waits for a CPU, and takes the signal before it runs. Asleep it would be S.
        assert set(real.watched.states) <= {"T", "R"}
        assert allowed(pid) == {str(FIRST)}
        wait_until(lambda: state_of(pid) == "S")

    play(real, scenario)


def test_who_was_stopped_by_a_daemon_that_was_killed_goes_on_with_the_next(real: Stand) -> None:
    now, then = Wanted(FIRST, {APP: LAST}), Wanted(LAST, {APP: FIRST})

    async def scenario() -> None:
        real.see(now)
        pid = await real.spawn(APP, *SLEEP)
        real.runtime.share(WORKER, Limit())
        users_own = await real.spawn(WORKER, *SLEEP)
        os.kill(users_own, signal.SIGSTOP)
        wait_until(lambda: state_of(users_own) == "T")
        killed = os.fork()
        if not killed:
            assert real.watched is not None
            real.watched.deadly = True
            real.runtime.apply(then)
            os._exit(0)
        assert exit_code(killed) == -signal.SIGKILL
        assert state_of(pid) == "T"
        real.runtime = real.make()
        real.runtime.find()
        assert state_of(pid) == "T"
        real.runtime.prepare(FIRST)
        real.see(now)
        wait_until(lambda: state_of(pid) == "S")
        assert state_of(users_own) == "T"
        assert list(real.directory.iterdir()) == []

    play(real, scenario)


def test_shared_containers_follow_the_pool(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(SHARED_ONLY)
        stand.runtime.share(WORKER, Limit(100, 200))
        pid = await stand.spawn(WORKER, *SLEEP)
        for want in (SHARED_ONLY, EXCLUSIVE, SHARED_ONLY):
            stand.see(want)
            assert stand.runtime.observe().containers[WORKER] == want.shared
            assert stand.runtime.allowed(WORKER) == str(want.shared)
            if stand.real:
                assert allowed(pid) == {str(want.shared)}

    play(stand, scenario)


@pytest.mark.guest
def test_drift_is_seen_and_applied_away(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        if stand.real:
            assert stand.watched is not None
            stand.watched.groups.set_shared(ALL)
            stand.watched.groups.make_exclusive(APP, FIRST)
        else:
            stand.runtime.shared = ALL
            stand.runtime.containers[APP] = FIRST
        found = list(drift(EXCLUSIVE, stand.runtime.observe()))
        assert {difference.container for difference in found} == {None, APP}
        stand.see(EXCLUSIVE)

    play(stand, scenario)


def test_what_cannot_be_applied_is_an_error_of_ours_and_can_be_undone(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        if not stand.real:
            stand.runtime.fail = "no"
        with pytest.raises(PinfoldError):
            stand.runtime.apply(Wanted(FIRST, {APP: LAST, OTHER: CPUSet.of(60_000)}))
        if not stand.real:
            stand.runtime.fail = None
        stand.see(EXCLUSIVE)

    play(stand, scenario)


def test_of_what_could_not_be_applied_nothing_is_left_when_it_is_forgotten(real: Stand) -> None:
    async def scenario() -> None:
        real.see(EXCLUSIVE)
        with pytest.raises(PinfoldError):
            real.runtime.apply(Wanted(FIRST, {APP: LAST, OTHER: CPUSet.of(60_000)}))
        real.see(EXCLUSIVE)
        real.runtime.vacate(OTHER)
        assert real.watched is not None
        assert real.watched.groups.found() == {APP: True}

    play(real, scenario)


def test_a_main_process_is_known_until_it_ends(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        pid = await stand.spawn(APP, *SLEEP)
        assert stand.runtime.mains[APP].pid == pid
        assert stand.runtime.allowed(APP) == str(LAST)
        assert not await stand.runtime.gone([APP], 0.01)
        stand.runtime.signal(APP, signal.SIGTERM)
        assert await stand.end_of(APP) == ProcessEnded(APP, -signal.SIGTERM)
        assert APP not in stand.runtime.mains
        assert await stand.runtime.gone([APP, NOBODY], 0.01)
        stand.runtime.signal(APP, signal.SIGTERM)

    play(stand, scenario)


def test_to_forget_a_container_ends_it(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        await stand.spawn(APP, *SLEEP)
        await stand.runtime.clear([APP], WITHIN)
        stand.runtime.vacate(APP)
        stand.runtime.vacate(APP)
        stand.runtime.vacate(NOBODY)
        assert started() == []
        stand.see(SHARED_ONLY)
        assert APP not in stand.runtime.observe().containers

    play(stand, scenario)


def test_at_last_nothing_is_left_behind(stand: Stand) -> None:
    async def scenario() -> None:
        stand.see(EXCLUSIVE)
        stand.runtime.share(WORKER, Limit())
        for ref in (APP, WORKER):
            stand.runtime.vacate(ref)
        stand.runtime.apply(SHARED_ONLY)
        if stand.watched is not None:
            stand.watched.remove_empty()
        assert not list(workload.ROOT.glob(f"**/{stand.name}"))

    play(stand, scenario)


# -- runtimes of real processes


@pytest.mark.guest
def test_the_first_instruction_runs_on_the_containers_cpus(real: Stand) -> None:
    async def scenario() -> None:
        real.see(EXCLUSIVE)
        await real.spawn(APP, "sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep 0.05")
        assert (await real.end_of(APP)).code == 0
        real.out.seek(0)
        assert real.out.read().split()[1].decode() == str(LAST)

    play(real, scenario)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", -9), ("kill -TERM $$", -15)]
)
def test_the_exit_code_is_told(real: Stand, script: str, code: int) -> None:
    async def scenario() -> None:
        real.see(EXCLUSIVE)
        pid = await real.spawn(APP, "sh", "-c", script)
        assert await real.end_of(APP) == ProcessEnded(APP, code)
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WNOHANG | os.WEXITED)  # noqa: ASYNC222 - does not wait

    play(real, scenario)


@needs_root  # only root can come back from the lowest priority
def test_a_command_that_ends_at_once_is_noticed(real: Stand) -> None:
    """The child runs to its end before its parent goes on: on the same CPU, with the parent of the least priority."""
    scheduler, affinity = os.sched_getscheduler(0), os.sched_getaffinity(0)

    async def scenario() -> None:
        real.see(Wanted(LAST, {}))
        real.runtime.share(WORKER, Limit())
        os.sched_setaffinity(0, LAST)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        try:
            for _ in range(5):
                await real.spawn(WORKER, "chrt", "--other", "0", "sh", "-c", "exit 7")
                assert (await real.end_of(WORKER)).code == 7
        finally:
            os.sched_setscheduler(0, scheduler, os.sched_param(0))
            os.sched_setaffinity(0, affinity)

    play(real, scenario)


@pytest.mark.parametrize(
    ("command", "directory", "code"),
    [("/no/such/command", "", 127), ("/etc/passwd", "", 126), ("/", "", 126), ("true", "/no/such/directory", 127)],
    ids=["missing", "not executable", "a directory", "no directory"],
)
def test_a_command_that_cannot_be_started_is_said_as_a_shell_does(
    real: Stand, command: str, directory: str, code: int
) -> None:
    async def scenario() -> None:
        real.see(EXCLUSIVE)
        with pytest.raises(LaunchError) as error:
            await real.spawn(APP, command, directory=directory)
        assert error.value.code == code
        assert (directory or command) in str(error.value)
        assert real.runtime.mains == {}
        await real.spawn(APP, "sleep", "0.05")
        await real.end_of(APP)

    play(real, scenario)


@pytest.mark.guest
def test_an_attached_process_is_moved_with_all_its_threads(real: Stand) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(THREADS)
            real.see(EXCLUSIVE)
            real.runtime.attach(APP, real.runtime.expect(APP, pid))
            assert allowed(pid) == {str(LAST)}
            assert real.runtime.mains[APP].pid == pid
            running.end(pid)
            assert (await real.end_of(APP)).container == APP
        finally:
            running.end()

    play(real, scenario)


def threads_of(pid: int) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]


def where(pid: int) -> tuple[str, set[str]]:
    """Return the groups of a process, and the CPUs that its threads may use."""
    return Path(f"/proc/{pid}/cgroup").read_text(), allowed(pid)


def test_a_thread_is_no_process_and_neither_is_moved(real: Stand) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(THREADS)
            before = where(pid)
            real.see(EXCLUSIVE)
            thread = max(threads_of(pid))
            with pytest.raises(ApplyError, match=f"{thread} is not a process, but a thread of process {pid}"):
                real.runtime.attach(APP, real.runtime.expect(APP, thread, lent=True))
            assert where(pid) == before
            assert real.runtime.mains == {}
        finally:
            running.end()

    play(real, scenario)


@pytest.mark.parametrize("error", [GroupError("no"), OSError("unheard of")], ids=["ours", "any other"])
@pytest.mark.parametrize("lent", [True, False])
def test_what_could_not_be_attached_is_as_it_was(real: Stand, error: Exception, *, lent: bool) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(THREADS)
            before = where(pid)
            real.see(EXCLUSIVE)
            assert real.watched is not None
            real.watched.broken["cpus"] = error  # which is asked when it has been moved
            with pytest.raises(type(error)):
                real.runtime.attach(APP, real.runtime.expect(APP, pid, lent=lent))
            real.watched.broken.clear()
            assert where(pid) == before
            assert real.runtime.mains == {}
            real.runtime.vacate(APP)
            assert where(pid) == before
            wait_until(lambda: state_of(pid) == "S")  # it is not left stopped
        finally:
            running.end()

    play(real, scenario)


def test_a_lent_process_that_cannot_be_moved_back_at_once_is_moved_back_later_and_never_ended(real: Stand) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(THREADS)
            before = where(pid)
            real.see(EXCLUSIVE)
            assert real.watched is not None
            real.watched.broken |= {"cpus": GroupError("no"), "give_back": GroupError("not now")}
            with pytest.raises(GroupError):
                real.runtime.attach(APP, real.runtime.expect(APP, pid, lent=True))
            with pytest.raises(GroupError, match="not now"):
                real.runtime.vacate(APP)
            real.watched.broken.clear()
            assert real.runtime.vacate(APP) == [pid]
            assert where(pid) == before
        finally:
            running.end()

    play(real, scenario)


@pytest.mark.parametrize("restart", [False, True], ids=["", "after a restart"])
def test_to_forget_a_container_whose_process_is_lent_gives_that_back(real: Stand, *, restart: bool) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(THREADS)
            before = where(pid)
            real.see(EXCLUSIVE)
            real.runtime.attach(APP, real.runtime.expect(APP, pid, lent=True))
            assert allowed(pid) == {str(LAST)}
            if restart:
                main, origin = real.runtime.mains[APP], real.runtime.lent[APP]
                real.runtime = real.make()
                real.runtime.find()
                real.runtime.prepare(REST)
                real.see(EXCLUSIVE)
                assert real.runtime.find_again(APP, main, origin)
            assert real.runtime.vacate(APP) == [pid]
            assert real.runtime.mains == {}
            assert real.runtime.lent == {}
            assert where(pid) == before
            assert await real.runtime.gone([APP], 0.01)
            real.see(SHARED_ONLY)
        finally:
            running.end()

    play(real, scenario)


def test_what_a_lent_process_leaves_behind_goes_on(real: Stand) -> None:
    async def scenario() -> None:
        running = Workload()
        try:
            pid, _ = running.start(FORKS_WHEN_TOLD)
            before = where(pid)
            real.see(EXCLUSIVE)
            real.runtime.attach(APP, real.runtime.expect(APP, pid, lent=True))
            child = int(running.tell(pid))
            assert allowed(child) == {str(LAST)}
            real.runtime.observe(closely=True)  # affinity knows whose it is as long as its parent is there
            os.kill(pid, signal.SIGKILL)
            assert (await real.end_of(APP)).container == APP
            assert real.runtime.vacate(APP) == [child]
            assert where(child) == before
        finally:
            running.end()

    play(real, scenario)


def test_a_process_with_an_affinity_of_its_own_can_be_attached(real: Stand) -> None:
    process = subprocess.Popen(["taskset", "-c", str(FIRST), *SLEEP], env=ENVIRONMENT)
    wait_until(lambda: allowed(process.pid) == {str(FIRST)})

    async def scenario() -> None:
        real.see(SHARED_ONLY)
        real.runtime.share(WORKER, Limit())
        real.runtime.attach(WORKER, real.runtime.expect(WORKER, process.pid))
        assert all(CPUSet.parse(text) <= ALL for text in allowed(process.pid))

    try:
        play(real, scenario)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_cannot_be_attached(real: Stand) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

    async def scenario() -> None:
        real.see(EXCLUSIVE)
        with pytest.raises(PinfoldError):
            real.runtime.attach(APP, real.runtime.expect(APP, process.pid))
        assert real.runtime.mains == {}

    play(real, scenario)


@pytest.mark.guest
def test_what_runs_is_found_again_by_the_next_daemon(real: Stand) -> None:
    async def scenario() -> None:
        real.see(EXCLUSIVE)
        real.runtime.share(WORKER, Limit())
        pids = [await real.spawn(ref, *SLEEP) for ref in (APP, WORKER)]
        mains = dict(real.runtime.mains)
        real.runtime = real.make()
        assert real.runtime.find() == {APP: LAST}
        real.runtime.prepare(REST)
        assert [real.runtime.find_again(ref, mains[ref]) for ref in (APP, WORKER)] == [True, True]
        assert not real.runtime.find_again(OTHER, Main(pids[0], mains[APP].started + 1))
        assert not real.runtime.find_again(OTHER, Main(1 << 22, 1))
        real.see(EXCLUSIVE)
        assert [allowed(pid) for pid in pids] == [{str(LAST)}, {str(REST)}]
        for ref in (APP, WORKER):
            real.runtime.signal(ref, signal.SIGKILL)
            assert (await real.end_of(ref)).code in {None, -9}

    play(real, scenario)


@pytest.mark.guest
def test_to_forget_a_container_ends_all_it_has_started(real: Stand) -> None:
    script = (
        "import os, time\n"
        "for _ in range(60):\n"
        "    if not os.fork():\n"
        "        memory = bytearray(20 << 20)\n"
        "        for at in range(0, len(memory), 4096): memory[at] = 1\n"
        "        time.sleep(1000)\n"
        "        os._exit(0)\n"
        "time.sleep(1000)"
    )

    async def scenario() -> None:
        real.see(EXCLUSIVE)
        await real.spawn(APP, sys.executable, "-ISc", script)
        wait_until(lambda: len(started()) == 61)
        with pytest.raises(StillRunning):
            real.runtime.vacate(APP)
        await real.runtime.clear([APP], WITHIN)
        real.runtime.vacate(APP)
        assert started() == []
        real.see(SHARED_ONLY)
        assert APP not in real.runtime.observe().containers

    play(real, scenario)
