"""`pinfold serve`: the daemon; here its parts are put together."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.cli import machine, settings
from pinfold.core.layout import summary
from pinfold.core.policies.options import POD_LEVEL
from pinfold.core.policies.static import StaticPolicy
from pinfold.errors import ConfigError, PinfoldError
from pinfold.manager.host import Host
from pinfold.manager.kept import KeptWorkloads
from pinfold.manager.loop import Loop
from pinfold.manager.manager import Manager, Note
from pinfold.manager.notes import Notes
from pinfold.manager.store import StateStore
from pinfold.manager.workloads import Common
from pinfold.node.grouperrors import GroupsHeldError
from pinfold.node.groups import choose
from pinfold.runtimes.processes import ProcessesRuntime
from pinfold.runtimes.simulated import SimulatedRuntime
from pinfold.serve.control import Control
from pinfold.serve.http import Server

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pinfold.cli.settings import Settings
    from pinfold.core.admission import Admitter
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import PodUID
    from pinfold.core.topology import Topology
    from pinfold.runtimes.base import Launcher


class AlreadyRunning(PinfoldError):  # noqa: N818 - the fact
    """Another daemon has this state directory or socket."""

    exit_code = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold serve`."""
    settings.add_arguments(parser)
    parser.add_argument("--group-name", default="pinfold", metavar="NAME", help="the cgroup subtree (default: pinfold)")
    parser.add_argument(
        "--end-workloads", action="store_true", help="when stopped, end all workloads and leave nothing behind"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    topology = machine.read_machine(args)
    chosen = settings.read_settings(args, topology, environment=os.environ, uid=os.geteuid())
    with _Owned(chosen):
        try:
            asyncio.run(_serve(args, chosen, topology))
        except GroupsHeldError as error:
            raise AlreadyRunning(str(error)) from error
    return 0


class _Owned:
    """The state directory and the socket, held by one daemon at a time."""

    def __init__(self, chosen: Settings) -> None:
        self._directory = chosen.state_dir
        self._lock = -1

    def __enter__(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(self._lock, 20).decode("ascii", "replace").strip() or "unknown"
            raise AlreadyRunning(f"a daemon (process {pid}) has the state directory {self._directory}") from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


async def _serve(args: argparse.Namespace, chosen: Settings, topology: Topology) -> None:
    notes = Notes(sys.stderr, as_json=chosen.log_format == "json")
    for warning in chosen.warnings:
        notes.tell(Note("warning", {"text": warning}))
    admitter = chosen.config.build(topology)
    runtime = _runtime(args, chosen)
    listener = _listen(chosen.socket)
    try:
        runtime.hold()
        manager = _manager(chosen, admitter, runtime, topology, notes)
        host = _host(chosen, manager, runtime, notes)
        loop = Loop(manager, host, notes, chosen.reconcile_period)
        control = Control(loop, host, topology, _about(chosen, runtime, topology))
        server = await Server(control.handle, frozenset({0, os.geteuid()})).start(listener)
    except BaseException:
        chosen.socket.unlink(missing_ok=True)
        raise
    try:
        await loop.run(lambda: _reload(args, topology, loop), lambda: _say_ready(chosen, manager, runtime, notes))
    finally:
        # asyncio gives signals their default meaning back when it ends, and that is death.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        server.close()
        if args.end_workloads:
            await host.end_all()
            runtime.clean_up()
        with suppress(OSError):
            chosen.socket.unlink()
        notes.tell(Note("stopped", {"workloads": len(host.workloads)}))


def _manager(chosen: Settings, admitter: Admitter, runtime: Launcher, topology: Topology, notes: Notes) -> Manager:
    """Return the Manager with what an earlier daemon has left: its State, and whoever runs."""
    running: dict[PodUID, dict[str, CPUSet]] = {}
    for ref, cpus in runtime.find().items():
        running.setdefault(ref.pod, {})[ref.name] = cpus
    store = _store(chosen, admitter)
    loaded = store.load(running)
    if loaded.problem is not None:
        notes.tell(Note("state-not-usable", {"why": loaded.problem, "aside": loaded.aside}))
    for ref, cpus in loaded.lost.items():
        notes.tell(Note("not-kept", {"pod": ref.pod, "container": ref.name, "cpus": str(cpus)}))
    manager = Manager(admitter, runtime, store, loaded.state, notes.tell, topology.online)
    runtime.prepare(manager.wanted.shared)
    manager.start()
    return manager


def _host(chosen: Settings, manager: Manager, runtime: Launcher, notes: Notes) -> Host:
    common = Common(chosen.state_dir / "logs", chosen.cfs_quota, chosen.cfs_period)
    host = Host(manager, runtime, notes, KeptWorkloads(chosen.state_dir), common)
    host.resume()
    return host


def _about(chosen: Settings, runtime: Launcher, topology: Topology) -> dict[str, object]:
    return {
        "machine": summary(topology),
        "runtime": runtime.name,
        "groups": runtime.kind,
        "weaker": list(runtime.weaker),
        "state_dir": str(chosen.state_dir),
        "socket": str(chosen.socket),
        "pid": os.getpid(),
    }


def _say_ready(chosen: Settings, manager: Manager, runtime: Launcher, notes: Notes) -> None:
    for weaker in runtime.weaker:
        notes.tell(Note("weaker", {"promise": weaker}))
    policy = manager.admitter.policy
    reserved = f", reserved {policy.reserved}" if isinstance(policy, StaticPolicy) else ""
    shared = f"shared CPUs {manager.wanted.shared}{reserved}"
    print(f"pinfold: ready; policy {policy.name}, {runtime.kind}, {shared}; socket {chosen.socket}", flush=True)


def _store(chosen: Settings, admitter: Admitter) -> StateStore:
    return StateStore(chosen.state_dir, admitter.policy, pod_level=POD_LEVEL.is_on(chosen.config.gates))


def _reload(args: argparse.Namespace, topology: Topology, loop: Loop) -> None:
    """Read the configuration again and go on under it; if it is wrong, or cannot be applied, under the old one."""
    try:
        chosen = settings.read_settings(args, topology, environment=os.environ, uid=os.geteuid())
        admitter = chosen.config.build(topology)
        loop.manager.reconfigure(admitter, _store(chosen, admitter), loop.node.pods)
        loop.period = chosen.reconcile_period
    except (PinfoldError, OSError) as error:
        loop.notes.tell(Note("reload-refused", {"why": str(error)}))


def _runtime(args: argparse.Namespace, chosen: Settings) -> Launcher:
    if chosen.runtime == "simulated":
        return SimulatedRuntime()
    return ProcessesRuntime(choose(None if chosen.groups == "auto" else chosen.groups, name=args.group_name))


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*; one that a dead daemon has left behind is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.path.lexists(path) and not path.is_socket():
        raise ConfigError(f"--socket: {path} is there already, and is no socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path.is_socket():
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                path.unlink()
        else:
            raise AlreadyRunning(f"a daemon answers at {path}")
        finally:
            probe.close()
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen()
    return listener
