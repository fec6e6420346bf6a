"""What `pinfold demo benefit` refuses before it measures for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_place_that_cannot_be_written_to_is_refused_at_once(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "benefit", "--on", "x", "--out", str(tmp_path / place)]) == 2
    assert f"--out: {tmp_path / place} is not a directory that can be written to" in capsys.readouterr().err
