"""`pinfold history` and `pinfold explain`, from a journal's files and from a daemon on a socket."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from pinfold.cli.arguments.when import parse_when, show_when
from pinfold.cli.history import all_hands
from pinfold.cli.main import main
from pinfold.core.events.entries import Entry, Subject
from pinfold.errors import ParseError
from pinfold.node.journal.files import Archive
from pinfold.node.journal.history import answer_at, answer_history, explain_kept, parse_question
from pinfold.node.journal.journal import Journal
from pinfold.render.explanation import format_explanation
from pinfold.render.history import format_entry
from pinfold.render.machine.canvas import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

START = 1_763_248_320.0  # 2025-11-15T23:12:00Z
WEB = {"namespace": "default", "pod": "web", "container": "app"}
STEPS = [
    {"what": "passed over L3 0", "took": "", "why": "it has 1 CPU free"},
    {"what": "took core 17", "took": "17,49", "why": "2 CPUs were needed"},
]
ALIGNMENT = {"cores": 1, "uncore_caches": 2, "numa_nodes": 1, "sockets": 1}
FEWEST = {"cores": 1, "uncore_caches": 1, "numa_nodes": 1, "sockets": 1}
ENTRIES: list[tuple[float, str, dict[str, Any]]] = [
    (0, "state", {"shared": "0-63", "exclusive": {}}),
    (60, "state", {"shared": "0-16,18-48,50-63", "exclusive": {"default/web/app": "17,49"}}),
    (60.1, "assigned", {**WEB, "cpus": "17,49", "steps": STEPS, "alignment": {**ALIGNMENT, "fewest": FEWEST}}),
    (90, "started", {**WEB, "pid": 4711}),
    (120, "refused", {"namespace": "prod", "pod": "big", "reason": "TopologyAffinityError", "message": "no locality"}),
    (180, "released", WEB),
    (180.1, "state", {"shared": "0-63", "exclusive": {}}),
]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "journal", clock=lambda: START, tell=print)
    for number, (after, what, fields) in enumerate(ENTRIES, 1):
        journal.append(Entry(number, START + after, what, fields))
    journal.close()
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return what runs a verb: exit code, stdout and stderr; the zone is UTC."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def socket(state_dir: Path) -> Iterator[str]:
    """Answer as a daemon does, on a socket, a few entries at a time."""
    archive = Archive(state_dir / "journal")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            status, answer = self.answer(url.path, dict(parse_qsl(url.query)))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def answer(self, path: str, query: dict[str, str]) -> tuple[int, object]:
            if path == "/v1/history":
                return 200, answer_history(archive, parse_question({**query, "limit": "2"}))
            if path == "/v1/at":
                return 200, answer_at(archive, query)
            if path == "/v1/explain":
                found = explain_kept(archive, Subject.parse(query["container"]))
                return (404, {"message": "no such container"}) if found is None else (200, found.data())
            return 200, {}

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return ""

    path = str(state_dir / "s")
    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_who_was_on_a_cpu_at_a_time_is_one_line(call: Run, state_dir: Path) -> None:
    code, out, err = call("history", "--cpu", "17", "--at", "2025-11-15T23:14:00Z", "--state-dir", state_dir)
    assert (code, err) == (0, "")
    assert out == (
        "CPU 17: default/web/app, since 2025-11-15 23:13:00, until 2025-11-15 23:15:00: "
        "took core 17 (2 CPUs were needed)\n"
    )


def test_all_hands_of_a_cpu_are_listed(call: Run, state_dir: Path) -> None:
    _, out, _ = call("history", "--cpu", "49", "--state-dir", state_dir)
    assert [line.split(",")[0] for line in out.splitlines()] == [
        "CPU 49: shared pool",
        "CPU 49: default/web/app",
        "CPU 49: shared pool",
    ]
    _, out, _ = call("history", "--cpu", "49", "-n", "1", "--state-dir", state_dir)
    assert out == "CPU 49: shared pool, since 2025-11-15 23:15:00, until now: released by default/web/app\n"


def test_all_hands_of_a_cpu_come_also_in_several_answers() -> None:
    """A daemon tells a part at a time, and goes on from where that ends."""
    tenures: list[dict[str, Any]] = [
        {"pool": "shared", "since": None, "until": START},
        {"pool": "exclusive", "since": START, "until": START + 0.1234567},
        {"pool": "shared", "since": START + 0.1234567, "until": None},
    ]

    class Slow:
        def history(self, query: Mapping[str, str]) -> dict[str, Any]:
            since = float(query.get("since", "-inf"))
            left = [tenure for tenure in tenures if tenure["until"] is None or tenure["until"] > since]
            return {"cpu": 1, "tenures": left[:1], "first": START, "more": len(left) > 1}

        def at(self, time: float) -> dict[str, Any]:
            raise NotImplementedError

        def explain(self, container: str) -> dict[str, Any]:
            raise NotImplementedError

        def failure(self, container: str) -> dict[str, Any] | None:
            raise NotImplementedError

        def containers(self, subject: Subject) -> list[str]:
            raise NotImplementedError

    assert all_hands(Slow(), {"cpu": "1"})["tenures"] == tenures


def test_before_the_journal_begins_nothing_is_known(call: Run, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    assert call("history", "--cpu", "1", "--state-dir", tmp_path)[1] == "CPU 1: not known; the journal is empty\n"
    assert "not known; the journal begins later" in call("history", "--at", "1h", "--state-dir", tmp_path)[1]


def test_what_happened_is_a_line_each_without_states(call: Run, state_dir: Path) -> None:
    code, out, err = call("history", "--state-dir", state_dir)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2025-11-15 23:13:00  assigned      web/app  cpus=17,49",
        "2025-11-15 23:13:30  started       web/app  pid=4711",
        '2025-11-15 23:14:00  refused       prod/big  reason=TopologyAffinityError message="no locality"',
        "2025-11-15 23:15:00  released      web/app",
    ]


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7]),
        (("--what", "state"), [1, 2, 7]),
        (("--container", "web"), [3, 4, 6]),
        (("--container", "prod/big/any"), [5]),
        (("--since", "2025-11-15T23:14:00Z"), [5, 6, 7]),
        (("--until", "1763248380"), [1, 2]),
        (("-n", "2"), [6, 7]),
        (("--since", "1m"), []),
    ],
    ids=str,
)
def test_entries_are_chosen_the_same_from_files_and_from_a_daemon(
    call: Run, state_dir: Path, socket: str, args: tuple[str, ...], numbers: list[int]
) -> None:
    for where in (("--state-dir", state_dir), ("--socket", socket), ("--socket", socket, "--state-dir", state_dir)):
        code, out, _ = call("history", "-o", "json", *args, *where)
        assert code == 0
        assert [json.loads(line)["number"] for line in out.splitlines()] == numbers


def test_the_state_at_a_time_is_a_table(call: Run, state_dir: Path, socket: str) -> None:
    for where in (("--state-dir", state_dir), ("--socket", socket)):
        _, out, _ = call("history", "--at", "2025-11-15T23:14:00Z", *where)
        assert out.splitlines() == [
            "2025-11-15 23:14:00, as it was since 2025-11-15 23:13:00",
            "",
            "OWNER            CPUS              COUNT",
            "default/web/app  17,49                 2",
            "shared pool      0-16,18-48,50-63     62",
        ]
    code, out, _ = call("history", "--at", "2025-11-15T23:14:00Z", "--container", "web", "-o", "json", *where)
    assert json.loads(out)["exclusive"] == {"default/web/app": "17,49"}
    code, _, err = call("history", "--at", "2025-11-15T23:14:00Z", "--container", "db", *where)
    assert (code, "db had no CPUs of its own at 2025-11-15 23:14:00" in err) == (2, True)


def test_without_a_daemon_the_files_answer_if_they_are_named(call: Run, state_dir: Path) -> None:
    nobody = str(state_dir / "nobody")
    assert call("history", "--socket", nobody)[0] == 3
    assert call("history", "--socket", nobody, "--state-dir", state_dir)[0] == 0
    code, _, err = call("history", "--state-dir", state_dir / "missing")
    assert code == 2
    assert "there is no journal in" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--cpu", "-1"), "--cpu: -1 is not within 0 to 65535"),
        (("--cpu", "1", "--container", "x"), "leave out --container"),
        (("--at", "1h", "--since", "2h"), "use one or the other"),
        (("--at", "1h", "-n", "3"), "--at asks how it was at one time; leave out -n and --what"),
        (("--at", "1h", "--what", "refused"), "--at asks how it was at one time; leave out -n and --what"),
        (("--since", "soon"), '--since: "soon" is no time; expected 03:12, 10m ago'),
        (("--container", "a/b/c/d"), '"a/b/c/d" is not a container'),
        (("--what", "A B"), "is not a kind of entry"),
        (("-n", "0"), "-n: 0 is not 1 or more"),
        (("--state-dir", ""), "--state-dir: the path is empty"),
    ],
    ids=str,
)
def test_a_question_that_means_nothing_is_one_line(
    call: Run, state_dir: Path, args: tuple[str, ...], says: str
) -> None:
    code, out, err = call("history", "--state-dir", state_dir, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_cpus_are_explained_with_steps_and_what_was_passed_over(call: Run, state_dir: Path, socket: str) -> None:
    journal = Journal(state_dir / "journal", clock=lambda: START, tell=print)
    journal.append(Entry(8, START + 300, "assigned", ENTRIES[2][2]))
    journal.close()
    for where in (("--state-dir", state_dir), ("--socket", socket)):
        code, out, _ = call("explain", "web/app", *where)
        assert code == 0
        assert out.splitlines() == [
            "default/web/app has CPUs 17,49 since 2025-11-15 23:17:00",
            "  on 1 core, 2 L3, 1 NUMA node, 1 socket",
            "  on an empty node 1 L3 could hold them",
            "",
            "How they were chosen",
            "  1. took core 17: CPUs 17,49 (2 CPUs were needed)",
            "",
            "Looked at and passed over",
            "  - L3 0 (it has 1 CPU free)",
        ]
    assert json.loads(call("explain", "web/app", "-o", "json", *where)[1])["cpus"] == "17,49"


def test_a_refused_pod_and_a_gone_one_are_explained(call: Run, state_dir: Path) -> None:
    _, out, _ = call("explain", "prod/big/app", "--state-dir", state_dir)
    assert out == "prod/big/app was refused at 2025-11-15 23:14:00\n  [TopologyAffinityError: no locality]\n"
    _, out, _ = call("explain", "web/app", "--state-dir", state_dir)
    assert out == "default/web/app has no exclusive CPUs\n  it released its CPUs\n"


def test_an_unknown_container_is_an_error(call: Run, state_dir: Path, socket: str) -> None:
    assert call("explain", "who", "--state-dir", state_dir)[::2] == (
        2,
        "pinfold: error: the journal has no decision on who\n",
    )
    assert call("explain", "who", "--socket", socket)[::2] == (2, "pinfold: error: no such container\n")


def test_what_helps_a_refused_pod_is_told_within_80_columns() -> None:
    refusal = {
        "reason": "TopologyAffinityError",
        "message": "Resources cannot be allocated with Topology locality",
        "need": "8 CPUs in 1 NUMA node are not available",
        "room": "NUMA 0 has 6 free, NUMA 1 has 6 free",
        "fixes": ["would fit if small/app moved to other CPUs", "would fit with 6 CPUs"],
    }
    found = {
        "container": "x" * 70 + "/y",
        "cpus": None,
        "since": None,
        "refusal": refusal,
        "steps": ["hint: " + "a " * 90],
    }
    lines = format_explanation(found, str, Look()).splitlines()
    assert "  would fit with 6 CPUs" in lines
    assert max(map(len, lines)) <= 80
    helpless = format_explanation({**found, "refusal": {**refusal, "fixes": []}}, str, Look())
    assert "no single change is enough" in helpless


def test_names_from_pods_cannot_speak_to_the_terminal() -> None:
    evil = "\x1b[2J\u202e"
    entry = {"number": 1, "time": 0.0, "what": evil, "pod": evil, "cpus": evil}
    assert "\x1b" not in format_entry(entry, str, Look())
    assert "\x1b" not in format_explanation({"container": evil, "cpus": evil, "steps": [evil]}, str, Look())


def test_colours_are_for_terminals_that_have_them() -> None:
    entry = {"number": 1, "time": 0.0, "what": "assigned", "pod": "web"}
    assert "\x1b[32massigned" in format_entry(entry, str, Look(colour=True))
    assert "\x1b" not in format_entry(entry, str, Look())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", START),
        ("10m ago", START - 600),
        ("1h", START - 3600),
        ("1h30m", START - 5400),
        ("1.5d ago", START - 129_600),
        ("23:12", START),
        ("23:13", START + 60 - 86400),
        ("03:12:05", START - 20 * 3600 + 5),
        ("2025-11-15", START - 23 * 3600 - 720),
        ("2025-11-15T23:12:00", START),
        ("2025-11-16T00:12:00+01:00", START),
        ("1763248320.5", START + 0.5),
    ],
)
def test_times_are_read_as_people_write_them(call: Run, text: str, expected: float) -> None:
    assert call is not None  # the zone is UTC
    assert parse_when(text, START, "--at") == expected


@pytest.mark.parametrize("text", ["", "25:00", "12:60", "10x", "ago", "1e9", "tomorrow", "9999999999999", "0000-00-00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"--at: .* is no time"):
        parse_when(text, START, "--at")


def test_a_time_of_day_across_the_change_to_winter_time_is_that_of_the_clock(
    call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call is not None  # puts the zone back
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    sunday_noon = 1_761_476_400.0  # 2025-10-26 12:00 CET
    assert show_when(sunday_noon) == "2025-10-26 12:00:00"
    assert show_when(parse_when("01:30", sunday_noon, "--at")) == "2025-10-26 01:30:00"
    assert show_when(parse_when("13:00", sunday_noon, "--at")) == "2025-10-25 13:00:00"


def test_a_time_beyond_all_calendars_is_shown_as_it_is() -> None:
    assert show_when(1e14) == "100000000000000"
