"""The page of events is what the types say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

from pinfold.core.events import Told
from pinfold.render.pages.events import document

REFERENCE = Path(__file__).parents[4] / "docs/reference/events.md"


def test_the_reference_page_is_current() -> None:
    assert REFERENCE.read_text() == document(), "python -m pinfold.render.pages.events > docs/reference/events.md"


def test_the_command_that_the_page_names_writes_it() -> None:
    command = REFERENCE.read_text().partition("Written by: python ")[2].partition(" >")[0]
    assert subprocess.check_output([sys.executable, *command.split()], text=True) == document()


def test_every_event_has_one_row() -> None:
    rows = [line.split("`")[1] for line in document().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(cls.what for cls in get_args(Told))


def test_a_row_says_who_is_told_which_field() -> None:
    (row,) = (line for line in document().splitlines() if line.startswith("| `refused` "))
    told = "`pod`, `reason`, `message`; stream: `container`; journal: `need`, `room`, `fixes`, `steps`"
    assert told in row
