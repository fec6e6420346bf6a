"""The read-only API over TCP: what a node is like, what it was like, and why; JSON, metrics, the page, and events.

Nothing can be changed here. `openapi` describes it, and tests hold it to that.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import pinfold
from pinfold.core.alignment import Ruler
from pinfold.core.entries import Subject
from pinfold.core.snapshot import pools
from pinfold.errors import ParseError
from pinfold.formats.topologyjson import format_topology_json
from pinfold.serve.messages import Event, HTTPError, Request, Response
from pinfold.serve.openapi import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.entries import Entry
    from pinfold.core.snapshot import ContainerView
    from pinfold.core.topology import Topology
    from pinfold.manager.loop import Loop
    from pinfold.manager.reasons import Reasons
    from pinfold.node.journalfiles import Archive
    from pinfold.serve.metrics import Metrics
    from pinfold.serve.page import Page

_MOST_ENTRIES: Final = 10_000
_DEFAULT_ENTRIES: Final = 1000


class API:
    """Answers for one node."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a view, put together once
        self,
        loop: Loop,
        topology: Topology,
        about: Mapping[str, object],
        archive: Archive,
        reasons: Reasons,
        metrics: Metrics,
        page: Page,
    ) -> None:
        self._loop = loop
        self._topology = topology
        self._about = about
        self._archive = archive
        self._reasons = reasons
        self._metrics = metrics
        self._page = page
        self._ruler = Ruler(topology)
        self._readers: Final[Mapping[str, Callable[[], object]]] = {
            "topology": lambda: json.loads(format_topology_json(topology)),
            "pools": self.pools,
            "containers": self.containers,
            "pods": self.pods,
            "config": self.config,
        }

    async def handle(self, request: Request) -> Response:
        """Return the answer to a request."""
        match request.segments:
            case ("api", "v1", what):
                return Response(200, await self.read(what, request.query))
            case ("metrics",):
                kind, text = self._metrics.scrape(request.headers.get("accept", ""))
                return Response(200, content=text, kind=kind)
            case ("healthz",) | ("readyz",):
                return Response(200, content=b"ok\n", kind="text/plain; charset=utf-8")
            case ("openapi.json",):
                return Response(200, document())
            case ("events",):
                return self._events(request)
        return self._page.response(request.segments)

    async def read(self, what: str, query: Mapping[str, str]) -> object:
        """Return one thing that can be asked for, as JSON-ready data."""
        reader = self._readers.get(what)
        if reader is not None:
            return reader()
        match what:
            case "history":
                return await asyncio.to_thread(self._history, query)
            case "at":
                moment = await asyncio.to_thread(self._archive.state_at, _moment(query, "time", time.time()))
                return moment.data()
            case "explain":
                return self.explain(query.get("container", ""))
        raise HTTPError(404, "NotFound", f"there is no {what[:80]!r} to ask for; /openapi.json tells what there is")

    # -- now

    def pools(self) -> dict[str, str]:
        """Return the CPUs of each pool."""
        manager = self._loop.manager
        found = pools(manager.admitter.policy, manager.state, self._topology)
        return {**found, "offline": str(self._topology.offline), "isolated": str(self._topology.isolated or "")}

    def containers(self) -> list[dict[str, object]]:
        """Return every container, how its CPUs lie, and why it has these."""
        return [self._container(view) for view in self._loop.node.views()]

    def _container(self, view: ContainerView) -> dict[str, object]:
        why = self._reasons.why(f"{view.namespace}/{view.pod}/{view.container}") if view.exclusive else _shares(view)
        return {**view.data(), "alignment": self._alignment(view.cpus) if view.exclusive else None, "why": why}

    def _alignment(self, cpus: CPUSet) -> dict[str, int]:
        found = self._ruler.measure(cpus)
        spans = {"cores": found.core, "uncore_caches": found.uncore, "numa_nodes": found.numa, "sockets": found.socket}
        return {name: len(span.ids) for name, span in spans.items()}

    def pods(self) -> list[dict[str, object]]:
        """Return every pod."""
        kinds = {(view.namespace, view.pod): view.kind for view in self._loop.node.views()}
        return [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "qos": pod.qos,
                "kind": kinds.get((pod.namespace, pod.name), ""),
                "containers": [container.name for container in pod.all_containers],
            }
            for pod in self._loop.node.pods.values()
        ]

    def config(self) -> dict[str, object]:
        """Return under which rules the node is, and what it cannot promise."""
        link, detail = self._loop.node.link
        return {
            "version": pinfold.__version__,
            "policy": self._loop.manager.admitter.policy.name,
            **self._about,
            "link": {"state": link, "detail": detail},
        }

    def explain(self, container: str) -> dict[str, object]:
        """Return why a container has the CPUs it has, or why it was refused."""
        found = self._reasons.find(_subject(container))
        if found is None:
            raise HTTPError(404, "NotFound", f"nothing is known of a container {container[:80]!r}")
        views = [
            view for view in self._loop.node.views() if found.name == f"{view.namespace}/{view.pod}/{view.container}"
        ]
        cpus = views[0].cpus if views and views[0].exclusive else None
        return {
            **found.data(),
            "cpus": None if cpus is None else str(cpus),
            "alignment": None if cpus is None else self._alignment(cpus),
        }

    # -- before

    def _history(self, query: Mapping[str, str]) -> dict[str, object]:
        since, until = _moment(query, "since", -math.inf), _moment(query, "until", math.inf)
        limit = _count(query, "limit", _DEFAULT_ENTRIES)
        wanted = set(filter(None, query.get("what", "").split(",")))
        subject = _subject(query["container"]) if query.get("container") else None
        found: list[Entry] = []
        more = False
        for entry in self._archive.entries(since=since, until=until):
            if (not wanted or entry.what in wanted) and (subject is None or subject.covers(entry)):
                found.append(entry)
                more = len(found) > limit
                if more:
                    found.pop(0)  # the newest are what people look for
        return {"entries": [entry.data() for entry in found], "first": self._archive.first(), "more": more}

    # -- as it happens

    def _events(self, request: Request) -> Response:
        after = _number(request.headers.get("last-event-id") or request.query.get("after", ""))

        async def events() -> AsyncIterator[Event]:
            yield Event("{}", name="hello", retry=1000)
            start = self._loop.notes.number if after is None else after
            async with aclosing(self._loop.notes.follow(start)) as entries:
                async for entry in entries:
                    yield Event(json.dumps(entry.data()), id=str(entry.number), name="change")

        return Response(200, events=events())


def _shares(view: ContainerView) -> str:
    return f"in the shared pool: {view.qos} pods, and amounts that are no whole number of CPUs, share"


def _subject(text: str) -> Subject:
    try:
        return Subject.parse(text)
    except ParseError as error:
        raise HTTPError(400, "BadRequest", f"container: {error}") from error


def _moment(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name, "")
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or len(text) > 32:  # noqa: PLR2004 - no time has more digits
        raise HTTPError(400, "BadRequest", f"{name}: expected seconds since the epoch")
    return number


def _count(query: Mapping[str, str], name: str, default: int) -> int:
    number = _number(query.get(name, str(default)))
    if number is None or not 1 <= number <= _MOST_ENTRIES:
        raise HTTPError(400, "BadRequest", f"{name}: expected a number from 1 to {_MOST_ENTRIES}")
    return number


def _number(text: Any) -> int | None:  # noqa: ANN401 - a header or a query
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - 64 bits
