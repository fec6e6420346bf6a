"""`pinfold serve`: the daemon; here its parts are put together."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

import pinfold
from pinfold.cli import machine
from pinfold.cli.reload import Reloader, rules
from pinfold.core.events.about import Audience
from pinfold.core.events.daemon import Failed, Serving, Stopped, Warned, Weaker
from pinfold.core.events.running import NotEnded
from pinfold.daemon.listeners import bind_unix
from pinfold.daemon.parts import Basis, Parts, host_parts
from pinfold.daemon.views import Opened, keep_record, links, open_views
from pinfold.errors import PinfoldError
from pinfold.manager.loop import Loop
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.log import Descriptor, Log
from pinfold.manager.views import Viewer
from pinfold.node.processgroups.errors import GroupsHeldError
from pinfold.serve.api import Views
from pinfold.serve.control import Control
from pinfold.serve.http.server import HTTPServer
from pinfold.settings import settings
from pinfold.settings.table import RuntimeName

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology
    from pinfold.settings.settings import Settings


_PATIENCE: Final = 4.0  # a runtime waits 5 s for its plugin to register
_PAUSE: Final = 0.05


class AlreadyRunning(PinfoldError):  # noqa: N818 - the fact
    """Another daemon has this state directory or socket."""

    exit_code = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold serve`."""
    settings.add_arguments(parser)


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
        # A container runtime that restarts starts its next plugin before the last one has ended, and does not start
        # itself if that gives up.
        until = time.monotonic() + (_PATIENCE if "NRI_PLUGIN_SOCKET" in os.environ else 0.0)
        while not self._locked():
            if time.monotonic() >= until:
                pid = os.read(self._lock, 20).decode("ascii", "replace").strip() or "unknown"
                raise AlreadyRunning(f"a daemon (process {pid}) has the state directory {self._directory}")
            time.sleep(_PAUSE)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


async def _serve(args: argparse.Namespace, chosen: Settings, topology: Topology) -> None:
    bus = Bus(time.time)
    bus.keep(Log(Descriptor(sys.stderr.fileno()), bus.tell, as_json=chosen.log_format == "json").take, Audience.LOG)
    admitter = chosen.config.build(topology)
    bound = bind_unix(chosen.socket, "--socket")
    record = keep_record(chosen, admitter, bus)
    for warning in chosen.warnings:
        bus.tell(Warned(warning))
    basis = Basis(chosen, topology, admitter, bus)
    report = _reporter(bus)
    try:
        parts = _parts(basis)
        loop = Loop(parts.node, parts.sources, bus, chosen.reconcile_period)
        about = _about(basis, parts)
        viewer = Viewer(parts.node, about, links(chosen), record.drops)
        views = Views(viewer, bus, record.archive)
        bus.keep(views.take, Audience.JOURNAL)
        if parts.supervisor is not None:  # otherwise when the runtime has told whose CPUs they are
            parts.node.manager.tell_state()
        opened = await open_views(basis, views, record, report)
        control = Control(parts.supervisor, views)
        server = HTTPServer(control.handle, frozenset({0, os.geteuid()}), report=report)
        await server.start(bound.listener)
    except BaseException:
        bound.remove()
        raise
    syncing = asyncio.create_task(record.sync(bus))
    try:
        await loop.run(Reloader(args, loop, parts, bus, about), lambda: _say_ready(basis, parts, opened))
    finally:
        # asyncio gives signals their default meaning back when it ends, and that is death.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        await server.close()
        await opened.close()
        await _leave(basis, parts)
        bound.remove()
        bus.tell(Stopped(len(parts.node.roster.known_pods())))
        bus.flush()
        syncing.cancel()
        record.close()


async def _leave(basis: Basis, parts: Parts) -> None:
    """Let processes go on without us; or end them and leave nothing behind, if the user wants that."""
    if parts.supervisor is None:
        return
    await parts.supervisor.leave()
    if basis.chosen.end_workloads:
        await parts.supervisor.end_all()
        try:
            parts.clean_up()
        except PinfoldError as error:
            basis.bus.tell(NotEnded(why=str(error)))


def _reporter(bus: Bus) -> Callable[[str, Exception], None]:
    return lambda where, error: bus.tell(Failed(where=where, why=f"{type(error).__name__}: {error}"))


def _parts(basis: Basis) -> Parts:
    if basis.chosen.runtime in {RuntimeName.NRI, RuntimeName.CRI}:
        from pinfold.daemon.pods import kube_parts  # noqa: PLC0415 - only a node of Kubernetes needs it

        return kube_parts(basis)
    return host_parts(basis)


def _about(basis: Basis, parts: Parts) -> dict[str, object]:
    applier = parts.node.manager.applier
    return {
        "runtime": applier.name,
        "groups": applier.kind,
        "weaker": list(applier.weaker),
        "read_only": parts.node.read_only,
        "state_dir": str(basis.chosen.state_dir),
        "socket": str(basis.chosen.socket),
        "pid": os.getpid(),
        **rules(basis.chosen, parts.node.manager),
    }


def _say_ready(basis: Basis, parts: Parts, opened: Opened) -> None:
    manager = parts.node.manager
    for weaker in manager.applier.weaker:
        basis.bus.tell(Weaker(weaker))
    policy = manager.rules.admitter.policy
    reserved = f", reserved {policy.reserved}" if policy.reserved else ""
    shared = f"shared CPUs {manager.wanted.shared}{reserved}"
    basis.bus.tell(Serving(pinfold.__version__, policy.name, manager.applier.name, os.getpid()))
    # What is there now stays: no request waits while it is searched for garbage again and again.
    gc.collect()
    gc.freeze()
    page = f"; page http://{opened.pages}/" if opened.pages is not None else ""
    socket_ = f"socket {basis.chosen.socket}"
    print(f"pinfold: ready; policy {policy.name}, {manager.applier.kind}, {shared}; {socket_}{page}", flush=True)
