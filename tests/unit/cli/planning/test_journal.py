"""`pinfold plan --journal`: what is read, what is told of, and how pods fared then and now."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pinfold.cli.main import main
from pinfold.cli.planning.journal import JournalEvents, read_entries
from pinfold.core.config import Config, Reservation
from pinfold.core.events.entries import Entry
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.formats.pods.document import pod_document
from pinfold.node.journal.journal import Journal
from pinfold.planning.replay import Change, Event, replay
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pinfold.core.pods.pod import Pod

    Run = Callable[..., tuple[int, str, str]]

START = 1_763_248_320.0  # 2025-11-15T23:12:00Z
MACHINE = preset("cores:8")
CONFIG = Config("static", reserved=Reservation.of(CPUSet.of(0)))
NODE = ("--preset", "cores:8", "--reserved-cpus", "0")


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs `pinfold plan`: exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = main(["plan", *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def write(directory: Path, *told: tuple[float, str, dict[str, Any]], max_bytes: int = 64 << 20) -> Path:
    """Write a journal in a state directory, and return that."""
    journal = Journal(directory / "journal", clock=lambda: START, tell=print, max_bytes=max_bytes)
    for number, (after, what, fields) in enumerate(told, start=1):
        journal.append(Entry(number, START + after, what, fields))
    journal.close()
    return directory


def admitted(pod: Pod) -> tuple[str, dict[str, Any]]:
    return "admitted", {"pod": pod.name, "namespace": "default", "uid": pod.uid, "document": pod_document(pod)}


def refused(pod: Pod) -> tuple[str, dict[str, Any]]:
    return "refused", {**admitted(pod)[1], "reason": "UnexpectedAdmissionError"}


def gone(pod: Pod) -> tuple[str, dict[str, Any]]:
    return "gone", {"pod": pod.name, "namespace": "default", "uid": pod.uid}


WEB, DB, BIG = (pod_of(pinned(cpus), uid=uid) for uid, cpus in (("web", 2), ("db", 3), ("big", 6)))
WEEK = (
    (0.0, *admitted(WEB)),
    (60.0, *admitted(DB)),
    (120.0, *refused(BIG)),
    (180.0, *gone(WEB)),
    (240.0, *admitted(WEB)),
)


def cpus(out: str) -> list[tuple[str, float, str | None]]:
    return [(row["pod"], row["time"] - START, row["cpus"]) for row in json.loads(out)["placements"]]


def test_the_same_node_does_the_same_again(plan: Run, tmp_path: Path) -> None:
    code, out, err = plan("--journal", write(tmp_path, *WEEK), *NODE, "-o", "json")
    assert (code, err) == (1, "")
    assert cpus(out) == [("web", 0, "1-2"), ("db", 60, "3-5"), ("big", 120, None), ("web", 240, "1-2")]
    assert json.loads(out)["then"] == {
        "tries": 4,
        "refused_then": 1,
        "refused_now": 1,
        "changes": [],
        "staying": 0,
    }


def test_a_larger_node_lets_in_who_was_refused_and_a_smaller_one_refuses_others(plan: Run, tmp_path: Path) -> None:
    journal = write(tmp_path, *WEEK)
    code, out, _ = plan("--journal", journal, "--preset", "cores:16")
    assert code == 0
    assert "2m00s  big  UnexpectedAdmissionError  let in" in out
    assert "of 4 tries, 1 refused then, 0 now" in out
    assert "1 pod refused then is assumed to stay" in out
    code, out, _ = plan("--journal", journal, "--preset", "cores:4")
    assert code == 1
    assert "1m00s  db   let in  UnexpectedAdmissionError" in out
    assert "of 4 tries, 1 refused then, 2 now" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_journal_itself_can_be_named(plan: Run, tmp_path: Path) -> None:
    journal = write(tmp_path, *WEEK)
    assert plan("--journal", journal / "journal", *NODE)[1] == plan("--journal", journal, *NODE)[1]


def test_pictures_show_a_journal_too(plan: Run, tmp_path: Path) -> None:
    journal = write(tmp_path, *WEEK)
    assert plan("--journal", journal, *NODE, "-o", "html")[1].startswith("<!DOCTYPE html>")
    assert plan("--journal", journal, *NODE, "-o", "svg")[1].startswith("<svg")
    assert "refused_then: 1" in plan("--journal", journal, *NODE, "-o", "yaml")[1]


class TestTimes:
    def test_who_is_there_when_it_begins_comes_first_with_the_cpus_it_had(self, plan: Run, tmp_path: Path) -> None:
        journal = write(tmp_path, *WEEK)
        _, out, _ = plan("--journal", journal, *NODE, "--since", f"{START + 200}", "-o", "json")
        assert cpus(out) == [("db", 200, "3-5"), ("web", 240, "1-2")]
        assert [moment["pods"] for moment in json.loads(out)["course"]] == [1, 2]
        assert json.loads(out)["then"]["tries"] == 2

    def test_what_happens_later_is_left_out(self, plan: Run, tmp_path: Path) -> None:
        _, out, err = plan("--journal", write(tmp_path, *WEEK), *NODE, "--until", f"{START + 100}", "-o", "json")
        assert cpus(out) == [("web", 0, "1-2"), ("db", 60, "3-5")]
        assert not err

    def test_a_time_in_which_nothing_happens_is_told_of(self, plan: Run, tmp_path: Path) -> None:
        code, out, err = plan("--journal", write(tmp_path, *WEEK), *NODE, "--since", "1s")
        assert code == 0
        assert "2 pods came: all fit" in out
        assert "no pod came or went within these times" in err

    def test_a_clock_that_was_set_back_does_not_hide_what_came_after(self, tmp_path: Path) -> None:
        wrong = 86400.0 * 365
        write(tmp_path, (0.0, *admitted(WEB)), (wrong, *admitted(DB)), (60.0, *gone(WEB)))
        times = [entry.time - START for entry in read_entries(tmp_path / "journal")]
        assert times == [0, 61, 60]


class TestBadInput:
    @pytest.mark.parametrize(
        ("flags", "problem"),
        [
            (("--journal", ""), "--journal: the path is empty"),
            (("--journal", "/nowhere"), "--journal: there is no journal in /nowhere"),
            (("--trace", "x.csv", "--since", "7d"), "--since and --until are times of a --journal"),
            (("--journal", ".", "pods.yaml"), "--journal has its own pods"),
            (("--journal", ".", "--preset", "cores:4"), "--journal is about one node"),
            (("--journal", ".", "--since", "1h", "--until", "2h"), "--since 1h is after --until 2h"),
            (("--journal", ".", "--since", "soon"), '--since: "soon" is no time'),
        ],
    )
    def test_it_says_what_is_wrong(self, plan: Run, flags: tuple[str, ...], problem: str) -> None:
        code, out, err = plan(*NODE, *flags)
        assert (code, out) == (2, "")
        assert problem in err

    def test_damage_is_counted_and_the_rest_is_used(self, plan: Run, tmp_path: Path) -> None:
        (file,) = (write(tmp_path, *WEEK) / "journal").iterdir()
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([lines[0], b"rubbish\n", *lines[2:]]))
        _, out, err = plan("--journal", tmp_path, *NODE, "-o", "json")
        assert [row[0] for row in cpus(out)] == ["web", "big", "web"]
        assert "1 entry of the journal is missing or damaged" in err
        assert json.loads(out)["remarks"] == ["1 entry of the journal is missing or damaged"]

    def test_a_pod_known_by_its_cpus_alone_comes_as_so_many(self, plan: Run, tmp_path: Path) -> None:
        old = ("state", {"shared": "0,3-7", "exclusive": {"default/old/app": "1-2"}})
        _, out, err = plan("--journal", write(tmp_path, (0.0, *old), (5.0, *admitted(DB))), *NODE, "-o", "json")
        assert cpus(out) == [("old", 0, "1-2"), ("db", 5, "3-5")]
        assert "1 pod is known by its exclusive CPUs alone" in err


def test_a_journal_of_many_files_is_read_in_order(tmp_path: Path) -> None:
    told = [(float(number), *admitted(replace(WEB, name=f"web-{number}"))) for number in range(300)]
    write(tmp_path, *told, max_bytes=2 << 20)
    assert len(list((tmp_path / "journal").iterdir())) > 2
    assert [entry.number for entry in read_entries(tmp_path / "journal")] == list(range(1, 301))


def test_too_many_pods_are_told_of_in_parts(tmp_path: Path) -> None:
    write(tmp_path, *WEEK)
    journal = JournalEvents(Namespace(journal=str(tmp_path), since=None, until=None), most=2)
    assert [event.comes for event in journal] == [True, True]
    assert "after 2 pods; go on with --since" in journal.remarks[0]


class TestPodsThatGrow:
    """A container runtime tells of one container after the other."""

    MORE = replace(WEB, containers=(pinned(2), pinned(1, "log")))
    HUGE = replace(WEB, containers=(pinned(2), pinned(9, "log")))

    def test_they_are_one_pod_with_all_their_containers(self) -> None:
        last = replace(WEB, containers=(pinned(2, "sub"),))
        found = replay([Event(0, WEB, ""), Event(1, self.MORE, ""), Event(2, last, "")], MACHINE, CONFIG)
        assert [(one.container.name, str(one.cpus)) for one in found.plan.placements] == [
            ("app", "1-2"),
            ("log", "3"),
            ("sub", "4-5"),
        ]
        assert list(found.times) == [0]
        assert [moment.pods for moment in found.moments] == [1, 1, 1]

    def test_a_container_that_is_refused_takes_nothing_from_the_others(self) -> None:
        events = [Event(0, WEB, ""), Event(1, self.HUGE, "x"), Event(2, DB, ""), Event(3, self.MORE, "")]
        found = replay(events, MACHINE, CONFIG)
        assert [moment.exclusive for moment in found.moments] == [2, 2, 5, 6]
        assert [moment.refused for moment in found.moments] == [0, 1, 1, 1]
        assert [str(one.cpus) for one in found.plan.placements] == ["1-2", "6", "3-5"]
        assert found.comparison.staying == 0


class TestComparison:
    def test_a_pod_that_is_refused_again_and_again_is_one_pod(self) -> None:
        events = [Event(0, replace(BIG, containers=(pinned(9),)), "x")] * 3
        found = replay(events, MACHINE, CONFIG)
        assert len(found.plan.outcomes) == 1
        assert (found.comparison.tries, found.comparison.refused_now) == (3, 3)

    def test_a_pod_that_gets_in_at_last_is_told_of_twice(self) -> None:
        found = replay([Event(0, WEB), Event(1, BIG), Event(2, WEB.uid), Event(3, BIG)], MACHINE, CONFIG)
        assert [outcome.refusal is None for outcome in found.plan.outcomes] == [True, False, True]

    def test_changes_are_counted_by_pod(self) -> None:
        events = [Event(0, BIG, "x"), Event(1, BIG, "x"), Event(2, DB, "")]
        found = replay(events, MACHINE, CONFIG).comparison
        first, second = found.changes
        assert first == Change(0, BIG, "x", "", 2)
        assert (second.time, second.pod, second.then, second.tries) == (2, DB, "", 1)
        assert found.staying == 1

    def test_a_trace_that_does_not_say_what_became_of_pods_is_not_compared(self) -> None:
        assert replay([Event(0, WEB)], MACHINE, CONFIG).comparison.tries == 0

    def test_who_went_before_the_time_that_is_asked_for_is_not_told_of(self) -> None:
        huge = replace(BIG, containers=(pinned(9),))
        events = [Event(0, WEB, ""), Event(1, DB, ""), Event(2, huge, ""), Event(3, WEB.uid), Event(9, DB.uid)]
        found = replay(events, MACHINE, CONFIG, since=5)
        assert [(time, outcome.pod) for time, outcome in zip(found.times, found.plan.outcomes, strict=True)] == [
            (5, DB),
            (5, huge),
        ]
        assert [moment.time for moment in found.moments] == [5, 9]
        assert [change.pod for change in found.comparison.changes] == [huge]
