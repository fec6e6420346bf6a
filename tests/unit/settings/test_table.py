"""The table of settings."""

from __future__ import annotations

from pinfold.formats.kubelet.config import FIELDS
from pinfold.settings.table import SETTINGS


def test_every_field_of_the_file_has_a_row_in_the_table() -> None:
    assert sorted(setting.field for setting in SETTINGS.values() if setting.field) == sorted(FIELDS)
