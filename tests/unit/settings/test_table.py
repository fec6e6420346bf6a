"""The table of settings, and the page that is made from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pinfold.formats.kubelet.config import FIELDS
from pinfold.settings.page import format_reference
from pinfold.settings.table import SETTINGS

REFERENCE = Path(__file__).parents[3] / "docs/reference/configuration.md"


def test_every_field_of_the_file_has_a_row_in_the_table() -> None:
    assert sorted(setting.field for setting in SETTINGS.values() if setting.field) == sorted(FIELDS)


def test_the_reference_page_is_current() -> None:
    assert REFERENCE.read_text() == format_reference(), (
        "python -m pinfold.settings.table > docs/reference/configuration.md"
    )


def test_the_command_that_the_page_names_writes_it() -> None:
    command = REFERENCE.read_text().partition("Written by: python ")[2].partition(" >")[0]
    assert subprocess.check_output([sys.executable, *command.split()], text=True) == format_reference()
