"""Tables of what a daemon has: what they show, and what they never do to a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.get import WHAT, format_rows
from pinfold.cli.main import main
from pinfold.render.columns import Column, format_table
from tests.unit.cli.answering import answering

if TYPE_CHECKING:
    from pathlib import Path

POOLS = {"online": "0-3", "shared": "0", "reserved": "0", "assignable": "", "exclusive": "1-3"}


def row(cpus: str, **changes: object) -> dict[str, object]:
    """Return a container with CPUs of its own, as a daemon tells of it."""
    told = {"namespace": "default", "pod": "web", "container": "app", "kind": "pod", "qos": "Guaranteed"}
    rest = {"exclusive": True, "allowed": cpus, "state": "running", "pid": 7, "restarts": 0, "code": None, "since": 0.0}
    return {**told, "cpus": cpus, **rest, **changes}


def answers(*rows: dict[str, object]) -> dict[str, object]:
    """Return what a daemon with these containers says."""
    return {"node": {"policy": "static", "pools": POOLS}, "containers": list(rows), "pods": []}


@pytest.mark.parametrize("what", ["pods", "containers", "cpus"])
def test_the_namespace_is_shown_if_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    with answering(tmp_path / "s", answers(row("1"), row("2-3", namespace="test"))) as path:
        assert main(["get", what, "--socket", path]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert "NAMESPACE" in head.split()
    assert any("default" in line.split() for line in lines)
    assert any("test" in line.split() for line in lines)


@pytest.mark.parametrize("what", ["pods", "containers", "cpus"])
def test_a_single_namespace_takes_no_room_but_is_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    with answering(tmp_path / "s", answers(row("1-3", namespace="test"))) as path:
        assert main(["get", what, "--socket", path]) == 0
        out = capsys.readouterr().out
        assert "NAMESPACE" not in out
        assert "test" not in out
        assert main(["get", what, "--socket", path, "-o", "json"]) == 0
    assert "test" in {found["namespace"] for found in json.loads(capsys.readouterr().out)}


def test_wide_shows_what_others_used_of_exclusive_cpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score = {"seconds": 61.2, "foreign": 0.0042, "interrupts": 15730, "preempted": 12, "throttled": 0.0}
    with answering(tmp_path / "s", answers(row("1-3", exclusivity=score), row("0", exclusive=False))) as path:
        assert main(["get", "--socket", path, "-o", "wide"]) == 0
    _, own, shared = capsys.readouterr().out.splitlines()
    assert own.split()[-6:] == ["0.004s", "of", "61s", "15730", "12", "0.000s"]
    assert shared.split()[-4:] == ["-"] * 4


@pytest.mark.parametrize("what", WHAT)
def test_names_cannot_speak_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    names = {"pod": "a\x1b[2J", "container": "b\nc", "namespace": "d\u202e"}
    told = answers(row("1", **names), row("2"))
    told["node"] = {"policy": "static", "socket": "/run/\x1b]0;x\x07", "pools": POOLS}
    with answering(tmp_path / "s", told) as path:
        assert main(["get", what, "--socket", path]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    if what in {"pods", "containers", "cpus"}:
        assert r"a\x1b[2J" in out


def test_what_is_escaped_still_stands_in_its_column() -> None:
    text = format_table([Column("POD"), Column("CPUS")], [["a\tb", "1"], ["web", "2"]])
    assert text.splitlines() == ["POD   CPUS", r"a\tb  1", "web   2"]


def test_get_pods_shows_refused_pods_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"namespace": "default", "uid": "u", "qos": "Guaranteed", "kind": "", "containers": ["app"]}
    listed = [{**told, "name": "web", "refused": ""}, {**told, "name": "big", "refused": "SMTAlignmentError"}]
    with answering(tmp_path / "s", {**answers(row("1")), "pods": listed}) as path:
        assert main(["get", "pods", "--socket", path]) == 0
    _, web, big = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (web[0], big[0], big[-1]) == ("web", "big", "SMTAlignmentError")


def test_the_node_has_a_line_for_each_weaker_guarantee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = {"policy": "static", "weaker": ["one; and why", "two"], "read_only": False, "options": []}
    with answering(tmp_path / "s", {"node": node}) as path:
        assert main(["get", "node", "--socket", path]) == 0
    assert [line.split(None, 1) for line in capsys.readouterr().out.splitlines()] == [
        ["policy", "static"],
        ["weaker", "one; and why"],
        ["two"],
        ["read_only", "no"],
        ["options", "-"],
    ]


LONG = {
    "namespace": "trading",
    "pod": "pod-11-with-a-longer-name-5f7c9d8b6-x11",
    "container": "main",
    "qos": "Guaranteed",
    "cpus": "shared",
    "allowed": "0,2-3,6,11-12,15,20-21,24,28-32,34-35,38,43-44,47,52-53,56,60-63",
    "state": "running",
    "pid": 1234567,
    "age": "12m",
}


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_table_of_containers_never_leaves_a_narrow_terminal(width: int) -> None:
    text = format_rows([{name: value for name, value in LONG.items() if name != "namespace"}], width)
    assert max(map(len, text.splitlines())) <= width
    assert "60-63" in text


def test_a_table_with_namespaces_fits_into_80_columns() -> None:
    assert max(map(len, format_rows([LONG], 80).splitlines())) <= 80


def test_a_narrow_terminal_leaves_out_the_pid_before_it_cuts_a_name() -> None:
    text = format_rows([LONG], 110)
    assert str(LONG["pod"]) in text
    assert "PID" not in text


def test_a_pipe_gets_one_line_for_each_container() -> None:
    assert len(format_rows([LONG, LONG]).splitlines()) == 3
