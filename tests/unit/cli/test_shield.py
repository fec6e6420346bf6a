"""`pinfold shield` as JSON, without a daemon, and wrong calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from tests.unit.cli.answering import answering

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("words", [["status"], ["on"], ["off", "--dry-run"]], ids=["status", "on", "dry"])
def test_only_off_needs_no_daemon(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shield", *words, "--socket", str(tmp_path / "none.sock")]) == 3
    assert "no daemon answers" in capsys.readouterr().err


def test_off_without_changes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path)]
    assert main(["shield", "off", *where]) == 0
    assert capsys.readouterr().out == "shield off: nothing to give back\n"


def test_a_misspelt_state_directory_does_not_look_like_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path / "none")]
    assert main(["shield", "off", *where]) == 2
    assert "there is no such directory" in capsys.readouterr().err


def test_cpus_are_only_for_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shield", "on", "--cpus", "1"]) == 2
    assert "--cpus needs `on --dry-run`" in capsys.readouterr().err


def test_the_shield_is_shown_as_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"on": True, "cpus": "1-3", "moves": [], "refused": []}
    with answering(tmp_path / "s", {"shield": told}) as path:
        assert main(["shield", "-o", "json", "--socket", path]) == 0
    assert json.loads(capsys.readouterr().out) == told
