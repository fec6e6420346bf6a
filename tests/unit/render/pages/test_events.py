"""The page of events is what the types say."""

from __future__ import annotations

from typing import get_args

from pinfold.core.events import Told
from pinfold.render.pages.events import document


def test_every_event_has_one_row() -> None:
    rows = [line.split("`")[1] for line in document().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(cls.what for cls in get_args(Told))


def test_a_row_says_who_is_told_which_field() -> None:
    (row,) = (line for line in document().splitlines() if line.startswith("| `refused` "))
    told = "`pod`, `reason`, `message`; stream: `container`; journal: `need`, `room`, `fixes`, `steps`"
    assert told in row
