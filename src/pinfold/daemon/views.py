"""Builds the views of a daemon: journal, counters, the read-only API over TCP, PodResources."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.about import Audience
from pinfold.core.events.daemon import HistoryLost, Warned
from pinfold.core.snapshot import Figures
from pinfold.daemon.listeners import bind_unix
from pinfold.errors import ConfigError, Problem
from pinfold.manager.telling.journaling import Journaling
from pinfold.node.journal.files import DIRECTORY, Archive
from pinfold.node.journal.journal import Journal
from pinfold.serve.api import API
from pinfold.serve.http.gate import LOOPBACK, HTTPGate
from pinfold.serve.http.limits import REMOTE
from pinfold.serve.http.server import HTTPServer
from pinfold.serve.metrics.counters import Counters
from pinfold.serve.metrics.table import check_prefix
from pinfold.serve.page import Page
from pinfold.settings.addresses import Address
from pinfold.settings.table import RuntimeName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.core.admission import Admitter
    from pinfold.daemon.parts.common import Basis
    from pinfold.manager.telling.bus import Bus
    from pinfold.serve.api import Views
    from pinfold.serve.metrics.metrics import Metrics
    from pinfold.settings import settings
    from pinfold.settings.settings import Settings

    Report = Callable[[str, Exception], None]


_SYNC_AFTER: Final = 1.0
_SYNC_AGAIN: Final = 60.0


class EventRecord(NamedTuple):
    """The journal and the counters of events."""

    archive: Archive
    counters: Counters
    journaling: Journaling | None = None
    """Writes the journal; None if the daemon keeps none."""

    def figures(self) -> Figures:
        """Return the counters since the start."""
        lost = 0 if self.journaling is None else self.journaling.lost
        return Figures(lost, self.counters.repaired)

    def close(self) -> None:
        """Close the journal."""
        if self.journaling is not None:
            self.journaling.close()

    async def written(self) -> None:
        """Return when the journal has all that was told so far."""
        if self.journaling is not None:
            await self.journaling.written()

    async def sync(self, bus: Bus) -> None:
        """Sync the journal to disk every second, for ever; nothing waits for it."""
        while self.journaling is not None:
            await bus.news()
            await asyncio.sleep(_SYNC_AFTER)
            try:
                await self.journaling.sync()
            except RuntimeError as error:  # no thread can be started now: the next time syncs this too
                bus.tell(HistoryLost(f"not synced to the disk: {error}"))
                await asyncio.sleep(_SYNC_AGAIN)


def keep_record(chosen: Settings, admitter: Admitter, bus: Bus) -> EventRecord:
    """Return the journal and the counters, subscribed to all events."""
    counters = Counters(admitter, now=time.perf_counter(), links=links(chosen))
    bus.subscribe(counters.hear)
    if not chosen.views.journal_bytes:
        return EventRecord(Archive(chosen.state_dir / DIRECTORY), counters)
    loop = asyncio.get_running_loop()

    def tell(why: str) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(bus.tell, HistoryLost(why))

    journal = Journal(
        chosen.state_dir / DIRECTORY,
        clock=time.time,
        tell=tell,
        max_bytes=chosen.views.journal_bytes,
        max_age=chosen.views.journal_seconds,
    )
    bus.number = journal.last
    journaling = Journaling(journal, ThreadPoolExecutor(1, "journal"), tell)
    bus.keep(journaling.keep, Audience.JOURNAL)
    return EventRecord(journal, counters, journaling)


class Opened(NamedTuple):
    """The open servers, their addresses, and how to close them."""

    pages: Address | None
    """The address of the page."""
    ends: tuple[Callable[[], Awaitable[None]], ...]

    async def close(self) -> None:
        """Stop serving."""
        for end in self.ends:
            await end()


def _metrics(views: Views, record: EventRecord, prefix: str) -> Metrics:
    from pinfold.serve.metrics.metrics import Metrics  # noqa: PLC0415 - only a scraper needs it

    return Metrics(views.look, record.counters, prefix=prefix)


async def open_views(basis: Basis, views: Views, record: EventRecord, report: Report) -> Opened:
    """Serve the page, the API and the metrics, and on a node of Kubernetes PodResources too."""
    ends: list[Callable[[], Awaitable[None]]] = []
    pages = None
    listener = open_listener(basis.chosen.views, lambda warning: basis.bus.tell(Warned(warning)))
    if listener is not None:
        metrics = partial(_metrics, views, record, check_prefix(basis.chosen.views.metrics_prefix))
        host, port = listener.getsockname()[:2]
        pages = Address(host, port)
        gate = gate_of(basis.chosen.views, pages)
        server = HTTPServer(API(views, metrics, Page()).handle, limits=REMOTE, gate=gate, report=report)
        await server.start(listener)
        ends.append(server.close)
    if basis.chosen.runtime in {"nri", "cri"} or basis.chosen.sources["pod_resources_socket"].endswith(
        "pod-resources-socket"
    ):
        ends.append(await _open_pod_resources(basis, views, report))
    return Opened(pages, tuple(ends))


def gate_of(views: settings.ViewSettings, pages: Address) -> HTTPGate:
    """Return a gate that accepts the address as given and as bound, and the configured host names."""
    hosts = LOOPBACK | {pages.name} | views.hosts
    if views.listen is not None:
        hosts |= {views.listen.name}
    if pages.is_loopback:
        return HTTPGate(hosts)
    return HTTPGate(hosts | {socket.gethostname().lower()}, addresses=True)


def open_listener(views: settings.ViewSettings, warn: Callable[[str], None]) -> socket.socket | None:
    """Return the socket of the page; None if there is to be none, or the default address is taken: then *warn*."""
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
            warn(f"no page and no metrics: {views.listen}: {why}")
            return None
        raise ConfigError(Problem(f"--listen {views.listen}: {why}", "name another address, or none")) from error
    listener.listen()
    return listener


def links(chosen: Settings) -> frozenset[str]:
    """Return the connection states in which a runtime can be reached: over NRI, after it has reported what runs.

    A runtime that starts us itself may not report that (containerd 1.7 does not).
    """
    if chosen.runtime is not RuntimeName.NRI:
        return frozenset({"connected"})
    return frozenset({"synchronized", "registered"} if "NRI_PLUGIN_SOCKET" in os.environ else {"synchronized"})


async def _open_pod_resources(basis: Basis, views: Views, report: Report) -> Callable[[], Awaitable[None]]:
    from pinfold.grpc.server import GRPCServer  # noqa: PLC0415 - only gRPC needs h2 and protobuf
    from pinfold.serve.podresources import PodResourcesService, limited  # noqa: PLC0415

    bound = bind_unix(basis.chosen.views.pod_resources, "--pod-resources-socket")
    server = GRPCServer(limited(PodResourcesService(views.look).methods), report=report)
    await server.start(bound.listener)

    async def end() -> None:
        await server.close()
        bound.remove()

    return end
