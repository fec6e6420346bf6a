"""A real daemon with a directory, a socket and a cgroup subtree of its own.

Every process that is started there has a mark in its environment; at the end it is found and ended by that.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pinfold.cli.asking.client import Client
from pinfold.cli.main import main
from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.processgroups.groups import choose
from tests.needs import IN_GUEST, needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from pinfold.core.state import State
    from tests.e2e.nursery import Nursery

Rows = list[dict[str, Any]]  # Any: JSON of the daemon

CGROUPS: Final = Path("/sys/fs/cgroup")
ONLINE: Final = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text())
RESERVED: Final = CPUSet.of(ONLINE.lowest)
SPARE: Final = len(ONLINE - RESERVED)
"""How many CPUs can be exclusive."""
PATIENCE: Final = 20.0 if not IN_GUEST else 200.0
"""Seconds that anything may take on a machine that is busy with other things; reached only by a failure."""
_BETWEEN: Final = 0.01 if not IN_GUEST else 0.1
"""Seconds between two looks; where every instruction is emulated, looking takes CPU time from what is waited for."""
_MARK: Final = "PINFOLD_E2E"


@cache
def best_kind() -> str:
    """Return the strongest kind of groups that works here, by the name users write."""
    try:
        return choose(name=f"pinfold-e2e-{uuid.uuid4().hex[:8]}").kind.replace(" ", "-")
    except KindUnavailableError:
        return "affinity"


needs_cgroups = needs("permission to make cgroups", met=best_kind() != "affinity")
needs_two_cpus = needs(
    "two CPUs, and all of the machine's",
    met=CPUSet.from_cpus(os.sched_getaffinity(0)) == ONLINE and SPARE >= 1,
)


class Place:
    """Where one daemon and everything it starts live; all of it goes with `remove`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mark = uuid.uuid4().hex[:12]
        self.name = f"pinfold-e2e-{self.mark}"
        # Short, because a socket's path has at most 107 bytes; reachable for other users.
        self.directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
        self.directory.chmod(0o755)
        roots = {"cgroup-v1": ("cpuset", "cpu"), "cgroup-v2": (".",)}.get(kind, ())
        self._tops = {root: CGROUPS / root / self.name for root in roots if (CGROUPS / root / "cgroup.procs").is_file()}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of everything that runs here."""
        left_out = ("PINFOLD_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        path = os.pathsep.join(place for place in kept["PATH"].split(os.pathsep) if os.access(place, os.X_OK))
        return {**kept, "PATH": path, _MARK: self.mark}

    def cpuset(self, group: str, file: str = "cpuset.cpus") -> Path:
        """Return a file of a group of ours in the hierarchy that has the cpuset controller."""
        return self._top("cpuset") / group / file

    def groups(self) -> set[str]:
        """Return all groups that the daemon has made, without the name they are all below."""
        return {
            str(path.relative_to(top))
            for top in self._tops.values()
            for path in (top, *top.rglob("*"))
            if path.is_dir()
        }

    def processes(self) -> list[int]:
        """Return the processes that have been started here, except the daemon and what talks to it."""
        return [pid for pid in marked(self.mark) if not _is_pinfold(pid)]

    def remove(self) -> None:
        """End every process and remove every group and file."""

        def none_left() -> bool:
            files = [file for top in self._tops.values() for file in top.rglob("cgroup.procs")]
            left = {int(pid) for file in files for pid in _text(file).split()} | set(marked(self.mark))
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        wait_for(none_left, "every process of the test is gone")
        for top in self._tops.values():
            for group in sorted((path for path in (top, *top.rglob("*")) if path.is_dir()), reverse=True):
                group.rmdir()

        def is_empty() -> bool:
            shutil.rmtree(self.directory, ignore_errors=True)  # a program that ends can remove its own files meanwhile
            return not self.directory.exists()

        wait_for(is_empty, "the directory of the test is gone")

    def _top(self, controller: str) -> Path:
        return self._tops.get(controller) or self._tops["."]


class User(NamedTuple):
    """Who runs the program, and with which interpreter; without a uid it is the user who runs the tests."""

    python: str
    uid: int | None = None
    path: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What the interpreter needs to find the program, and to start fast from the second time on."""
        found = {"PYTHONPATH": self.path} if self.path else {}
        return found if self.uid is None else {**found, "PYTHONPYCACHEPREFIX": str(_compiled(self))}

    @property
    def popen(self) -> dict[str, Any]:
        """How a process of this user is started."""
        return {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}

    def own(self, directory: Path) -> None:
        """Give this user a directory."""
        if self.uid is not None:
            os.chown(directory, self.uid, self.uid)


@cache
def _compiled(user: User) -> Path:
    """Return a directory for the modules that another user compiles, who may not write beside the sources."""
    directory = Path(tempfile.mkdtemp(prefix="pinfold-pycache-"))
    user.own(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class Daemon:
    """`pinfold serve` as a process, and clients of it; it can be killed in any way and started again."""

    def __init__(self, *options: str, kind: str | None = None, user: User | None = None) -> None:
        self.online = ONLINE
        self.place = Place(kind or best_kind())
        self.options = ["--reserved-cpus", str(RESERVED), *options]
        self.state_dir = self.place.directory / "state"
        self.socket = self.place.directory / "s.sock"
        self.where = ["--state-dir", str(self.state_dir), "--socket", str(self.socket), "--listen", "127.0.0.1:0"]
        self.groups = ["--groups", self.place.kind, "--group-name", self.place.name]
        self.log = self.place.directory / "log"
        self.user = user or User(sys.executable)
        self.user.own(self.place.directory)
        self.command = [self.user.python, "-m", "pinfold"]
        self.environment = {
            **self.place.environment,
            **self.user.environment,
            "PINFOLD_SOCKET": str(self.socket),
        }
        self.ready = ""
        self.process: subprocess.Popen[str] | None = None
        self.nursery: Nursery | None = None
        """What starts it, if it does not start on its own."""
        self.clients: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        try:
            self.kill()
        finally:
            said = self.said()
            self.place.remove()
            for process in self.clients:
                process.communicate()
        if kind is None:
            assert_no_traceback(said)

    # -- the daemon

    @property
    def arguments(self) -> list[str]:
        """The command line of the daemon."""
        return [*self.command, "serve", *self.where, *self.groups, *self.options]

    def start(self, *options: str, stderr: int | None = None) -> Self:
        """Start it, and return when it says that it is ready; it logs into a file, or into *stderr*."""
        self.launch(*options, stderr=stderr)
        self.await_ready()
        return self

    def launch(self, *options: str, stderr: int | None = None) -> None:
        """Start it, and return at once."""
        command = [*self.arguments, *options]
        with self.log.open("a") as log:
            if self.nursery is not None:
                self.process = self.nursery.start(command, self.environment, log.fileno())
                return
            self.process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                text=True,
                start_new_session=True,
                **self.user.popen,
            )

    def await_ready(self) -> None:
        """Return when it says that it is ready."""
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        self.ready = self.process.stdout.readline() if readable else ""
        assert self.ready.startswith("pinfold: ready"), f"it does not start: {self.ready}{self.said()}"

    def try_to_start(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Start one that is expected to give up by itself, and return what it said."""
        return _finished([*self.arguments, *options], self.environment, stdin=subprocess.DEVNULL, **self.user.popen)

    @property
    def pid(self) -> int:
        """The process of the daemon."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int | None:
        """End it by a signal, and return what it exits with."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return process.returncode

    def restart(self, *options: str, number: signal.Signals = signal.SIGKILL) -> Self:
        """End it and start it again."""
        self.kill(number)
        return self.start(*options)

    def said(self) -> str:
        """Return its log so far."""
        return _text(self.log)

    # -- clients

    @property
    def client(self) -> Client:
        """A client in this process."""
        return Client(self.socket, slowest=2 * PATIENCE)

    def verb(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a verb of the command line to its end, with *text* as its standard input."""
        return _finished([*self.command, *arguments], self.environment, input=text, **self.user.popen)

    def say(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a verb that does not go on, as `verb` does, but in this process, which is much faster."""
        out, error = io.StringIO(), io.StringIO()
        before, stdin = dict(os.environ), sys.stdin
        os.environ["PINFOLD_SOCKET"], sys.stdin = str(self.socket), io.TextIOWrapper(io.BytesIO(text.encode()))
        try:
            with redirect_stdout(out), redirect_stderr(error):
                code = main(arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)
            sys.stdin = stdin
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - of Popen
        """Begin a verb of the command line that goes on; it ends with the test."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process: subprocess.Popen[str] = subprocess.Popen(
            [*self.command, *arguments],
            **{"env": self.environment, "text": True, **pipes, **self.user.popen, **options},
        )
        self.clients.append(process)
        return process

    def run(self, name: str, *command: str, options: Sequence[str] = ("--cpus", "1")) -> subprocess.Popen[str]:
        """Begin `pinfold run` under a name, and return when the command runs."""
        process = self.begin("run", "--name", name, *options, "--", *command)
        wait_for(lambda: process.poll() is not None or self.find(name, state="running"), f"{name} runs")
        assert process.poll() is None, process.communicate()
        return process

    def apply(self, *pods: str) -> Rows:
        """Send pods, and return what became of each."""
        rows: Rows = self.client.post("/v1/pods", {"files": [{"text": "\n---\n".join(pods), "source": "test"}]})["pods"]
        return rows

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self.client.delete(f"/v1/pods/default/{name}")

    def containers(self) -> Rows:
        """Return all containers, without what is measured anew for each answer."""
        return [{name: row[name] for name in row if name != "exclusivity"} for row in self.measured()]

    def measured(self) -> Rows:
        """Return all containers as they are told."""
        rows: Rows = self.client.get("/v1/containers")
        return rows

    def find(self, pod: str, name: str | None = None, state: str | None = None) -> dict[str, Any] | None:
        """Return a container, if there is one; the first of its pod, if it is not named."""
        rows = (row for row in self.containers() if row["pod"] == pod and name in {None, row["container"]})
        return next((row for row in rows if state in {None, row["state"]}), None)

    def running(self, pod: str, name: str | None = None, within: float = PATIENCE) -> int:
        """Wait until a container runs, and return its process."""
        row = wait_for(lambda: self.find(pod, name, "running"), f"{pod} runs", within)
        return int(row["pid"])

    def pools(self) -> dict[str, CPUSet]:
        """Return the CPUs of each pool."""
        return {name: CPUSet.parse(text) for name, text in self.client.get("/v1/node")["pools"].items()}

    def events(self, *what: str) -> Rows:
        """Return what happened, all or of these kinds."""
        return [row for row in self.client.get("/v1/events") if not what or row["what"] in what]

    def flush(self) -> None:
        """Have the daemon write what happened so far to its journal: clients get their answers before it does."""
        self.client.get("/v1/history?limit=1")

    def written(self, pod: str, name: str = "app") -> list[str]:
        """Return the lines that a container of a pod has written."""
        return _text(self.state_dir / "logs" / f"default_{pod}_{name}.log").splitlines()

    # -- what must be so at any time

    def state(self) -> State:
        """Return the State on disk."""
        return parse_checkpoint((self.state_dir / "cpu_manager_state").read_text(), policy="static")

    def check(self) -> None:
        """See that the State is sound, on disk and as told, and that the kernel agrees."""
        state, pools = self.state(), self.pools()
        assert state.check(self.online) == []
        assert (pools["shared"], pools["exclusive"]) == (state.shared, state.exclusive)
        for row in self.containers():
            if row["state"] == "running" and (real := allowed(row["pid"])):
                assert real == {row["cpus"]}, row
        if self.place.kind.startswith("cgroup"):
            assert CPUSet.parse(self.place.cpuset("shared").read_text()) == state.shared

    def idle(self, within: float = PATIENCE) -> None:
        """Wait until nothing runs and all CPUs are shared again."""
        wait_for(
            lambda: not self.containers() and self.pools()["shared"] == ONLINE, "all CPUs are shared again", within
        )
        wait_for(lambda: not self.place.processes(), "no process is left", within)
        self.check()
        assert self.place.groups() <= {".", "shared", "exclusive"}


class Hosts:
    """One daemon for many tests; a new one when a test has left it in another state than it found it in."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._host: Daemon | None = None
        self._said = 0

    def take(self) -> Daemon:
        """Return a daemon on which nothing runs."""
        if self._host is None:
            self._host = Daemon(*self._options)
            try:
                self._host.start()
            except BaseException:
                self.close()
                raise
        self._said = len(self._host.said())
        return self._host

    def give_back(self) -> None:
        """Keep the daemon for the next test if nothing is left on it; fail if it has shown a traceback."""
        host = self._host
        assert host is not None
        said = host.said()[self._said :]
        if _is_idle(host):
            for process in host.clients:
                process.communicate()
            host.clients.clear()
        else:
            self.close()
        assert_no_traceback(said)

    def close(self) -> None:
        """End the daemon, if there is one."""
        host, self._host = self._host, None
        if host is not None:
            host.__exit__(AssertionError, None, None)


def _is_idle(host: Daemon) -> bool:
    def idle() -> bool:
        nothing = not host.containers() and not host.place.processes() and host.pools()["shared"] == ONLINE
        return nothing and host.place.groups() <= {".", "shared", "exclusive"}

    try:
        wait_for(lambda: not host.is_alive or idle(), "the daemon is idle", within=1)
    except (AssertionError, PinfoldError):
        return False
    return host.is_alive and all(process.poll() is not None for process in host.clients)


@contextmanager
def process_of(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - of Popen
    """Run a process of the host that pinfold knows nothing of; it ends with the block."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(found: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:  # noqa: ANN401 - any value
    """Return what *found* returns as soon as it is something; fail if it takes longer than it may."""
    end = time.monotonic() + within
    while not (result := found()):
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(_BETWEEN)
    return result


def assert_no_traceback(said: str) -> None:
    """Fail if a daemon or client shows where it was instead of saying what is wrong."""
    assert "Traceback" not in said, said
    assert "never retrieved" not in said, said


def allowed(pid: int) -> set[str]:
    """Return the different CPU lists that the kernel allows the threads of a process; none if it is gone."""
    found = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            lines = _text(thread / "status").splitlines()
            found |= {line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")}
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    state = _bytes(pid, "stat").rpartition(b")")[2].split()[:1]
    return bool(state) and state[0] not in {b"Z", b"X"}


def marked(mark: str) -> list[int]:
    """Return the living processes with this mark in their environment."""
    wanted = f"{_MARK}={mark}".encode()
    return [pid for pid in _pids() if wanted in _bytes(pid, "environ").split(b"\0") and is_alive(pid)]


def pod(
    name: str, *containers: str, restart: str = "Always", init: Sequence[str] = (), uid: str = "", spec: str = ""
) -> str:
    """Return a pod as YAML; without containers it has one that sleeps."""
    inits = f"\n  initContainers: [{', '.join(init)}]" if init else ""
    own = f", uid: {uid}" if uid else ""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{own}}}\nspec:\n  restartPolicy: {restart}{inits}\n"
        f"  containers: [{', '.join(containers) or container()}]\n{spec}"
    )


def container(
    command: str = "exec sleep 1000", *, name: str = "app", cpus: int = 0, resources: str = "", more: str = ""
) -> str:
    """Return a container as YAML that runs a shell command; with *cpus* on CPUs of its own, in a pod of such."""
    amounts = f'{{cpu: "{cpus}", memory: 1Mi}}'
    own = f"{{requests: {amounts}, limits: {amounts}}}" if cpus else resources
    quoted = command.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{name: {name}, command: [sh, -c, "{quoted}"]{own and f", resources: {own}"}{more and f", {more}"}}}'


def _finished(
    command: Sequence[str],
    environment: dict[str, str],
    **options: Any,  # noqa: ANN401 - of subprocess.run
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


def _is_pinfold(pid: int) -> bool:
    """Whether a process is our own program, as daemon or client."""
    words = _bytes(pid, "cmdline").split(b"\0")
    return b"-m" in words and b"pinfold" in words


def _pids() -> Iterator[int]:
    yield from (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _bytes(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
