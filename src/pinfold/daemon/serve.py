"""The daemon: its parts put together, served, and ended in order."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import socket
import sys
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import pinfold
from pinfold.core.events.about import Audience
from pinfold.core.events.daemon import Failed, Serving, Stopped, Warned, Weaker
from pinfold.core.events.running import NotEnded
from pinfold.daemon.leaving import Leaving
from pinfold.daemon.listeners import bind_unix, find_group
from pinfold.daemon.parts.common import Basis, Parts
from pinfold.daemon.protobuf import leave_out_python
from pinfold.daemon.readiness import Readiness
from pinfold.daemon.reload import Reloader, rules
from pinfold.daemon.threads import prepare_threads
from pinfold.daemon.views import Opened, keep_record, links, open_views
from pinfold.errors import PinfoldError
from pinfold.manager.loop import Loop
from pinfold.manager.shielding import ShieldSwitch
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.log import Descriptor, Log
from pinfold.manager.views import Viewer
from pinfold.node.sdnotify import notify, watchdog_pause
from pinfold.serve.api import Views
from pinfold.serve.http.gate import Users
from pinfold.serve.http.server import HTTPServer
from pinfold.settings.table import OnExit, RuntimeName

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology
    from pinfold.daemon.reload import Again
    from pinfold.daemon.views import EventRecord
    from pinfold.serve.control import Control
    from pinfold.serve.http.messages import Request, Response
    from pinfold.settings.settings import Settings


_TOLD_EVERY: Final = 60.0
_SELDOM: Final = 5000
"""The collector runs when there are so many more objects than the last time."""


async def serve(chosen: Settings, topology: Topology, again: Again) -> None:
    """Serve until told to stop; *again* reads the daemon's configuration and machine again."""
    reload = _heed_reloads()
    prepare_threads(asyncio.get_running_loop())
    bus = _logging_bus(chosen)
    admitter = chosen.config.build(topology)
    group = find_group(chosen.socket_group)
    bound = bind_unix(chosen.socket, "--socket", group)
    record = keep_record(chosen, admitter, bus)
    basis = Basis(chosen, topology, admitter, bus)
    report = _reporter(bus)
    try:
        parts = await _parts(basis)
        loop = Loop(parts.node, parts.sources, bus, chosen.reconcile_period, reload)
        about = _about(basis, parts)
        views = _views(basis, parts, about, record)
        if parts.supervisor is not None:  # otherwise after the runtime has reported what runs
            parts.node.manager.tell_state()
        opened = await open_views(basis, views, record, report)
        leaving = Leaving(loop, parts, bus, chosen.state_dir)
        reloader = Reloader(again, loop, parts, basis, about)
        server = _server(lambda: _control(parts, views, leaving, reloader), group, report)
        await server.start(bound.listener)
    except BaseException:
        bound.remove()
        raise
    beside = [asyncio.create_task(record.sync(bus)), asyncio.create_task(_feed_watchdog())]
    try:
        await loop.run(reloader, lambda: _begin(basis, parts, opened))
    finally:
        # asyncio gives signals their default meaning back when it ends, and that is death.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        await server.close()
        await opened.close()
        await _leave(basis, parts, leaving)
        bound.remove()
        bus.flush()
        for task in beside:
            task.cancel()
        record.close()


async def _feed_watchdog() -> None:
    """Tell the service manager that this loop still turns, as often as it wants to hear that; it restarts us if not."""
    while pause := watchdog_pause(os.environ, os.getpid()):
        notify("WATCHDOG=1", os.environ)
        await asyncio.sleep(pause)


def _server(make: Callable[[], Control], group: int | None, report: Callable[[str, Exception], None]) -> HTTPServer:
    """Return the control socket's server: for root and our user, and in part for the members of a *group*."""
    control = cache(make)  # made for the first client

    async def handle(request: Request) -> Response:
        return await control().handle(request)

    return HTTPServer(handle, Users(_trusted(), group), report=report)


def _control(parts: Parts, views: Views, leaving: Leaving, reloader: Reloader) -> Control:
    from pinfold.serve.control import Control, DaemonChanges  # noqa: PLC0415 - many a daemon has no client for days

    changes = DaemonChanges(leaving.leave, reloader.reconfigure)
    control = Control(parts.supervisor, views, parts.repacker, changes, _trusted())
    manager = parts.node.manager
    control.shield = ShieldSwitch(manager) if manager.shielding.is_possible else None
    return control


def _trusted() -> frozenset[int]:
    return frozenset({0, os.geteuid()})


def _heed_reloads() -> asyncio.Event:
    """Return what SIGHUP sets from now on, also one that has come already."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, told.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return told


def _logging_bus(chosen: Settings) -> Bus:
    bus = Bus(time.time)
    bus.keep(Log(Descriptor(sys.stderr.fileno()), bus.tell, as_json=chosen.log_format == "json").take, Audience.LOG)
    return bus


def _views(basis: Basis, parts: Parts, about: dict[str, object], record: EventRecord) -> Views:
    viewer = Viewer(parts.node, about, links(basis.chosen), record.figures)
    views = Views(viewer, basis.bus, record.archive, record.written)
    basis.bus.keep(views.take, Audience.JOURNAL)
    return views


async def _leave(basis: Basis, parts: Parts, leaving: Leaving) -> None:
    """Let workloads go on without us; end them, or give all CPUs back, if the user wants that."""
    notify("STOPPING=1", os.environ)
    if parts.supervisor is not None:
        await parts.supervisor.leave()
    if parts.supervisor is not None and basis.chosen.end_workloads:
        await parts.supervisor.end_all()
        try:
            parts.clean_up()
        except PinfoldError as error:
            basis.bus.tell(NotEnded(why=str(error)))
    if basis.chosen.on_exit is OnExit.WIDEN:
        await leaving.at_exit()
    elif parts.supervisor is not None and not parts.supervisor.workbook.workloads:
        leaving.remove_groups()
    await parts.node.manager.shielding.end(parts.node.manager.rules.topology.online)
    basis.bus.tell(Stopped(len(parts.node.roster.known_pods())))


def _reporter(bus: Bus) -> Callable[[str, Exception], None]:
    """Return what reports unexpected errors; those of asyncio are reported too."""

    def report(where: str, error: Exception) -> None:
        bus.tell(Failed(where=where, why=f"{type(error).__name__}: {error}"))

    asyncio.get_running_loop().set_exception_handler(_seldom(report))
    return report


def _seldom(report: Callable[[str, Exception], None]) -> Callable[[object, dict[str, Any]], None]:
    """Return what reports the errors of asyncio: each kind once a minute, as out of files it has thousands a second."""
    told: dict[str, float] = {}

    def handle(_loop: object, context: dict[str, Any]) -> None:
        where = str(context.get("message", "asyncio"))
        error = context.get("exception") or RuntimeError("unexpected")
        kind = f"{where}: {type(error).__name__}"
        if time.monotonic() - told.get(kind, -math.inf) > _TOLD_EVERY:
            told[kind] = time.monotonic()
            report(where, error)

    return handle


async def _parts(basis: Basis) -> Parts:
    if basis.chosen.runtime in {RuntimeName.NRI, RuntimeName.CRI}:
        leave_out_python()
        from pinfold.daemon.parts.pods import kube_parts  # noqa: PLC0415 - only a node of Kubernetes needs it

        return await kube_parts(basis)
    from pinfold.daemon.parts.host import host_parts  # noqa: PLC0415 - only a plain host needs it

    return await host_parts(basis)


def _about(basis: Basis, parts: Parts) -> dict[str, object]:
    applier = parts.node.manager.applier
    return {
        "host": socket.gethostname(),
        "runtime": applier.name,
        "groups": applier.kind,
        "weaker": list(applier.weaker),
        "state_dir": str(basis.chosen.state_dir),
        "socket": str(basis.chosen.socket),
        "pid": os.getpid(),
        **rules(basis.chosen, parts.node.manager),
    }


def _begin(basis: Basis, parts: Parts, opened: Opened) -> None:
    """Serve; the daemon is ready when its runtime has reported what runs."""
    for warning in basis.chosen.warnings:
        basis.bus.tell(Warned(warning))
    if weaker := parts.node.manager.applier.weaker:
        basis.bus.tell(Weaker(weaker[0], len(weaker), list="pinfold get node"))
    readiness = Readiness(links(basis.chosen), lambda: _say_ready(basis, parts, opened), partial(_say_waiting, basis))
    basis.bus.subscribe(readiness.hear)
    readiness.serve(parts.node.link[0])
    asyncio.get_running_loop().call_soon(_collect)


def _collect() -> None:
    """Remove the garbage of the start. The rest stays: the collector does not search it again and again.

    Nor does it search all pods whenever some have come: hardly anything refers to itself, so it finds next to nothing.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_SELDOM, 20, 20)


def _say_waiting(basis: Basis, why: str) -> None:
    """Say that there is no container runtime yet, and what to look at."""
    nri = " with NRI enabled" if basis.chosen.runtime is RuntimeName.NRI else ""
    sys.stderr.write(f"pinfold: waiting for the container runtime ({why}); does it run{nri}? try: pinfold doctor\n")
    sys.stderr.flush()


def _say_ready(basis: Basis, parts: Parts, opened: Opened) -> None:
    manager = parts.node.manager
    policy = manager.rules.admitter.policy
    reserved = f", reserved {policy.reserved}" if policy.reserved else ""
    shared = f"shared CPUs {manager.wanted.shared}{reserved}"
    basis.bus.tell(Serving(pinfold.__version__, policy.name, manager.applier.name, os.getpid()))
    page = f"; page http://{opened.pages}/" if opened.pages is not None else ""
    socket_ = f"socket {basis.chosen.socket}"
    sys.stdout.write(f"pinfold: ready; policy {policy.name}, {manager.applier.kind}, {shared}; {socket_}{page}\n")
    sys.stdout.flush()
    notify("READY=1", os.environ)
