"""The read-only API without a network: every answer to any question is as its document says; streams resume."""

from __future__ import annotations

import asyncio
import json
import string
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.caching import CacheUsage
from pinfold.core.config import Config, Reservation
from pinfold.core.events.about import Audience, PodName
from pinfold.core.events.daemon import Warned
from pinfold.core.events.decisions import Assigned, Refused, Released
from pinfold.core.events.entries import Entry
from pinfold.core.explaining.explanation import NOT_KEPT
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
from pinfold.core.snapshot import Figures
from pinfold.core.state import State
from pinfold.manager.admitting import Refusal
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node
from pinfold.manager.saving.store import StateStore
from pinfold.manager.sources.kept import KeptWorkloads
from pinfold.manager.sources.supervisor import Supervisor
from pinfold.manager.sources.workbook import Workbook
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.manager.views import Viewer
from pinfold.node.journal.files import DIRECTORY
from pinfold.node.journal.journal import Journal
from pinfold.node.outputs.outputs import Outputs
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher
from pinfold.serve.api import API, Views
from pinfold.serve.http.answers import prepare, write
from pinfold.serve.http.messages import HTTPError, Peer, Request, Response, Written
from pinfold.serve.metrics.counters import Counters
from pinfold.serve.metrics.metrics import Metrics
from pinfold.serve.openapi import document
from pinfold.serve.page import Page
from tests.now import now
from tests.property.strategies import guaranteed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping

MACHINE: Final = from_shape("cores:4,threads:2")
RESERVED: Final = CPUSet.of(0)
ADMITTER: Final = Config("static", reserved=Reservation.of(RESERVED)).build(MACHINE)
ABOUT: Final[Mapping[str, object]] = {
    "options": {},
    "topology_policy": "none",
    "topology_scope": "container",
    "topology_options": {},
    "fidelity": "pinfold",
    "reserved": str(RESERVED),
    "runtime": "simulated",
    "groups": "simulated",
    "host": "node-7",
    "weaker": ["nothing really runs"],
    "machine": "a small one",
    "read_only": False,
}
LONGEST: Final = 20.0
READ: Final = sorted(path.removeprefix("/api/v1/") for path in document()["paths"] if path.startswith("/api/"))
"""What can be asked for."""
KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class Stand:
    """A node on the simulated machine, and the API that shows it."""

    def __init__(self, directory: Path, *, journal: bool = True) -> None:
        self.journal = Journal(directory / DIRECTORY, clock=time.time, tell=lambda _: None)
        self.bus = Bus(time.time)
        if journal:
            self.bus.number = self.journal.last
            self.bus.keep(self.journal.append, Audience.JOURNAL)
        applier, roster = SimulatedApplier(), Roster()
        launcher = SimulatedLauncher(applier)
        rules = Rules(ADMITTER, MACHINE, StateStore(directory, ADMITTER.policy))
        state = ADMITTER.policy.start(State.new())
        self.manager = Manager(rules, state, applier, roster, Telling(self.bus))
        now(self.manager.start())
        self.node = Node(self.manager, roster, self.bus)
        self.node.link = ("connected", "")
        workbook = Workbook(
            roster,
            launcher,
            KeptWorkloads(directory),
            self.bus,
            Outputs(directory / "logs"),
        )
        self.host = Supervisor(self.node, launcher, workbook, self.bus)
        self.views = Views(Viewer(self.node, ABOUT, {"connected"}, Figures), self.bus, self.journal)
        self.bus.keep(self.views.take, Audience.JOURNAL)
        counters = Counters(ADMITTER, now=0.0)
        self.bus.subscribe(counters.hear)
        metrics = Metrics(self.views.look, counters, process=dict)
        self.api = API(self.views, lambda: metrics, Page())
        self.manager.tell_state()

    def submit(self, name: str, milli: int, namespace: str = "default") -> None:
        resources = guaranteed(milli)
        container = Container("app", resources, command=("sleep",))
        with suppress(Refusal):
            now(self.host.submit(Pod(PodUID(f"{namespace}-{name}"), name, namespace, containers=(container,))))

    async def get(self, path: str, query: Mapping[str, str] | None = None, **headers: str) -> Response:
        asked = {name.replace("_", "-"): value for name, value in headers.items()}
        segments = tuple(part for part in path.split("/") if part)
        return await self.api.handle(Request("GET", path, query or {}, b"", Peer(-1, -1, -1, "x"), asked, segments))

    async def ask(self, path: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON of the API
        """Return the data that comes, or the error."""
        try:
            return json.loads(prepare(await self.get(path, query)).body)
        except HTTPError as error:
            return error

    async def events(self, count: int, then: Callable[[], None] = lambda: None, **headers: str) -> list[dict[str, Any]]:
        """Return the next events of a stream; when it has begun, let something happen."""
        stream = await self.stream(**headers)
        then()
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += await changes(stream)
        await stream.aclose()
        return found

    async def stream(self, **headers: str) -> AsyncGenerator[bytes]:
        """Return a stream that has begun."""
        stream: Any = (await self.get("/events", None, **headers)).events  # a generator of bytes, which are events too
        assert await anext(stream) == b"event: hello\nretry: 1000\ndata: {}\n\n"
        return stream  # type: ignore[no-any-return] # see above

    def tell(self, *texts: str) -> None:
        for text in texts:
            self.bus.tell(Warned(text))
        self.bus.flush()

    async def leave(self) -> None:
        await self.host.leave()
        self.journal.close()


async def changes(stream: AsyncGenerator[bytes]) -> list[dict[str, Any]]:
    """Return the events that come next, all at once."""
    *texts, rest = (await asyncio.wait_for(anext(stream), LONGEST)).decode().split("\n\n")
    assert rest == ""
    fields = [dict(line.split(": ", 1) for line in text.split("\n")) for text in texts]
    found = [json.loads(event["data"]) for event in fields]
    assert [(event["event"], event["id"]) for event in fields] == [("change", str(data["number"])) for data in found]
    return found


def play(
    scenario: Callable[[Stand], Coroutine[None, None, None]], directory: Path | None = None, *, journal: bool = True
) -> None:
    """Play a scenario on a node of its own, or on one that was before, in a directory."""

    async def played(place: Path) -> None:
        node = Stand(place, journal=journal)
        try:
            await asyncio.wait_for(scenario(node), LONGEST)
        finally:
            await node.leave()

    with tempfile.TemporaryDirectory() as place:
        asyncio.run(played(directory or Path(place)))


def differences(value: object, schema: dict[str, Any], where: str = "") -> list[str]:
    """Return where JSON is not as a schema says."""
    kinds = schema.get("type", list(KINDS))
    allowed = tuple(kind for name in ([kinds] if isinstance(kinds, str) else kinds) for kind in KINDS[name])
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        return [f"{where}: {value!r} is no {kinds}"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [found for index, item in enumerate(value) for found in differences(item, items, f"{where}[{index}]")]
    if not isinstance(value, dict):
        return []
    named, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    missing = [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
    inner = (differences(item, named.get(name, others), f"{where}.{name}") for name, item in value.items())
    return missing + [found for each in inner for found in each]


def schema_of(what: str) -> dict[str, Any]:
    answer = document()["paths"][f"/api/v1/{what}"]["get"]["responses"]["200"]
    schema: dict[str, Any] = answer["content"]["application/json"]["schema"]
    return schema


def refused_pod(name: str, reason: str, message: str) -> Refused:
    pod = PodName("default", name, name)
    return Refused(pod=pod, reason=reason, message=message, need="", room="", fixes=(), document={})


async def busy(node: Stand) -> None:
    """Let containers have CPUs, share, be refused and leave."""
    node.submit("gone", 1000)
    await node.host.delete("gone", "default")
    node.submit("web", 2000)
    node.submit("half", 500)
    node.submit("big", 100_000)


@pytest.mark.parametrize("what", READ)
def test_every_answer_is_as_its_document_says(what: str) -> None:
    async def scenario(node: Stand) -> None:
        if what != "explain":  # there is no container yet
            assert differences(await node.ask(f"/api/v1/{what}", {}), schema_of(what), what) == []
        await busy(node)
        for name in ("web", "half", "big", "gone"):
            found = await node.ask(f"/api/v1/{what}", {"container": name} if what == "explain" else {})
            assert differences(found, schema_of(what), what) == []

    play(scenario)


TEXTS: Final = st.text(max_size=30) | st.text(string.digits + "-+.eE,!/aninf", max_size=12)
QUERIES: Final = st.dictionaries(
    st.sampled_from(["since", "until", "limit", "what", "after", "cpu", "container", "time", "x"]), TEXTS, max_size=4
)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(["history", "at", "explain"]), QUERIES), min_size=20, max_size=40))
def test_any_request_gets_the_documented_answer_or_a_short_reason(
    asked: list[tuple[str, dict[str, str]]],
) -> None:
    async def scenario(node: Stand) -> None:
        await busy(node)
        for what, query in asked:
            found = await node.ask(f"/api/v1/{what}", query)
            if isinstance(found, HTTPError):
                assert str(found.status) in document()["paths"][f"/api/v1/{what}"]["get"]["responses"], (what, query)
                assert len(str(found)) < 300
                assert "\n" not in str(found)
            else:
                assert differences(found, schema_of(what), what) == [], query

    play(scenario)


@given(st.lists(TEXTS.filter(lambda part: "/" not in part), max_size=4))
def test_any_path_gets_an_answer_or_not_found(parts: list[str]) -> None:
    async def scenario(node: Stand) -> None:
        request = Request("GET", "/", {}, b"", Peer(-1, -1, -1, "x"), {}, tuple(parts))
        try:
            prepare(await node.api.handle(request))
        except HTTPError as error:
            refused = error
        else:
            return
        assert refused.status == 404
        assert len(str(refused)) < 300

    play(scenario)


def test_pods_of_one_name_in_two_namespaces_have_their_own_explanations() -> None:
    async def scenario(node: Stand) -> None:
        node.submit("web", 1000, "one")
        node.submit("web", 2000, "two")
        await node.host.delete("web", "two")
        one, two = [await node.ask("/api/v1/explain", {"container": f"{name}/web/app"}) for name in ("one", "two")]
        assert (one["container"], one["cpus"]) == ("one/web/app", str(node.manager.state.exclusive))
        assert (two["container"], two["cpus"]) == ("two/web/app", None)

    play(scenario)


def test_without_a_journal_the_last_decisions_are_explained_all_the_same() -> None:
    async def scenario(node: Stand) -> None:
        await busy(node)
        for name, reason in {"web": None, "big": "UnexpectedAdmissionError"}.items():
            found = await node.ask("/api/v1/explain", {"container": name})
            assert (found["refusal"] and found["refusal"]["reason"]) == reason
        assert (await node.ask("/api/v1/explain", {"container": "nobody"})).status == 404
        assert await node.ask("/api/v1/history", {}) == {"entries": [], "first": None, "more": False}

    play(scenario, journal=False)


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
@pytest.mark.parametrize("asked", ["web", "web/app", "default/web/app"])
def test_a_pod_that_was_refused_as_a_whole_is_explained(asked: str, *, journal: bool) -> None:
    async def scenario(node: Stand) -> None:
        node.bus.tell(refused_pod("web", "TopologyAffinityError", "no"))
        node.bus.tell(replace(refused_pod("default", "TopologyAffinityError", "no"), container="web"))  # another pod
        found = await node.ask("/api/v1/explain", {"container": asked})
        assert found["container"] == ("default/web" if asked == "web" else "default/web/app")
        assert found["why"] == "TopologyAffinityError: no"

    play(scenario, journal=journal)


def test_the_last_decision_is_what_is_explained_without_a_journal() -> None:
    async def scenario(node: Stand) -> None:
        for message in ("first", "last"):
            node.bus.tell(refused_pod("a", "no", message))
            node.bus.tell(Released(PodName("default", "b", "b"), "app"))
        node.bus.tell(Assigned(PodName("default", "b", "b"), "app", CPUSet.of(1)))
        assert (await node.ask("/api/v1/explain", {"container": "a/app"}))["why"] == "no: last"
        assert (await node.ask("/api/v1/explain", {"container": "b"}))["cpus"] == "1"

    play(scenario, journal=False)


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_of_a_container_that_has_left_only_the_journal_knows(*, journal: bool) -> None:
    async def scenario(node: Stand) -> None:
        node.bus.tell(Assigned(PodName("default", "b", "b"), "app", CPUSet.of(1)))
        node.bus.tell(Released(PodName("default", "b", "b"), "app"))
        found = await node.ask("/api/v1/explain", {"container": "b/app"})
        assert found["why"] == "it released its CPUs" if journal else found.status == 404

    play(scenario, journal=journal)


@pytest.mark.parametrize("what", ["history", "at"])
def test_what_is_read_from_the_journal_is_written_where_it_is_read(what: str) -> None:
    async def scenario(node: Stand) -> None:
        await busy(node)
        assert isinstance((await node.get(f"/api/v1/{what}")).data, Written)

    play(scenario)


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_is_written_piece_by_piece_is_what_would_be_written_at_once(data: dict[str, object]) -> None:
    assert prepare(Response(200, write(data))).body == prepare(Response(200, data)).body


def test_a_daemon_whose_disk_takes_nothing_is_not_ready_and_says_so() -> None:
    async def scenario(node: Stand) -> None:
        node.manager.saves.unsaved = "state: No space left on device"
        with pytest.raises(HTTPError, match="not saved: state: No space left on device") as refused:
            await node.get("/readyz")
        assert refused.value.status == 503
        assert (await node.get("/healthz")).status == 200

    play(scenario)


def test_a_daemon_is_ready_while_it_is_connected_and_says_why_not() -> None:
    async def scenario(node: Stand) -> None:
        assert (await node.get("/readyz")).content == b"ok\n"
        node.node.link = ("registered", "containerd 2.0\nand\tmore" + "!" * 1000)
        with pytest.raises(HTTPError, match=r"is registered: containerd 2\.0 and more!") as refused:
            await node.get("/readyz")
        assert (refused.value.status, refused.value.reason) == (503, "NotReady")
        assert len(str(refused.value)) <= 200
        assert (await node.get("/healthz")).content == b"ok\n"
        node.node.link = ("closed", "")
        with pytest.raises(HTTPError, match=r"is closed$"):
            await node.get("/readyz")
        node.node.link = ("connected", "")
        assert (await node.get("/readyz")).status == 200

    play(scenario)


def test_decisions_are_known_again_after_a_restart(tmp_path: Path) -> None:
    told: list[object] = []

    async def explained(node: Stand) -> None:
        if not told:
            await busy(node)
        told.append([await node.ask("/api/v1/explain", {"container": name}) for name in ("web/app", "big/app")])

    play(explained, tmp_path)
    play(explained, tmp_path)
    assert told[0] == told[1]


def test_very_many_decisions_leave_the_latest_known() -> None:
    async def scenario(node: Stand) -> None:
        for number in range(12_000):
            fields = {"namespace": "default", "pod": f"p{number}", "container": "app", "cpus": "1"}
            node.views.take(Entry(number + 1, 1.0, "assigned", fields))
        assert (await node.ask("/api/v1/explain", {"container": "p11999"}))["cpus"] == "1"

    play(scenario, journal=False)


# -- events


def test_a_stream_begins_with_what_comes() -> None:
    async def scenario(node: Stand) -> None:
        node.tell("before")
        found = await node.events(2, lambda: node.tell("one", "two"))
        assert [event["text"] for event in found] == ["one", "two"]

    play(scenario)


@pytest.mark.parametrize("last", ["", "-1", "x", "1.5", "\N{SUPERSCRIPT TWO}", "9" * 30, "999999"])
def test_a_number_that_cannot_be_ours_begins_with_what_comes(last: str) -> None:
    async def scenario(node: Stand) -> None:
        def happen() -> None:
            node.tell("one")
            asyncio.get_running_loop().call_later(0.1, node.tell, "two")  # who has missed the first is not left waiting

        node.tell("before")
        assert (await node.events(1, happen, last_event_id=last))[0]["text"] == "one"

    play(scenario)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_resuming_loses_nothing_and_repeats_nothing(counts: list[int]) -> None:
    async def scenario(node: Stand) -> None:
        last, told = str(node.bus.number), []
        for count in counts:
            node.tell(*["happened"] * count)
            told += [event["number"] for event in await node.events(count, last_event_id=last)]
            last = str(told[-1])
        assert told == [entry.number for entry in node.bus.after(0) if entry.fields.get("text") == "happened"]

    play(scenario)


def test_what_memory_no_longer_has_comes_from_the_journal(tmp_path: Path) -> None:
    async def before(node: Stand) -> None:
        node.tell(*["old"] * 5)

    async def after(node: Stand) -> None:
        node.tell(*["new"] * 2500)  # more than is kept in memory
        kept = [entry.number for entry in node.journal.entries() if entry.fields.get("text") in {"old", "new"}]
        last = kept[1]
        found = await node.events(len(kept) - 2, last_event_id=str(last))
        assert [event["number"] for event in found] == kept[2:]

    play(before, tmp_path)
    play(after, tmp_path)


def test_much_that_was_missed_comes_in_pieces_and_whole(tmp_path: Path) -> None:
    async def before(node: Stand) -> None:
        for _ in range(300):
            node.tell("x" * 20_000)

    async def after(node: Stand) -> None:
        kept = [entry.number for entry in node.journal.entries() if entry.what != "state"]
        missed, number = await node.views.missed(0, node.bus.first)
        assert sum(map(len, missed)) < 1_100_000
        assert kept[0] < number < kept[-1]
        found = await node.events(len(kept), last_event_id="0")
        assert [event["number"] for event in found] == kept

    play(before, tmp_path)
    play(after, tmp_path)


def test_states_are_not_told_to_watchers() -> None:
    async def scenario(node: Stand) -> None:
        def happen() -> None:
            node.manager.tell_state()
            node.tell("one")

        assert [event["text"] for event in await node.events(1, happen)] == ["one"]

    play(scenario)


def test_what_all_watchers_get_is_written_once_and_comes_together() -> None:
    async def scenario(node: Stand) -> None:
        streams = [await node.stream() for _ in range(20)]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)  # now they wait
        node.tell("one", "two")
        pieces = await asyncio.gather(*waiting)
        assert all(piece is pieces[0] for piece in pieces)
        assert pieces[0].count(b"event: change\n") == 2
        for stream in streams:
            await stream.aclose()

    play(scenario)


def test_watchers_that_have_fallen_apart_all_get_everything() -> None:
    async def scenario(node: Stand) -> None:
        streams = [await node.stream() for _ in range(10)]
        seen: list[list[object]] = [[] for _ in streams]
        for turn in range(10):
            node.tell("happened", "happened")
            for stream, mine in zip(streams[turn % 3 :: 3], seen[turn % 3 :: 3], strict=True):
                mine += [event["number"] for event in await changes(stream)]
        last = node.bus.number
        for stream, mine in zip(streams, seen, strict=True):
            while not mine or mine[-1] != last:
                mine += [event["number"] for event in await changes(stream)]
            assert mine == [entry.number for entry in node.bus.after(0) if entry.fields.get("text") == "happened"]
            await stream.aclose()

    play(scenario)


def test_a_watcher_that_was_slow_gets_from_the_journal_what_memory_no_longer_has() -> None:
    async def scenario(node: Stand) -> None:
        stream = await node.stream()
        node.tell("first")
        found = await changes(stream)
        node.tell(*["happened"] * 5000)
        while found[-1]["number"] != node.bus.number:
            more = await changes(stream)
            assert len(more) <= 100  # a piece is no larger, however much there is
            found += more
        kept = [entry.number for entry in node.journal.entries() if entry.fields.get("text") in {"first", "happened"}]
        assert [event["number"] for event in found] == kept

    play(scenario)


def test_the_use_of_the_cache_is_told_of_the_containers_for_which_it_is_counted() -> None:
    async def scenario(stand: Stand) -> None:
        stand.submit("counted", 1000)
        stand.submit("other", 500)
        look, use = stand.views.look, CacheUsage(ContainerRef(PodUID("default-counted"), "app"), 1 << 20, None)
        stand.views.look = lambda *, closely=False: look(closely=closely)._replace(cache_usage=[use])
        rows = await stand.ask("/api/v1/containers", {})
        assert {row["pod"]: row["cache"] for row in rows} == {
            "counted": {"occupancy": 1 << 20, "traffic": None},
            "other": None,
        }
        assert differences(rows, document()["paths"]["/api/v1/containers"]["get"]["responses"]["200"]) == []

    play(scenario)


def test_metrics_count_all_that_has_happened_until_then() -> None:
    async def scenario(stand: Stand) -> None:
        await stand.host.reserve("web", 1)
        text = prepare(await stand.get("/metrics")).body.decode()
        assert "kubelet_topology_manager_admission_requests_total 1" in text.splitlines()

    play(scenario)


def test_why_a_container_has_its_cpus_is_known_as_soon_as_it_has_them() -> None:
    async def scenario(stand: Stand) -> None:
        await stand.host.reserve("web", 1)
        (row,) = stand.views.containers()
        assert row["why"] != NOT_KEPT
        assert [row] == (await stand.get("/api/v1/containers")).data

    play(scenario)
