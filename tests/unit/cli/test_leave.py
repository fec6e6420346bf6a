"""`pinfold leave` where no daemon answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_state_directory_that_is_not_there_is_an_error_and_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "misspelt"
    assert main(["leave", "--socket", str(tmp_path / "none.sock"), "--state-dir", str(missing)]) == 2
    told = capsys.readouterr().err
    assert f"--state-dir {missing}: there is no such directory" in told
    assert not missing.exists()


def test_where_no_daemon_ever_ran_there_is_no_group_to_give_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["leave", "--socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path)]) == 0
    assert "no group to give back" in capsys.readouterr().out
