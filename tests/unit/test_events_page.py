"""The page of events has every event there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLD = re.compile(r'(?:Note|note|_note|_note_of)\(\s*"([a-z-]+)"')
ROW = re.compile(r"^\| (`.*?) \|", re.MULTILINE)


def test_every_event_is_on_the_page_and_every_one_on_the_page_is_told() -> None:
    told = {what for path in (ROOT / "src").rglob("*.py") for what in TOLD.findall(path.read_text())}
    rows = ROW.findall((ROOT / "docs/reference/events.md").read_text())
    assert {name.strip("` ") for row in rows for name in row.split(",")} == told
