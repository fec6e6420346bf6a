"""`pinfold events`: a line for each event, safe for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.cli.main import main
from tests.unit.cli.answering import answering

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_event_names_its_container_as_the_history_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"number": 1, "time": 0.0, "what": "assigned", "namespace": "default", "pod": "web", "container": "app"}
    with answering(tmp_path / "s", {"events": [{**row, "cpus": "2-3"}]}) as path:
        assert main(["events", "--socket", path]) == 0
    assert capsys.readouterr().out.split()[1:] == ["assigned", "web/app", "cpus=2-3"]


def test_what_a_container_has_printed_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"number": 1, "time": 0.0, "what": "ended", "pod": "web", "container": "app", "output": "\x1b[2Jgone\n\x07"}
    with answering(tmp_path / "s", {"events": [row]}) as path:
        assert main(["events", "--socket", path]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.rstrip("\n").isprintable()
