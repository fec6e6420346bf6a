"""Starter: processes are children of the caller, however the forker makes them; what goes wrong is said."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.procfs import PROC
from pinfold.node.starting import forker
from pinfold.node.starting.starter import NewProcess, Starter, StartError
from tests.contract.workload import when_running
from tests.support.children import children, command_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINE = CPUSet.from_cpus(os.sched_getaffinity(0))
ENVIRONMENT = {"PATH": os.environ["PATH"]}
OTHERS: list[int] = []
SOURCES = Path(forker.__file__).parents[2]


@pytest.fixture(params=["a sibling", "itself"])
def starter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Where the kernel is not asked for a sibling, the forker itself becomes the command."""
    if request.param == "itself":
        program = tmp_path / "forker.py"
        program.write_text(Path(forker.__file__).read_text().replace("_CLONE = {", "_CLONE = {} and {"))
        monkeypatch.setattr(forker, "__file__", str(program))
    made = Starter()
    yield made
    made.close()


def said(starter: Starter, *command: str, request: NewProcess | None = None) -> str:
    """Return what a command prints; it must be a child of ours, and end well."""
    reader, writer = os.pipe()
    with Joiner(MINE) as joiner, Path(os.devnull).open("rb") as nothing:
        begun = starter.begin(request or NewProcess(command, ENVIRONMENT), (nothing.fileno(), writer, 2), joiner)
        pid = when_running(begun)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    assert os.waitpid(pid, 0) == (pid, 0)
    return text


def test_several_processes_are_started_and_are_children_of_the_caller(starter: Starter) -> None:
    for number in range(3):
        assert said(starter, "sh", "-c", f"echo {number} $PPID").split() == [str(number), str(os.getpid())]


def test_a_process_has_a_session_and_the_signals_of_its_own(starter: Starter) -> None:
    lines = said(starter, "sh", "-c", 'echo $$; cut -d" " -f6 /proc/self/stat; grep SigIgn /proc/self/status').split()
    assert lines[0] == lines[1]
    signals = int(lines[3], 16) & 0x7FFFFFFF  # a parent like make ignores some of the C library's own, 32 and 33
    assert signals == 0


def test_a_process_has_no_files_but_its_own(starter: Starter) -> None:
    assert said(starter, "ls", "/proc/self/fd").split() == ["0", "1", "2", "3"]  # the last: what ls itself opens


def test_a_process_has_the_directory_and_exactly_the_environment_asked_for(starter: Starter, tmp_path: Path) -> None:
    request = NewProcess([sys.executable, "-ISc", SHOW], {"A": "1", "B\udcff": "\udcfeß"}, str(tmp_path))
    assert said(starter, request=request).splitlines() == [
        str(tmp_path),
        "[(b'A', b'1'), (b'B\\xff', b'\\xfe\\xc3\\x9f')]",
    ]


SHOW = "import os; print(os.getcwd()); print(sorted((k, v) for k, v in os.environb.items() if k != b'LC_CTYPE'))"


def test_an_environment_of_a_megabyte_arrives(starter: Starter) -> None:
    large = {f"V{number}": "x" * 10_000 for number in range(100)}
    assert said(starter, request=NewProcess(["sh", "-c", "env | wc -c"], ENVIRONMENT | large)).strip() > "1000000"


@pytest.mark.parametrize(
    ("command", "directory", "step", "error"),
    [
        ("/no/such", "", "command", FileNotFoundError),
        ("no-such-command", "", "command", FileNotFoundError),
        ("/etc/passwd", "", "command", PermissionError),
        ("true", "/no/such", "directory", FileNotFoundError),
    ],
    ids=["path", "name", "not executable", "directory"],
)
def test_what_cannot_be_started_is_told_and_leaves_no_process(
    starter: Starter, command: str, directory: str, step: str, error: type[OSError]
) -> None:
    for _ in range(2):
        with pytest.raises(StartError) as caught:
            said(starter, request=NewProcess([command], ENVIRONMENT, directory))
        assert caught.value.step == step
        assert isinstance(caught.value.cause, error)
    assert said(starter, "echo", "on") == "on\n"


def test_cpus_that_cannot_be_had_are_told(starter: Starter) -> None:
    with Joiner(CPUSet.of(4095)) as joiner, pytest.raises(StartError, match="join: Invalid argument"):
        when_running(starter.begin(NewProcess(["true"], ENVIRONMENT), (0, 1, 2), joiner))


def test_a_forker_that_was_killed_is_replaced() -> None:
    starter = Starter()
    said(starter, "true")
    for number in (signal.SIGKILL, signal.SIGTERM):
        (child,) = forkers()
        os.kill(child, number)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert said(starter, "echo", "again") == "again\n"
    starter.close()
    assert forkers() == []


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_forker_that_cannot_go_on_is_replaced_within_moments(number: signal.Signals) -> None:
    starter = Starter()
    said(starter, "true")
    (child,) = forkers()
    os.kill(child, number)
    start = time.monotonic()
    assert said(starter, "echo", "again") == "again\n"
    assert time.monotonic() - start < 8
    starter.close()
    assert forkers() == []


def changed_forker(at: Path, monkeypatch: pytest.MonkeyPatch, after_fork: str) -> None:
    """Have a forker started that does something else as soon as it has forked."""
    program, text = at / "forker.py", Path(forker.__file__).read_text()
    assert "pid = sibling()" in text
    program.write_text(text.replace("pid = sibling()", f"pid = sibling(); {after_fork}"))
    monkeypatch.setattr(forker, "__file__", str(program))


def test_a_process_that_was_given_up_on_a_starved_machine_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, mark, starter, before = tmp_path / "gate", tmp_path / "mark", Starter(), zombies()
    os.mkfifo(gate)
    changed_forker(tmp_path, monkeypatch, f"open({str(gate)!r}).read()")  # it gets no CPU
    monkeypatch.setattr("pinfold.node.starting.starter._PATIENCE", 0.5)
    with pytest.raises(StartError, match="start: the program that starts processes does not answer"):
        said(starter, "touch", str(mark))
    with suppress(OSError):  # ENXIO: no process waits there any more
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    wait_until(lambda: not forkers())
    assert not mark.exists()
    monkeypatch.undo()
    assert said(starter, "echo", "on") == "on\n"
    assert zombies() <= before
    starter.close()


def test_a_forker_that_always_needs_longer_than_usual_to_begin_is_waited_for_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that has hardly any CPU time left: each attempt begins with a new forker."""
    program, starter, answers = tmp_path / "forker.py", Starter(), []
    program.write_text(Path(forker.__file__).read_text().replace("import json\n", "import json, time; time.sleep(1)\n"))
    monkeypatch.setattr(forker, "__file__", str(program))
    monkeypatch.setattr("pinfold.node.starting.starter._PATIENCE", 0.4)
    for _ in range(5):
        with suppress(StartError):
            answers.append(said(starter, "echo", "on"))
            break
    assert answers == ["on\n"]
    starter.close()


def test_a_start_that_is_waited_for_does_not_keep_the_loop_waiting_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, mark, starter = tmp_path / "gate", tmp_path / "mark", Starter()
    os.mkfifo(gate)
    program, text = tmp_path / "forker.py", Path(forker.__file__).read_text()
    program.write_text(text.replace('step = "command"', f"open({str(gate)!r}).read()"))  # it gets no CPU time
    monkeypatch.setattr(forker, "__file__", str(program))

    async def start_and_cancel() -> int:
        with Joiner(MINE) as joiner:
            begun = await starter.begin(NewProcess(["touch", str(mark)], ENVIRONMENT), (0, 1, 2), joiner)
        waiting = asyncio.create_task(begun.runs())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return begun.pid

    pid = asyncio.run(start_and_cancel())
    wait_until(lambda: PROC.process(pid) is None)
    monkeypatch.undo()
    starter.close()
    assert pid not in zombies()
    assert not mark.exists()


async def open_gate(gate: Path) -> None:
    """Let the process go on that reads from a pipe, as soon as it does."""
    while True:
        with suppress(OSError):  # ENXIO: no process reads there yet
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            return
        await asyncio.sleep(0.01)


def test_the_loop_goes_on_while_a_new_forker_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, starter = tmp_path / "gate", Starter()
    os.mkfifo(gate)
    changed_forker(tmp_path, monkeypatch, "")
    program = Path(forker.__file__)
    program.write_text(program.read_text().replace("daemon = socket", f"open({str(gate)!r}).read(); daemon = socket"))

    async def start() -> int:
        with Joiner(MINE) as joiner:
            request = NewProcess(["true"], ENVIRONMENT)
            begun, _ = await asyncio.gather(starter.begin(request, (0, 1, 2), joiner), open_gate(gate))
        await begun.runs()
        return begun.pid

    pid = asyncio.run(start())
    assert os.waitpid(pid, 0) == (pid, 0)
    starter.close()


@pytest.mark.parametrize("size", [10, 10_000_000], ids=["sent", "half sent"])
def test_a_start_that_is_cancelled_before_the_forker_answers_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    gate, mark, starter, before, half = tmp_path / "gate", tmp_path / "mark", Starter(), zombies(), 1_000_000
    monkeypatch.setattr("pinfold.node.starting.starter._LESS", 0.1)
    os.mkfifo(gate)
    changed_forker(tmp_path, monkeypatch, "")
    program = Path(forker.__file__)
    program.write_text(program.read_text().replace("daemon = socket", f"open({str(gate)!r}).read(); daemon = socket"))

    async def start_and_cancel() -> None:
        with Joiner(MINE) as joiner:
            request = NewProcess(["touch", str(mark)], ENVIRONMENT | {"LARGE": "x" * size})
            starting = asyncio.create_task(starter.begin(request, (0, 1, 2), joiner))
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

    asyncio.run(start_and_cancel())
    if size > half:
        wait_until(lambda: not forkers())  # it has half of a request
    else:
        asyncio.run(asyncio.wait_for(open_gate(gate), 20))
    monkeypatch.undo()
    assert said(starter, "echo", "on") == "on\n"
    monkeypatch.setattr("pinfold.node.starting.starter._GLANCE", 20)  # on a busy machine it needs time to end
    starter.close()
    assert not mark.exists()
    assert zombies() <= before


def test_a_start_that_is_cancelled_costs_no_other_forker(starter: Starter) -> None:
    """Where no process can be started any more, there would be none."""
    if said(starter, "true") or not forkers():
        return  # one that becomes its command is replaced anyway
    before = forkers()

    async def start_and_cancel() -> None:
        with Joiner(MINE) as joiner:
            starting = asyncio.create_task(starter.begin(NewProcess(["sleep", "9"], ENVIRONMENT), (0, 1, 2), joiner))
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

    asyncio.run(start_and_cancel())
    assert forkers() == before


def test_a_process_that_cannot_be_taken_in_never_runs(tmp_path: Path, starter: Starter) -> None:
    mark, before = tmp_path / "mark", zombies()

    def refuse(_pid: int) -> None:
        raise GroupError("no longer here")

    with Joiner(MINE, joined=refuse) as joiner, pytest.raises(GroupError, match="no longer here"):
        when_running(starter.begin(NewProcess(["touch", str(mark)], ENVIRONMENT), (0, 1, 2), joiner))
    assert said(starter, "echo", "on") == "on\n"
    starter.close()
    assert not mark.exists()
    assert zombies() <= before


def test_a_process_whose_forker_was_killed_at_once_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_forker(tmp_path, monkeypatch, "pid > 0 and os.kill(os.getpid(), signal.SIGKILL)")
    starter = Starter()
    assert said(starter, "echo", "known") == "known\n"
    starter.close()


def test_a_forker_that_was_killed_before_it_forked_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, once = tmp_path / "forker.py", tmp_path / "once"
    killed = f"os.path.exists({str(once)!r}) or (open({str(once)!r}, 'w'), os.kill(os.getpid(), signal.SIGKILL))"
    program.write_text(Path(forker.__file__).read_text().replace("pid = sibling()", f"{killed}; pid = sibling()"))
    monkeypatch.setattr(forker, "__file__", str(program))
    starter = Starter()
    assert said(starter, "echo", "again") == "again\n"
    assert once.exists()
    starter.close()


def test_files_with_large_numbers_can_be_waited_for() -> None:
    starter = Starter()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert said(starter, "echo", "x") == "x\n"
    finally:
        for file in held:
            os.close(file)
        starter.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def others() -> None:
    """Leave out the forkers that other tests have left in this process."""
    OTHERS.clear()
    OTHERS.extend(forkers())


def forkers() -> list[int]:
    """Return the forkers that this test has started."""
    pids = [pid for pid in children(os.getpid()) if pid not in OTHERS]
    return [pid for pid in pids if any(part.endswith("forker.py") for part in command_of(pid))]


def zombies() -> set[int]:
    """Return the children of ours that have ended and were not waited for."""
    pids = children(os.getpid())
    return {pid for pid in pids if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"}


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_forker_ends_with_its_caller() -> None:
    program = f"""
import asyncio, os, sys
sys.path.insert(0, {str(SOURCES.parent)!r})
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.starting.starter import NewProcess, Starter
starter = Starter()
with Joiner(CPUSet.from_cpus(os.sched_getaffinity(0))) as joiner:
    asyncio.run(starter.begin(NewProcess(["true"], {{"PATH": os.environ["PATH"]}}), (0, 1, 2), joiner))
print(starter._forker.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    pidfd = None
    try:
        pidfd = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return
    assert select.select([pidfd], [], [], 20)[0]
    os.close(pidfd)


def test_threads_that_hold_locks_do_not_keep_a_process_from_starting(starter: Starter) -> None:
    """Beside a fork of the daemon itself they could: what they hold is never let go in the child."""
    stop = threading.Event()

    def print_without_end() -> None:
        with Path(os.devnull).open("w", encoding="ascii") as file:
            while not stop.is_set():
                file.write("x")
                file.flush()

    threads = [threading.Thread(target=print_without_end) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert [said(starter, "echo", "x") for _ in range(10)] == ["x\n"] * 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_no_program_of_ours_runs_code_between_fork_and_exec() -> None:
    assert [str(path) for path in SOURCES.rglob("*.py") if "preexec_fn" in path.read_text()] == []


def test_what_a_killed_daemon_has_asked_for_is_not_started_after_it(tmp_path: Path) -> None:
    """The next daemon starts it; a job that is never to run again would run twice."""
    daemon = f"""
import json, os, signal, socket, sys
from pinfold.node.starting import forker
from pinfold.node.starting.starter import NewProcess, Starter
starter = Starter()
channel, process = starter._running()
os.kill(process.pid, signal.SIGSTOP)
print(process.pid, flush=True)
request = NewProcess(["touch", {str(tmp_path / "mark")!r}], dict(os.environ))
text = json.dumps({{**request._asdict(), "cpus": [0], "strict": False}}).encode()
socket.send_fds(channel, [forker.LENGTH.pack(len(text))], [os.open("/dev/null", os.O_RDWR)] * 4)
channel.sendall(text)
os.kill(os.getpid(), signal.SIGKILL)
"""
    log = tmp_path / "log"
    with log.open("w") as errors:
        killed = subprocess.run([sys.executable, "-c", daemon], stdout=subprocess.PIPE, stderr=errors, check=False)
    pid = int(killed.stdout)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    end = time.monotonic() + 20
    while PROC.process(pid) is not None:
        assert time.monotonic() < end, "the forker goes on"
        time.sleep(0.01)
    assert not (tmp_path / "mark").exists()
    assert log.read_text() == ""
