from __future__ import annotations

from pathlib import Path

from pinfold.render.pages.podfields import format_reference

REFERENCE = Path(__file__).parents[3] / "docs/reference/pod-fields.md"


def test_the_page_of_fields_is_the_one_of_the_tables() -> None:
    assert REFERENCE.read_text() == format_reference(), (
        "python -m pinfold.render.pages.podfields > docs/reference/pod-fields.md"
    )
