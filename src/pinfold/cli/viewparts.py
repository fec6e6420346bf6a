"""What others see of a daemon, put together: journal, counters, the read-only API over TCP, PodResources."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.cli.addresses import Address
from pinfold.cli.listeners import bind_unix
from pinfold.cli.settingstable import RuntimeName
from pinfold.core.cpuset import EMPTY
from pinfold.core.policies.static import StaticPolicy
from pinfold.errors import ConfigError, Problem
from pinfold.manager.manager import Note, Watch
from pinfold.node.journal import Journal
from pinfold.node.journalfiles import DIRECTORY, Archive
from pinfold.serve.api import API
from pinfold.serve.counters import Counters
from pinfold.serve.gate import LOOPBACK, Gate
from pinfold.serve.gauges import Reading
from pinfold.serve.http import Server
from pinfold.serve.limits import REMOTE
from pinfold.serve.metrics import Metrics
from pinfold.serve.page import Page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.cli import settings
    from pinfold.cli.parts import Basis
    from pinfold.cli.settings import Settings
    from pinfold.core.admission import Admitter
    from pinfold.core.cpuset import CPUSet
    from pinfold.manager.loop import Loop
    from pinfold.manager.notes import Notes
    from pinfold.serve.api import Views
    from pinfold.serve.podresources import Held

    Report = Callable[[str, Exception], None]


_SYNC_AFTER: Final = 1.0


class Record(NamedTuple):
    """Where what happens is kept and counted."""

    archive: Archive
    counters: Counters
    watch: Watch

    def close(self) -> None:
        """Keep no more."""
        if isinstance(self.archive, Journal):
            self.archive.close()

    async def sync(self, notes: Notes) -> None:
        """Have the disk keep what happened, a second later at most, for ever; nobody waits for it."""
        while isinstance(self.archive, Journal):
            await notes.news()
            await asyncio.sleep(_SYNC_AFTER)
            await asyncio.to_thread(self.archive.sync)


def keep_record(chosen: Settings, admitter: Admitter, notes: Notes) -> Record:
    """Return the journal and the counters, which from now on hear of everything."""
    counters = Counters(admitter, now=time.perf_counter(), links=_links(chosen))
    archive: Archive = Archive(chosen.state_dir / DIRECTORY)
    if chosen.views.journal_bytes:
        journal = Journal(
            chosen.state_dir / DIRECTORY,
            clock=time.time,
            tell=lambda why: notes.tell(Note("journal", {"why": why})),
            max_bytes=chosen.views.journal_bytes,
            max_age=chosen.views.journal_seconds,
        )
        notes.number = journal.last
        notes.keepers.append(journal.append)
        archive = journal
    notes.keepers.append(lambda entry: counters.heard(entry.what, entry.fields))
    return Record(archive, counters, Watch(counters, time.perf_counter))


class Opened(NamedTuple):
    """What is served, where, and how to end that."""

    pages: Address | None
    """Where the page is."""
    ends: tuple[Callable[[], Awaitable[None]], ...]

    async def close(self) -> None:
        """Serve no more."""
        for end in self.ends:
            await end()


async def open_views(basis: Basis, loop: Loop, views: Views, record: Record, report: Report) -> Opened:
    """Serve the page, the API and the metrics, and on a node of Kubernetes PodResources too."""
    ends: list[Callable[[], Awaitable[None]]] = []
    pages = None
    listener = _listener(basis)
    if listener is not None:
        metrics = Metrics(
            lambda: _reading(basis, loop, record), record.counters, prefix=basis.chosen.views.metrics_prefix
        )
        host, port = listener.getsockname()[:2]
        pages = Address(host, port)
        gate = _gate(basis.chosen.views, pages)
        server = Server(API(loop, views, metrics, Page()).handle, limits=REMOTE, gate=gate, report=report)
        await server.start(listener)
        ends.append(server.close)
    if basis.chosen.runtime in {"nri", "cri"} or basis.chosen.sources["pod_resources_socket"].startswith("--"):
        ends.append(await _open_pod_resources(basis, loop, report))
    return Opened(pages, tuple(ends))


def _gate(views: settings.Views, pages: Address) -> Gate:
    """Return a gate that knows the address as it was given and as it is, and whatever else may be asked for."""
    hosts = LOOPBACK | {pages.name} | views.hosts
    if views.listen is not None:
        hosts |= {views.listen.name}
    if pages.is_loopback:
        return Gate(hosts)
    return Gate(hosts | {socket.gethostname().lower()}, addresses=True)


def _listener(basis: Basis) -> socket.socket | None:
    views = basis.chosen.views
    if views.listen is None:
        return None
    family = socket.AF_INET6 if ":" in views.listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(views.listen)
    except (OSError, UnicodeError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or str(error)
        if views.listen_is_default and getattr(error, "errno", 0) == errno.EADDRINUSE:
            basis.notes.tell(Note("warning", {"text": f"no page and no metrics: {views.listen}: {why}"}))
            return None
        raise ConfigError(Problem(f"--listen {views.listen}: {why}", "name another address, or none")) from error
    listener.listen()
    return listener


def _links(chosen: Settings) -> frozenset[str]:
    """Return in which states of the connection a runtime can be reached: over NRI when it has told what runs.

    One that starts us itself may tell nothing of that (containerd 1.7 does not).
    """
    if chosen.runtime is not RuntimeName.NRI:
        return frozenset({"connected"})
    return frozenset({"synchronized", "registered"} if "NRI_PLUGIN_SOCKET" in os.environ else {"synchronized"})


def _reading(basis: Basis, loop: Loop, record: Record) -> Reading:
    policy = loop.manager.admitter.policy
    return Reading(
        loop.manager.state,
        loop.manager.topology,
        policy.reserved if isinstance(policy, StaticPolicy) else EMPTY,
        policy=policy.name,
        runtime=str(basis.chosen.runtime),
        connected=loop.node.link[0] in _links(basis.chosen),
        waiting=loop.node.waiting,
        journal_drops=record.archive.lost if isinstance(record.archive, Journal) else 0,
    )


def _reserved(loop: Loop) -> CPUSet:
    policy = loop.manager.admitter.policy
    return policy.reserved if isinstance(policy, StaticPolicy) else loop.manager.wanted.shared


async def _open_pod_resources(basis: Basis, loop: Loop, report: Report) -> Callable[[], Awaitable[None]]:
    from pinfold.grpc.server import GRPCServer  # noqa: PLC0415 - h2 and protobuf are not for everyone
    from pinfold.serve.podresources import Held, PodResources, limited  # noqa: PLC0415

    def read() -> Held:
        return Held(loop.node.pods.values(), loop.manager.state, loop.manager.topology.online - _reserved(loop))

    bound = bind_unix(basis.chosen.views.pod_resources, "--pod-resources-socket")
    server = GRPCServer(limited(PodResources(read).methods), report=report)
    await server.start(bound.listener)

    async def end() -> None:
        await server.close()
        bound.remove()

    return end
