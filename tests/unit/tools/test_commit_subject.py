"""What the commit-msg hook accepts and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.tools.tool import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("x" * 72 + "\n", id="72 characters"),
        pytest.param("policies: keep siblings whole\n\nBecause; a body may have these.\n", id="with a body"),
        pytest.param("# a comment; of git " + "x" * 80 + "\npolicies: keep siblings whole\n# more\n", id="comments"),
    ],
)
def test_a_subject_of_one_short_change_is_accepted(message: str, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    checked = run("commit-subject", file)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        pytest.param("x" * 73, "the subject has 73 characters; at most 72 are allowed", id="too long"),
        pytest.param("http: close; grpc: open", "one commit for each change", id="two changes"),
        pytest.param("http: close\nbecause", "the second line must be empty", id="body without a gap"),
        pytest.param("\n\nbody", "the first line is empty", id="no subject"),
        pytest.param("", "the first line is empty", id="nothing"),
    ],
)
def test_any_other_subject_is_refused_with_the_reason(message: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    checked = run("commit-subject", file)
    assert checked.returncode == 1
    assert problem in checked.stderr
