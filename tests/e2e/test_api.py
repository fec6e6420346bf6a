"""What a daemon shows over TCP and by PodResources, from outside: true, kept over restarts, read-only, robust."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote

import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import pinfold
from pinfold.core.cpuset import CPUSet
from pinfold.proto import podresources_pb2 as pb
from pinfold.serve.limits import REMOTE
from tests.e2e.daemon import PATIENCE, Daemon, allowed, container, needs_two_cpus, pod, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from google.protobuf.message import Message

Data = dict[str, Any]  # Any: JSON of the daemon

MACHINE: Final = "epyc-7303-2s"
SIMULATED: Final = ("--runtime", "simulated", "--preset", MACHINE)
HOSTILE: Final = 10 << 20
"""As many bytes as nobody needs to ask a question."""
LIVE: Final = 1.0
"""Seconds within which a change is to be seen."""
_PAGE: Final = re.compile(r"page http://(\S+):(\d+)/")
_GROWTH: Final = 8 << 20


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:  # noqa: ANN401 - JSON of the daemon
        return json.loads(self.body)


class Event(NamedTuple):
    """One event of a stream."""

    id: str
    name: str
    data: Data


class Web:
    """A client of what a daemon shows over TCP."""

    def __init__(self, daemon: Daemon) -> None:
        found = _PAGE.search(daemon.ready)
        assert found is not None, daemon.ready
        self.host, self.port = found[1], int(found[2])

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        with closing(HTTPConnection(self.host, self.port, timeout=PATIENCE)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def get(self, what: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        answer = self.ask(f"/api/v1/{what}")
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json"
        return answer.data

    def explain(self, who: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        return self.get(f"explain?container={quote(who, safe='')}")

    def entries(self, **query: str) -> list[Data]:
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        entries: list[Data] = self.get(f"history?{asked}")["entries"]
        return entries

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)


class Stream:
    """A client that watches what happens."""

    def __init__(self, web: Web, after: str | None = None) -> None:
        self._connection = HTTPConnection(web.host, web.port, timeout=PATIENCE)
        self._connection.request("GET", "/events", headers={} if after is None else {"Last-Event-ID": after})
        self.answer: HTTPResponse = self._connection.getresponse()
        assert self.answer.status == 200
        assert self.block() == {"event": "hello", "retry": "1000", "data": "{}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._connection.close()

    def block(self) -> dict[str, str]:
        """Return the fields of what comes next; a comment, which says that the server is there, has none."""
        lines = list(iter(lambda: self.answer.readline().decode().rstrip("\n"), ""))
        assert lines, "the stream has ended"
        return dict(line.split(": ", 1) for line in lines if not line.startswith(":"))

    def next(self) -> Event:
        """Return the next event."""
        fields = self.block() or self.block()
        return Event(fields["id"], fields["event"], json.loads(fields["data"]))

    def until(self, last: Callable[[Event], bool]) -> list[Event]:
        """Return the events up to one."""
        found = [self.next()]
        while not last(found[-1]):
            found.append(self.next())
        return found


def is_about(what: str, name: str) -> Callable[[Event], bool]:
    return lambda event: (event.data["what"], event.data.get("pod")) == (what, name)


def simulated(*options: str) -> Daemon:
    """Return a daemon for a machine that nobody has; what it starts does not run."""
    daemon = Daemon(*SIMULATED, *options, kind="affinity")
    daemon.groups = []
    return daemon


def in_namespace(namespace: str, text: str) -> str:
    return text.replace("metadata: {", f"metadata: {{namespace: {namespace}, ", 1)


def rss(daemon: Daemon) -> int:
    """Return how much memory a daemon has."""
    line = next(line for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) << 10


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with simulated() as started:
        yield started.start()


@pytest.fixture
def web(daemon: Daemon) -> Web:
    return Web(daemon)


@pytest.fixture(scope="module", params=["simulated", pytest.param("processes", marks=needs_two_cpus)])
def node(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Return a daemon that has assigned, shared, refused and released; nobody changes it any more."""
    with simulated() if request.param == "simulated" else Daemon() as started:
        started.start()
        started.apply(pod("gone", container(cpus=1)))
        started.delete("gone")
        started.apply(pod("web", container(cpus=1)), pod("db", container(name="sql")), pod("big", container(cpus=500)))
        wait_for(lambda: all(row["state"] == "running" for row in started.containers()), "everything runs")
        yield started


@pytest.fixture
def seen(node: Daemon) -> Web:
    return Web(node)


# -- what is shown is what is so


def test_pools_are_those_of_get_and_of_the_state_file(node: Daemon, seen: Web) -> None:
    pools = seen.get("pools")
    own = {"offline": pools["offline"], "isolated": pools["isolated"]}
    assert json.loads(node.say("get", "pools", "-o", "json").stdout) | own == pools
    state = node.state()
    assert (CPUSet.parse(pools["shared"]), CPUSet.parse(pools["exclusive"])) == (state.shared, state.exclusive)
    assert CPUSet.parse(pools["assignable"]) == state.shared - CPUSet.parse(pools["reserved"])
    assert state.check(CPUSet.parse(pools["online"])) == []


def test_containers_are_those_of_the_control_socket_and_of_get(node: Daemon, seen: Web) -> None:
    rows = seen.get("containers")
    assert [{name: row[name] for name in row.keys() - {"alignment", "why"}} for row in rows] == node.containers()
    shown = json.loads(node.say("get", "-o", "json").stdout)
    assert [(row["pod"], row["cpus"] if row["exclusive"] else "shared", row["pid"]) for row in rows] == [
        (row["pod"], row["cpus"], row["pid"]) for row in shown
    ]
    assert {(row["pod"], row["container"], row["exclusive"]) for row in rows} == {
        ("web", "app", True),
        ("db", "sql", False),
    }


def test_exclusive_cpus_are_those_of_the_state_file_and_of_the_kernel(node: Daemon, seen: Web) -> None:
    state, uids = node.state(), {row["name"]: row["uid"] for row in seen.get("pods")}
    for row in seen.get("containers"):
        assert (row["cpus"] == str(state.cpus(uids[row["pod"]], row["container"]))) is row["exclusive"]
        assert row["cpus"] == row["allowed"]
        assert allowed(row["pid"]) in (set(), {row["cpus"]})  # nothing, where nothing really runs


def test_own_cpus_come_with_their_alignment_and_all_come_with_a_reason(seen: Web) -> None:
    rows = {row["pod"]: row for row in seen.get("containers")}
    fewest = dict.fromkeys(("cores", "uncore_caches", "numa_nodes", "sockets"), 1)
    assert rows["web"]["alignment"] == fewest | {"fewest": fewest}
    assert rows["db"]["alignment"] is None
    assert "took " in rows["web"]["why"]
    assert "not Guaranteed" in rows["db"]["why"]


def test_topology_is_that_of_the_command_line_and_of_the_control_socket(node: Daemon, seen: Web) -> None:
    topology = seen.get("topology")
    assert topology == node.client.get("/v1/topology")
    if "simulated" in node.options:
        assert topology == json.loads(node.say("topology", "--preset", MACHINE, "-o", "json").stdout)


def test_pods_are_those_of_the_control_socket_and_of_get(node: Daemon, seen: Web) -> None:
    pods = seen.get("pods")
    assert pods == node.client.get("/v1/pods")
    shown = json.loads(node.say("get", "pods", "-o", "json").stdout)
    assert [(row["name"], row["qos"], row["kind"]) for row in pods] == [
        (row["pod"], row["qos"], row["kind"]) for row in shown
    ]
    assert {row["name"]: row["containers"] for row in pods} == {"web": ["app"], "db": ["sql"]}


def test_config_is_that_of_the_control_socket_and_of_the_running_daemon(node: Daemon, seen: Web) -> None:
    config = seen.get("config")
    assert config == node.client.get("/v1/config")
    about = node.client.get("/v1/node")
    assert {name: config[name] for name in config.keys() & about.keys()} == {
        name: about[name] for name in config.keys() & about.keys()
    }
    assert (config["version"], config["policy"], config["pid"]) == (pinfold.__version__, "static", node.pid)
    assert config["link"]["state"] == "connected"


def test_history_is_that_of_the_command_line_and_its_numbers_go_up(node: Daemon, seen: Web) -> None:
    entries = seen.entries()
    assert entries == [json.loads(line) for line in node.say("history", "-o", "json").stdout.splitlines()]
    numbers = [entry["number"] for entry in entries]
    assert numbers == sorted(set(numbers))
    assert [entry["what"] for entry in seen.entries(container="web/app", what="assigned,released")] == ["assigned"]
    assert {entry["what"] for entry in seen.entries(container="default/gone/app")} >= {"assigned", "released"}


def test_history_comes_in_pieces_that_together_are_all_of_it(seen: Web) -> None:
    pieces: list[Data] = []
    more = True
    while more:
        answer = seen.get(f"history?limit=2&after={pieces[-1]['number'] if pieces else 0}")
        pieces += answer["entries"]
        more = answer["more"]
        assert len(answer["entries"]) == 2 or not more
    assert pieces == seen.entries()


def test_what_was_at_a_time_is_what_the_entries_say(node: Daemon, seen: Web) -> None:
    for entry in seen.entries(what="state"):
        moment = seen.get(f"at?time={entry['time'] + 0.0005:.4f}")
        assert moment["known"]
        assert (moment["shared"], moment["exclusive"]) == (entry["shared"], entry["exclusive"])
    now, pools = seen.get("at"), seen.get("pools")
    assert now["shared"] == pools["shared"]
    assert list(now["exclusive"]) == ["default/web/app"]
    assert now["exclusive"]["default/web/app"] == pools["exclusive"]
    assert json.loads(node.say("history", "--at", "0s ago", "-o", "json").stdout)["exclusive"] == now["exclusive"]


def test_nothing_is_known_of_the_time_before_the_journal(seen: Web) -> None:
    moment = seen.get("at?time=5")
    assert (moment["known"], moment["shared"], moment["exclusive"], moment["since"]) == (False, "", {}, None)


def test_a_cpu_was_in_these_hands(seen: Web) -> None:
    cpu = CPUSet.parse(seen.get("pools")["exclusive"]).lowest
    answer = seen.get(f"history?cpu={cpu}")
    owners = [tenure["owner"] for tenure in answer["tenures"]]
    assert owners[-1] == "default/web/app"
    assert answer["tenures"][-1]["until"] is None
    assert None in owners


@pytest.mark.parametrize("who", ["web/app", "default/web/app", "web", "db/sql", "big/app", "gone/app"])
def test_explanation_is_that_of_the_command_line(node: Daemon, seen: Web, who: str) -> None:
    assert json.loads(node.say("explain", who, "-o", "json").stdout) == seen.explain(who)


def test_explanations_tell_of_own_cpus_shared_ones_and_none(seen: Web) -> None:
    web, db, big = (seen.explain(name) for name in ("web/app", "db/sql", "big/app"))
    assert web["cpus"] == seen.get("pools")["exclusive"]
    assert web["steps"]
    assert (db["cpus"], db["refusal"]) == (None, None)
    assert "not Guaranteed" in db["why"]
    assert (big["cpus"], big["refusal"]["reason"]) == (None, "UnexpectedAdmissionError")


def test_refused_pod_is_told_what_would_help(seen: Web) -> None:
    refusal = seen.explain("big/app")["refusal"]
    assert refusal["need"].startswith("needs ")
    assert all(fix.startswith("would fit ") for fix in refusal["fixes"])
    if "can be given (" in refusal["room"]:
        assert [fix for fix in refusal["fixes"] if re.fullmatch(r"would fit with \d+ CPUs?", fix)]


def test_what_pods_run_is_not_shown(node: Daemon, seen: Web) -> None:
    secret = "hunter2"  # noqa: S105 - one that must not be found
    host_pod = pod("secretive", container("sleep 1000", more=f"env: [{{name: PASSWORD, value: {secret}}}]"))
    node.apply(host_pod)
    said = json.dumps([seen.get(what) for what in ("history", "containers", "pods", "config")])
    assert "secretive" in said
    assert secret not in said
    assert "sleep 1000" not in said
    node.delete("secretive")


def test_unknown_names_and_wrong_questions_get_a_reason(seen: Web) -> None:
    cases = {
        "nothing": 404,
        "explain?container=nobody/app": 404,
        "explain?container=a/b/c/d": 400,
        "explain": 400,
        "history?since=yesterday": 400,
        "history?limit=0": 400,
        "history?limit=10001": 400,
        "history?cpu=-1": 400,
        "history?what=%3Cimg%3E": 400,
        "at?time=nan": 400,
        "at?time=inf": 400,
        "at?time=%FF": 400,
    }
    answers = {what: seen.ask(f"/api/v1/{what}") for what in cases}
    assert {what: answer.status for what, answer in answers.items()} == cases
    for answer in answers.values():
        assert answer.data.keys() == {"reason", "message"}
        assert len(answer.body) < 500
    for path in (
        "/api",
        "/api/v1",
        "/api/v1/pools/x",
        "/v1/node",
        "/v1/pods",
        "/static/nothing",
        "/static/..%2Fapi.py",
    ):
        assert seen.ask(path).status == 404, path


def test_metrics_are_of_the_same_state_in_both_formats(node: Daemon, seen: Web) -> None:
    plain = seen.ask("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    openmetrics = seen.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    pools = {name: len(CPUSet.parse(text)) for name, text in seen.get("pools").items()}
    both = (parse_text(plain.body.decode()), parse_openmetrics(openmetrics.body.decode()))  # type: ignore[no-untyped-call] # has no types
    for families in both:
        samples = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
        assert {name: samples["pinfold_pool_cpus", name] for name in pools} == pools
        assert samples["kubelet_cpu_manager_exclusive_cpu_allocation_count",] == len(node.state().exclusive)
        assert samples["kubelet_cpu_manager_pinning_errors_total",] == 1
        assert samples["pinfold_overlap_seconds_total",] == 0
        assert samples["pinfold_refusals_total", "UnexpectedAdmissionError"] == 1


def test_the_page_may_run_only_its_own_scripts(seen: Web) -> None:
    page = seen.ask("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="/?(static/[^"]+)"', page.body.decode())
    assert names
    assert {seen.ask(f"/{name}").status for name in names} == {200}


def test_every_answer_is_as_it_is_for_all_who_look(seen: Web) -> None:
    for path in ("/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/api/v1/pools", "/nothing"):
        whole, head = seen.ask(path), seen.ask(path, method="HEAD")
        assert (head.status, head.body) == (whole.status, b"")
        assert whole.headers["cache-control"] == "no-store"
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert not {name for name in whole.headers if name.startswith("access-control")}
    assert [seen.ask(path).body for path in ("/healthz", "/readyz")] == [b"ok\n", b"ok\n"]


# -- over restarts


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_history_moments_and_explanations_outlive_the_daemon(daemon: Daemon, number: signal.Signals) -> None:
    daemon.apply(pod("web", container(cpus=4)), pod("big", container(cpus=500)))
    web = Web(daemon)
    entries, moment = web.entries(), web.get("at")
    told = {who: web.explain(who) for who in ("web/app", "big/app")}
    daemon.restart(number=number)
    web = Web(daemon)
    assert {who: web.explain(who) for who in told} == told
    again = web.entries()
    assert again[: len(entries)] == entries
    numbers = [entry["number"] for entry in again]
    assert numbers == sorted(set(numbers))
    then = web.get(f"at?time={moment['time']}")
    assert (then["shared"], then["exclusive"]) == (moment["shared"], moment["exclusive"])
    daemon.delete("web")
    assert web.get("at")["exclusive"] == {}
    assert web.get(f"at?time={moment['time']}") == then


def test_containers_keep_their_reason_over_a_restart(daemon: Daemon) -> None:
    daemon.apply(pod("web", container(cpus=4)), pod("db"))
    before = {row["pod"]: row["why"] for row in Web(daemon).get("containers")}
    daemon.restart()
    assert {row["pod"]: row["why"] for row in Web(daemon).get("containers")} == before


def test_pods_of_the_same_name_in_two_namespaces_are_not_mixed_up(daemon: Daemon, web: Web) -> None:
    daemon.apply(*(in_namespace(name, pod("web", container(cpus=2))) for name in ("one", "two")))
    told = web.explain("one/web/app")
    assert told["container"] == "one/web/app"
    daemon.client.delete("/v1/pods/two/web")
    wait_for(lambda: [row["namespace"] for row in web.get("pods")] == ["one"], "one is left")
    assert web.explain("one/web/app") == told
    assert web.explain("two/web/app")["cpus"] is None
    mine = web.entries(container="one/web/app", what="assigned,released")
    assert [entry["what"] for entry in mine] == ["assigned"]


# -- live


def test_a_change_is_seen_within_a_second(daemon: Daemon, web: Web) -> None:
    with Stream(web) as stream:
        assert stream.answer.getheader("content-type") == "text/event-stream"
        asked = time.monotonic()
        daemon.apply(pod("web", container(cpus=2)))
        events = stream.until(is_about("assigned", "web"))
        assert time.monotonic() - asked < LIVE
        kept = {entry["number"]: entry for entry in web.entries()}
        for event in events:
            assert (event.name, event.id) == ("change", str(event.data["number"]))
            assert kept[event.data["number"]].items() >= event.data.items()


def test_resuming_loses_nothing_and_repeats_nothing(daemon: Daemon, web: Web) -> None:
    names = [f"p{number}" for number in range(12)]
    with Stream(web) as whole:
        told: list[Event] = []
        after: str | None = None
        for name in names:
            with Stream(web, after) as stream:
                daemon.apply(pod(name, container(cpus=1)))
                told += stream.until(is_about("assigned", name))
                after = told[-1].id
        with Stream(web, after) as stream:  # what came when nobody watched
            for name in names:
                daemon.delete(name)
            told += stream.until(is_about("released", names[-1]))
        assert told == whole.until(is_about("released", names[-1]))


def test_resuming_after_a_restart_loses_nothing_and_repeats_nothing(daemon: Daemon) -> None:
    web = Web(daemon)
    with Stream(web) as stream:
        daemon.apply(pod("first", container(cpus=1)))
        last = stream.until(is_about("assigned", "first"))[-1].id
    daemon.apply(pod("second", container(cpus=1)))
    daemon.restart()
    web = Web(daemon)
    daemon.apply(pod("third", container(cpus=1)))
    with Stream(web, last) as stream:
        told = [event.data["number"] for event in stream.until(is_about("assigned", "third"))]
    kept = [entry["number"] for entry in web.entries(what="!state", after=last) if entry["number"] <= told[-1]]
    assert told == kept


def test_a_number_of_another_life_does_not_make_a_client_deaf(daemon: Daemon, web: Web) -> None:
    with Stream(web, "999999") as stream:
        daemon.apply(pod("web", container(cpus=1)))
        assert stream.until(is_about("assigned", "web"))


@pytest.mark.parametrize("last", ["", "x", "-1", "1" * 40, "\N{SUPERSCRIPT TWO}", "1;2"])
def test_a_number_that_is_none_begins_with_what_comes(daemon: Daemon, web: Web, last: str) -> None:
    daemon.apply(pod("before"))
    with Stream(web, last.encode().decode("latin-1")) as stream:
        daemon.apply(pod("after"))
        assert stream.next().data["pod"] in {"before", "after"}
        assert stream.until(is_about("started", "after"))


@pytest.mark.slow
def test_a_quiet_stream_shows_that_it_is_alive(web: Web) -> None:
    with Stream(web) as stream:
        begun = time.monotonic()
        assert stream.block() == {}
        assert REMOTE.heartbeat - 1 < time.monotonic() - begun < REMOTE.heartbeat + LIVE


def test_watchers_do_not_keep_a_daemon_from_ending(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(Stream(web)) for _ in range(8)]
        assert daemon.kill(signal.SIGTERM) == 0
        for stream in streams:
            assert b"" in iter(stream.answer.readline, None)


def test_more_watchers_than_are_served_are_told_so_and_the_others_go_on(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(Stream(web)) for _ in range(REMOTE.streams)]
        refused = web.ask("/events")
        assert (refused.status, refused.data["reason"]) == (503, "TooManyStreams")
        assert "retry-after" in refused.headers
        daemon.apply(pod("web", container(cpus=1)))
        for stream in streams:
            assert stream.until(is_about("assigned", "web"))
    wait_for(lambda: web.ask("/healthz").status == 200, "it goes on")


def test_a_watcher_that_does_not_read_does_not_hold_up_decisions(daemon: Daemon, web: Web) -> None:
    with web.connect() as deaf, Stream(web) as stream:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for number in range(60):
            daemon.apply(*(pod(f"p{number}-{one}") for one in range(10)))
        assert stream.until(is_about("started", "p59-9"))
        assert len(daemon.containers()) == 600


# -- read-only, and only for this host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/api/v1/pools", "/v1/pods", "/v1/pods/default/web", "/events", "/nothing"])
def test_nothing_can_be_changed(seen: Web, node: Daemon, method: str, path: str) -> None:
    before = node.containers()
    answer = seen.ask(path, method, body=b"{}")
    assert (answer.status, answer.data["reason"]) == (405, "MethodNotAllowed")
    assert answer.headers["allow"] == "GET, HEAD"
    assert node.containers() == before


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.7:9440", "a b", "[::2]"]
)
def test_requests_under_another_name_are_not_for_us(seen: Web, host: str) -> None:
    for path in ("/", "/api/v1/containers", "/events", "/metrics"):
        assert seen.ask(path, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9440"])
def test_this_host_has_several_names(seen: Web, host: str) -> None:
    assert seen.ask("/api/v1/pools", Host=host).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:1", ""])
def test_pages_of_others_may_not_ask(seen: Web, origin: str) -> None:
    for path in ("/api/v1/containers", "/events"):
        answer = seen.ask(path, Host="localhost", Origin=origin)
        assert (answer.status, answer.data["reason"]) == (403, "Forbidden")
    assert seen.ask("/api/v1/pools", Host="localhost", Origin="http://localhost").status == 200


# -- where it listens


def test_an_address_that_others_can_reach_is_refused_in_one_line() -> None:
    with simulated() as daemon:
        for address in ("0.0.0.0:0", ":0", "[::]:0"):
            ended = daemon.try_to_start("--listen", address)
            assert (ended.returncode, ended.stdout) == (2, "")
            assert "--allow-remote-read" in ended.stderr
            assert "--listen" in ended.stderr
            assert ended.stderr.count("\n") == 1


def test_others_may_read_if_that_is_said_but_only_under_an_address_or_our_name() -> None:
    with simulated() as daemon:
        web = Web(daemon.start("--listen", "0.0.0.0:0", "--allow-remote-read"))
        web.host = "127.0.0.1"
        assert web.ask("/api/v1/pools", Host=f"10.1.2.3:{web.port}").status == 200
        assert web.ask("/api/v1/pools", Host=socket.gethostname()).status == 200
        assert web.ask("/api/v1/pools", Host="evil.example").status == 421
        assert web.ask("/v1/pods", "POST", body=b"{}", Host="10.1.2.3").status == 405


def test_a_daemon_without_a_page_serves_the_control_socket_alone() -> None:
    with simulated() as daemon:
        daemon.start("--listen", "none")
        assert "page" not in daemon.ready
        assert daemon.containers() == []


def test_the_port_that_was_picked_is_printed(daemon: Daemon, web: Web) -> None:
    assert web.port not in {0, 9440}
    assert f"127.0.0.1:{web.port}" in daemon.ready
    assert web.ask("/healthz").status == 200


def test_a_given_port_that_is_taken_ends_the_start_in_one_line() -> None:
    with simulated() as daemon, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = daemon.try_to_start("--listen", address)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert address in ended.stderr
        assert "in use" in ended.stderr
        assert ended.stderr.strip().count("\n") == 0
        assert not daemon.socket.exists()
        assert daemon.start().containers() == []


def test_the_usual_port_being_taken_is_a_warning_and_the_daemon_runs_on() -> None:
    with simulated() as daemon, ExitStack() as stack:
        with suppress(OSError):  # somebody else has it already: just as well
            stack.enter_context(socket.create_server(("127.0.0.1", 9440)))
        daemon.where = daemon.where[: daemon.where.index("--listen")]
        daemon.start()
        assert "page" not in daemon.ready
        assert re.search(r"event=warning .*9440.*in use", daemon.said()), daemon.said()
        assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]


# -- hard to hurt


def ask_whole(web: Web, pieces: Iterable[bytes]) -> bytes:
    """Send all of this, as far as it is taken, and return what comes back."""
    with web.connect() as talk:
        with suppress(ConnectionError):
            for piece in pieces:
                talk.sendall(piece)
        answer = b""
        with suppress(ConnectionError):
            while piece := talk.recv(65536):
                answer += piece
        return answer


def test_a_request_of_10_mb_is_refused_and_costs_no_memory(daemon: Daemon, web: Web) -> None:
    web.get("pools")
    before = rss(daemon)
    piece, count = b"x" * 65536, HOSTILE // 65536
    first = b"GET /api/v1/pools HTTP/1.1\r\nHost: localhost\r\n"
    cases = {
        b"413": [first, b"Content-Length: %d\r\n\r\n" % HOSTILE, *[piece] * count],
        b"400": [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", *[piece] * count],
        b"431": [first, b"X: ", *[piece] * count],
        b"414": [b"GET /", *[piece] * count],
        b"413 ": [
            first,
            b"Transfer-Encoding: chunked\r\n\r\n",
            *[b"10000\r\n" + piece + b"\r\n"] * count,
        ],
    }
    for status, pieces in cases.items():
        for _ in range(3):
            answer = ask_whole(web, pieces)
            assert answer.split(b" ")[1] == status.strip(), (status, answer[:300])
    assert web.ask("/healthz").status == 200
    assert rss(daemon) - before < _GROWTH
    assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]


def test_clients_that_say_little_by_little_keep_nobody_waiting(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(web.connect()) for _ in range(REMOTE.connections - 8)]
        for talk in slow:
            talk.sendall(b"GET / HTTP/1.1\r\nHost: lo")
        with Stream(web) as stream:
            asked = time.monotonic()
            daemon.apply(pod("web", container(cpus=1)))
            assert stream.until(is_about("assigned", "web"))
            assert web.ask("/metrics").status == 200
            assert time.monotonic() - asked < LIVE
        for talk in slow:
            talk.sendall(b"c")
        assert web.ask("/healthz").status == 200


def test_more_clients_than_are_served_are_told_so_and_the_control_socket_goes_on(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(web.connect()) for _ in range(REMOTE.connections)]
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(65536).startswith(b"HTTP/1.1 200")
        refused = web.ask("/healthz")
        assert (refused.status, refused.data["reason"]) == (503, "TooManyConnections")
        assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]
    wait_for(lambda: web.ask("/healthz").status == 200, "there is room again")


@pytest.mark.slow
def test_a_request_that_does_not_come_to_an_end_is_cut_off(web: Web) -> None:
    with web.connect() as talk:
        begun = time.monotonic()
        talk.settimeout(0.5)
        answer = b""
        while not answer:
            assert time.monotonic() - begun < REMOTE.request + PATIENCE
            talk.sendall(b"G" if time.monotonic() == begun else b"E")
            with suppress(TimeoutError):
                answer = talk.recv(65536)
        assert b" 408 " in answer
        assert time.monotonic() - begun < REMOTE.request + LIVE


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 100, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ids=["zeros", "TLS", "half", "HTTP-2"],
)
def test_what_is_no_http_gets_an_answer_and_an_end(seen: Web, garbage: bytes) -> None:
    assert ask_whole(seen, [garbage, b"\r\n\r\n"]).startswith((b"HTTP/1.1 400", b"HTTP/1.1 505"))
    assert seen.ask("/healthz").status == 200


# -- PodResources


class Lister:
    """A gRPC client of PodResources."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def call(self, name: str, request: Message, reply: type[Message]) -> Any:  # noqa: ANN401 - any message
        async def ask() -> Message:
            channel = Channel(path=str(self._path))
            method = UnaryUnaryMethod(channel, f"/v1.PodResourcesLister/{name}", type(request), reply)
            try:
                return await method(request, timeout=PATIENCE)
            finally:
                channel.close()

        return asyncio.run(ask())

    def pods(self) -> Data:
        answer = self.call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
        return {
            f"{one.namespace}/{one.name}": {each.name: str(CPUSet.from_cpus(each.cpu_ids)) for each in one.containers}
            for one in answer.pod_resources
        }


def test_pod_resources_are_those_of_the_api_while_pods_come_and_go() -> None:
    with simulated() as daemon:
        path = daemon.place.directory / "kubelet" / "pr.sock"
        web = Web(daemon.start("--pod-resources-socket", str(path)))
        lister = Lister(path)
        assert lister.pods() == {}
        daemon.apply(pod("web", container(cpus=4), container(name="log", cpus=1)), pod("db"))
        rows = {(row["pod"], row["container"]): row["cpus"] for row in web.get("containers") if row["exclusive"]}
        web_cpus = {"app": rows["web", "app"], "log": rows["web", "log"]}
        assert lister.pods() == {"default/web": web_cpus, "default/db": {"app": ""}}
        found = lister.call("Get", _named("web"), pb.GetPodResourcesResponse).pod_resources
        assert {each.name: str(CPUSet.from_cpus(each.cpu_ids)) for each in found.containers} == web_cpus
        allocatable = lister.call(
            "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
        )
        pools = {name: CPUSet.parse(text) for name, text in web.get("pools").items()}
        assert CPUSet.from_cpus(allocatable.cpu_ids) == pools["online"] - pools["reserved"]
        daemon.delete("web")
        assert lister.pods() == {"default/db": {"app": ""}}
        with pytest.raises(GRPCError) as caught:
            lister.call("Get", _named("web"), pb.GetPodResourcesResponse)
        assert caught.value.status is Status.NOT_FOUND


def _named(name: str) -> pb.GetPodResourcesRequest:
    return pb.GetPodResourcesRequest(pod_name=name, pod_namespace="default")


def test_pod_resources_come_back_with_the_daemon_and_go_with_it() -> None:
    with simulated() as daemon:
        path = daemon.place.directory / "pr.sock"
        daemon.start("--pod-resources-socket", str(path))
        daemon.apply(pod("web", container(cpus=2)))
        before = Lister(path).pods()
        assert path.stat().st_mode & 0o777 == 0o600
        daemon.restart("--pod-resources-socket", str(path))  # killed: its socket is left behind
        assert Lister(path).pods() == before
        assert daemon.kill(signal.SIGTERM) == 0
        assert not path.exists()
