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
from pinfold.cli import machine, settings
from pinfold.cli.listeners import bind_unix
from pinfold.cli.parts import Basis, Parts, host_parts
from pinfold.cli.reload import Reloader, rules
from pinfold.cli.settingstable import RuntimeName
from pinfold.cli.viewparts import Opened, keep_record, open_views
from pinfold.errors import PinfoldError
from pinfold.manager.loop import Loop
from pinfold.manager.manager import Note
from pinfold.manager.notes import Notes
from pinfold.node.grouperrors import GroupsHeldError
from pinfold.serve.api import Views
from pinfold.serve.control import Control
from pinfold.serve.http import Server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pinfold.cli.settings import Settings
    from pinfold.core.topology import Topology


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
    notes = Notes(sys.stderr, as_json=chosen.log_format == "json")
    admitter = chosen.config.build(topology)
    bound = bind_unix(chosen.socket, "--socket")
    record = keep_record(chosen, admitter, notes)
    for warning in chosen.warnings:
        notes.tell(Note("warning", {"text": warning}))
    basis = Basis(chosen, topology, admitter, notes, record.watch)
    report = _reporter(notes)
    try:
        parts = _parts(basis)
        loop = Loop(parts.manager, parts.node, notes, chosen.reconcile_period)
        about = _about(basis, parts)
        views = Views(loop, about, record.archive)
        notes.keepers.append(views.take)
        if parts.host is not None:  # otherwise when the runtime has told whose CPUs they are
            parts.manager.tell_state()
        opened = await open_views(basis, loop, views, record, report)
        control = Control(loop, parts.host, about, views)
        server = Server(control.handle, frozenset({0, os.geteuid()}), report=report)
        await server.start(bound.listener)
    except BaseException:
        bound.remove()
        raise
    syncing = asyncio.create_task(record.sync(notes))
    try:
        await loop.run(Reloader(args, loop, about), lambda: _say_ready(basis, parts, opened))
    finally:
        # asyncio gives signals their default meaning back when it ends, and that is death.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        await server.close()
        await opened.close()
        if chosen.end_workloads and parts.host is not None:
            await parts.host.end_all()
            try:
                parts.host.runtime.clean_up()
            except PinfoldError as error:
                notes.tell(Note("not-ended", {"why": str(error)}))
        bound.remove()
        notes.tell(Note("stopped", {"pods": len(parts.node.pods)}))
        syncing.cancel()
        record.close()


def _reporter(notes: Notes) -> Callable[[str, Exception], None]:
    return lambda what, error: notes.tell(Note("failed", {"what": what, "why": f"{type(error).__name__}: {error}"}))


def _parts(basis: Basis) -> Parts:
    if basis.chosen.runtime in {RuntimeName.NRI, RuntimeName.CRI}:
        from pinfold.cli.kubeparts import kube_parts  # noqa: PLC0415 - only a node of Kubernetes needs it

        return kube_parts(basis)
    return host_parts(basis)


def _about(basis: Basis, parts: Parts) -> dict[str, object]:
    return {
        "runtime": parts.runtime.name,
        "groups": parts.kind,
        "weaker": list(parts.runtime.weaker),
        "read_only": getattr(parts.runtime, "read_only", False),
        "state_dir": str(basis.chosen.state_dir),
        "socket": str(basis.chosen.socket),
        "pid": os.getpid(),
        **rules(basis.chosen, parts.manager),
    }


def _say_ready(basis: Basis, parts: Parts, opened: Opened) -> None:
    for weaker in parts.runtime.weaker:
        basis.notes.tell(Note("weaker", {"promise": weaker}))
    policy = parts.manager.admitter.policy
    reserved = f", reserved {policy.reserved}" if policy.reserved else ""
    shared = f"shared CPUs {parts.manager.wanted.shared}{reserved}"
    fields = {"version": pinfold.__version__, "policy": policy.name, "runtime": parts.runtime.name, "pid": os.getpid()}
    basis.notes.tell(Note("serving", fields))
    # What is there now stays: nobody has to wait while it is searched for garbage again and again.
    gc.collect()
    gc.freeze()
    page = f"; page http://{opened.pages}/" if opened.pages is not None else ""
    socket_ = f"socket {basis.chosen.socket}"
    print(f"pinfold: ready; policy {policy.name}, {parts.kind}, {shared}; {socket_}{page}", flush=True)
