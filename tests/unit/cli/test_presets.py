"""The table of built-in machines."""

from __future__ import annotations

import json

import pytest

from pinfold.cli.main import main
from pinfold.cli.presets import show
from pinfold.render.columns import WIDEST


@pytest.mark.parametrize("width", [45, 80])
def test_the_machines_fit_into_a_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert max(map(len, show(rows, width).splitlines())) <= width
    assert len(show(rows, WIDEST).splitlines()) == len(rows) + 1
