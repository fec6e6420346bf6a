from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--cpus", "1", "--", "true"], id="no daemon"),
        pytest.param(["--cpus", "1"], id="no command"),
        pytest.param(["--cpus", "x", "--", "true"], id="a wrong amount"),
        pytest.param(["--cpus"], id="a wrong call"),
        pytest.param(["--color", "--", "true"], id="an unknown option"),
    ],
)
def test_a_failure_of_run_itself_is_125(arguments: list[str], tmp_path: Path) -> None:
    assert main(["run", "--socket", str(tmp_path / "none"), *arguments]) == 125


def test_a_failure_of_another_verb_has_its_own_code(tmp_path: Path) -> None:
    assert main(["get", "--socket", str(tmp_path / "none")]) == 3
    assert main(["get", "--socket"]) == 2


def test_help_of_run_is_no_failure() -> None:
    assert main(["run", "--help"]) == 0


def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cpu", "1", "--", "true"]) == 125
    assert capsys.readouterr().err.endswith("unrecognized arguments: --cpu; did you mean --cpus?\n")
    assert main(["get", "--outptu=json"]) == 2
    assert capsys.readouterr().err.endswith("unrecognized arguments: --outptu=json; did you mean --output?\n")
