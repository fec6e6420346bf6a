"""The read-only API over TCP: the node's present and past, with reasons; JSON, metrics, the page, and events.

Clients cannot change anything here. `openapi` describes it, and tests compare the two.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import nullcontext
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

import pinfold
from pinfold.core.events.entries import STATE, Subject
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.explanation import DECISIONS, Explanation, alignment_counts, explain_entry
from pinfold.core.explaining.sharing import why_shared
from pinfold.core.pods.pod import ContainerRef
from pinfold.core.snapshot import RefusedPod
from pinfold.errors import ParseError, did_you_mean, excerpt
from pinfold.serve.http.answers import write
from pinfold.serve.http.limits import Turns, client_of
from pinfold.serve.http.messages import HTTPError, Request, Response, ServerSentEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from pinfold.core.events.entries import Entry
    from pinfold.core.explaining.alignment import Alignment
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import Pod
    from pinfold.core.snapshot import ContainerView, Snapshot
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.journal.files import Archive
    from pinfold.serve.metrics.metrics import Metrics
    from pinfold.serve.page import Page

_OF_THE_PAST: Final = frozenset({"history", "at", "explain"})
"""The resources that come from the journal, which is slow."""
_AT_A_TIME: Final = 2
_MOST: Final = 10_000
_MOST_BYTES: Final = 1 << 20
"""About how many bytes of missed events are read for a watcher at once."""
_MOST_EXPLAINED: Final = 1000
_AT_ONCE: Final = 100
"""Events that are sent together."""
_AGAIN: Final = (("retry-after", "5"),)
_MESSAGE: Final = 200
_DIGITS: Final = 19
_LOOK_FOR: Final = 1.0


async def _at_once() -> None:
    """Wait for nothing: every entry is written when it is told."""


class TakeSnapshot(Protocol):
    """Takes a Snapshot of the node."""

    def __call__(self, *, closely: bool = False) -> Snapshot:
        """Return a Snapshot of the node; *closely*: with every container as the kernel has it."""
        ...


class Views:
    """The data of one node, ready for JSON; for the read-only API and for the control socket."""

    def __init__(
        self, look: TakeSnapshot, bus: Bus, archive: Archive, written: Callable[[], Awaitable[None]] = _at_once
    ) -> None:
        """Read the past from *archive*, when *written* says that it has all entries so far."""
        self.look = look
        self.bus = bus
        self._archive = archive
        self._written = written
        node = look()
        seen = node.policy.pools.seen(node.topology)
        self._ruler = seen, Ruler(seen)
        self._last: dict[Subject, Explanation] = {}
        """The last decision on each container or whole pod, unless its CPUs were released; the latest at the end."""
        self._looking: set[asyncio.Task[None]] = set()
        self._readers: Final[Mapping[str, Callable[[], object]]] = {
            "topology": self.topology,
            "layout": self.layout,
            "pools": lambda: look().pools(),
            "containers": self.containers,
            "pods": self.pods,
            "config": self.config,
        }

    def take(self, entry: Entry) -> None:
        """Remember the last decision on each container that has CPUs of its own, or was refused."""
        if entry.what in DECISIONS:
            subject = Subject(entry.text("namespace") or "default", entry.text("pod"), entry.text("container") or None)
            self._last.pop(subject, None)
            if entry.what == "released":  # the journal has it; most have left
                return
            self._last[subject] = explain_entry(entry, subject)
            if len(self._last) > _MOST_EXPLAINED:
                del self._last[next(iter(self._last))]

    async def read(self, what: str, query: Mapping[str, str]) -> object:
        """Return one resource of the API, as of now."""
        self.bus.flush()
        reader = self._readers.get(what)
        if reader is not None:
            found = reader()
            if self._looking:  # only after a restart, and for containers from before it
                await asyncio.wait(set(self._looking), timeout=_LOOK_FOR)
                found = reader()
            return found
        if what in _OF_THE_PAST:
            await self._written()
        try:
            match what:
                case "history" | "at":
                    return await self._past(what, query)
                case "explain":
                    return await self.explain(Subject.parse(query.get("container", "")))
        except ParseError as error:
            raise HTTPError(400, "BadRequest", str(error)) from error
        raise HTTPError(404, "NotFound", f"there is no {what[:80]!r}; /openapi.json lists all paths")

    async def _past(self, what: str, query: Mapping[str, str]) -> object:
        """Return what happened, or who had which CPUs at a time."""
        from pinfold.node.journal.history import answer_at, answer_history, parse_question  # noqa: PLC0415 - seldom asked for

        if what == "history":
            question = parse_question(query)
            self._check_cpu(question.cpu)
            return await asyncio.to_thread(lambda: write(answer_history(self._archive, question)))
        asked = query if "time" in query else {"time": f"{time.time():.3f}"}
        return await asyncio.to_thread(lambda: write(answer_at(self._archive, asked)))

    def topology(self) -> object:
        """Return the machine."""
        from pinfold.formats.machine.topologyjson import format_topology_json  # noqa: PLC0415 - seldom asked for

        return json.loads(format_topology_json(self.look().topology))

    def layout(self) -> object:
        """Return the machine as a picture shows it."""
        from pinfold.core.machine.layout import layout_data  # noqa: PLC0415 - seldom asked for

        return layout_data(self.look().topology)

    def _check_cpu(self, cpu: int | None) -> None:
        topology = self.look().topology
        known = topology.online | topology.offline
        if cpu is not None and cpu not in known:
            raise HTTPError(404, "NotFound", f"cpu: {cpu} is not a CPU of this machine; it has CPUs {known}")

    def containers(self) -> list[dict[str, object]]:
        """Return every container, the alignment of its CPUs, and why it has these."""
        self.bus.flush()  # the reasons of the latest decisions are told after their answers
        node = self.look(closely=True)
        pods = {(pod.namespace, pod.name): pod for pod in node.pods}
        uses = {use.container: {"occupancy": use.occupancy, "traffic": use.traffic} for use in node.cache_usage}
        found = []
        for view in node.containers:
            pod = pods.get((view.namespace, view.pod))
            cache = None if pod is None else uses.get(ContainerRef(pod.uid, view.container))
            found.append({**self._container(node, view, pod), "cache": cache})
        return found

    def _measure(self, node: Snapshot, cpus: CPUSet) -> Alignment:
        seen = node.policy.pools.seen(node.topology)
        if self._ruler[0] is not seen:  # other rules, or a CPU has gone offline or come back
            self._ruler = seen, Ruler(seen)
        return self._ruler[1].measure(cpus)

    def _container(self, node: Snapshot, view: ContainerView, pod: Pod | None) -> dict[str, object]:
        alignment = alignment_counts(self._measure(node, view.cpus)) if view.exclusive else None
        data = {**view.data(), "alignment": alignment, "why": self._why(node, view, pod)}
        decided = self._last.get(Subject(view.namespace, view.pod, view.container)) if view.exclusive else None
        if decided is not None and decided.since is not None and decided.cpus == view.cpus:
            data["since"] = round(decided.since, 3)  # its process may have been started again since then
        return data

    def _why(self, node: Snapshot, view: ContainerView, pod: Pod | None) -> str:
        if view.exclusive:
            who = Subject(view.namespace, view.pod, view.container)
            if who not in self._last:
                self._last[who] = Explanation(str(who), view.cpus)
                self._look_up(who)
            return self._last[who].why
        found = [] if pod is None else [one for one in pod.all_containers if one.name == view.container]
        return why_shared(node.policy, pod, found[0]) if pod is not None and found else ""

    def _look_up(self, who: Subject) -> None:
        """Ask the journal for an earlier decision, in a thread so that other clients do not wait."""

        async def look() -> None:
            before = self._last.get(who)
            kept = await asyncio.to_thread(_kept, self._archive, who)
            if kept is not None and self._last.get(who) is before:
                self._last[who] = kept

        task = asyncio.get_running_loop().create_task(look())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    def pods(self) -> list[dict[str, object]]:
        """Return every pod, also those that wait after a refusal."""
        node = self.look(closely=True)
        kinds = {(view.namespace, view.pod): view.kind for view in node.containers}
        found = {pod.uid: RefusedPod(pod, "") for pod in node.pods} | dict(node.refused)
        return [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "qos": pod.qos,
                "kind": kinds.get((pod.namespace, pod.name), ""),
                "containers": [container.name for container in pod.all_containers],
                "refused": reason,
            }
            for pod, reason in found.values()
        ]

    def config(self) -> dict[str, object]:
        """Return the node's configuration, and the guarantees that do not hold here."""
        node = self.look()
        link = {"state": node.link[0], "detail": node.link[1]}
        return {**node.about, "version": pinfold.__version__, "policy": node.policy.name, "link": link}

    async def missed(self, after: int, first: int) -> tuple[list[bytes], int]:
        """Return the events after a number that only the journal still has, and the number of the last of them.

        They end before the *first* entry in memory, or earlier: then there are more. Of very many, the last ones are
        returned: a client that was away for so long must read everything anew.
        """

        def read() -> tuple[list[bytes], int]:
            found: list[bytes] = []
            size = 0
            entries = self._archive.entries(number_after=max(after, first - 1 - _MOST))
            for entry in takewhile(lambda entry: entry.number < first, entries):
                if entry.what != STATE:
                    found.append(_change(entry))
                    size += len(found[-1])
                if size >= _MOST_BYTES:
                    return found, entry.number
            return found, first - 1

        await self._written()
        return await asyncio.to_thread(read)

    async def explain(self, subject: Subject) -> dict[str, object]:
        """Return why a container has its CPUs, shares, or was refused."""
        for row in self.containers():
            found = Subject(str(row["namespace"]), str(row["pod"]), str(row["container"]))
            if not row["exclusive"] and _names(subject, found):
                shared = {"cpus": None, "since": row["since"], "steps": [], "passed_over": [], "alignment": None}
                return {"container": str(found), "why": row["why"], "refusal": None, **shared}
        kept = await asyncio.to_thread(_kept, self._archive, subject)
        if kept is None:
            kept = self._remembered(subject)
        if kept is None:
            known = {name for row in self.containers() for name in (row["pod"], f"{row['pod']}/{row['container']}")}
            meant = did_you_mean(str(subject), map(str, known))
            raise HTTPError(404, "NotFound", f"no decision on {excerpt(str(subject))} is known{meant}")
        return kept.data()

    def _remembered(self, subject: Subject) -> Explanation | None:
        found = next((who for who in reversed(self._last) if _names(subject, who)), None)
        if found is None:
            return None
        whole = found._replace(container=found.container or subject.container)
        return self._last[found]._replace(container=str(whole))


def _kept(archive: Archive, subject: Subject) -> Explanation | None:
    """Return the last decision in the journal."""
    from pinfold.node.journal.history import explain_kept  # noqa: PLC0415 - a daemon reads its past only when asked

    return explain_kept(archive, subject)


class API:
    """Answers over TCP."""

    def __init__(self, views: Views, metrics: Callable[[], Metrics], page: Page) -> None:
        self._views = views
        self._metrics = cache(metrics)  # made for the first scraper
        self._page = page
        self._turns = Turns(_AT_A_TIME)
        self._latest = (range(0), b"")

    def _changes(self, entries: Sequence[Entry]) -> bytes:
        """Return entries as events; what all watchers get is written once."""
        numbers = range(entries[0].number, entries[-1].number + 1)
        if self._latest[0] != numbers:
            self._latest = numbers, b"".join(map(_change, entries))
        return self._latest[1]

    async def handle(self, request: Request) -> Response:
        """Return the answer to a request."""
        match request.segments:
            case ("api", "v1", what):
                async with self._turns.turn(client_of(request.peer.address)) if what in _OF_THE_PAST else nullcontext():
                    return Response(200, await self._views.read(what, request.query))
            case ("metrics",):
                self._views.bus.flush()  # what has happened is counted
                kind, text = self._metrics().scrape(request.headers.get("accept", ""))
                return Response(200, content=text, kind=kind)
            case ("healthz",) | ("readyz",):
                if request.segments == ("readyz",):
                    self._check_ready()
                return Response(200, content=b"ok\n", kind="text/plain; charset=utf-8")
            case ("openapi.json",):
                from pinfold.serve.openapi import document  # noqa: PLC0415 - asked for by developers

                return Response(200, document())
            case ("events",):
                return self._events(request)
        return self._page.response(request.segments)

    def _check_ready(self) -> None:
        """Raise if the daemon is not ready: the container runtime or the disk cannot be used."""
        node = self._views.look()
        if node.unsaved:
            raise HTTPError(503, "NotReady", f"not saved: {node.unsaved}"[:_MESSAGE], _AGAIN)
        if not node.connected:
            state, detail = node.link
            said = " ".join(f"the connection to the container runtime is {state}: {detail}".split())
            raise HTTPError(503, "NotReady", said.rstrip(":")[:_MESSAGE], _AGAIN)

    def _events(self, request: Request) -> Response:
        self._views.bus.flush()  # a stream begins after all that has happened until now
        last, notes = request.headers.get("last-event-id", ""), self._views.bus
        told = int(last) if last.isascii() and last.isdigit() and len(last) < _DIGITS else notes.number
        seen = min(told, notes.number)  # one that is yet to come is of another journal

        async def events() -> AsyncIterator[bytes]:
            yield ServerSentEvent("{}", name="hello", retry=1000).encode()
            number, until = seen, notes.number
            while True:
                first = notes.first
                if number + 1 < first:  # after a restart, or if the client is slow
                    async with self._turns.turn(client_of(request.peer.address)):
                        missed, number = await self._views.missed(number, first)
                    for start in range(0, len(missed), _AT_ONCE):
                        yield b"".join(missed[start : start + _AT_ONCE])
                    continue
                entries, number = [entry for entry in notes.after(number) if entry.number <= until], until
                for start in range(0, len(entries), _AT_ONCE):
                    yield self._changes(entries[start : start + _AT_ONCE])
                if number >= until:
                    until = await notes.gathered(number)

        return Response(200, events=events())


def _names(asked: Subject, found: Subject) -> bool:
    """Whether the request *asked* means *found*."""
    container = found.container or asked.container or ""  # a pod that was refused as a whole has no container
    return asked.is_owner(f"{found.namespace or 'default'}/{found.pod}/{container}")


def _change(entry: Entry) -> bytes:
    """Return an entry as watchers get it."""
    return ServerSentEvent(json.dumps(entry.public()), id=str(entry.number), name="change").encode()
