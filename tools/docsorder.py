"""A hook of mkdocs: the sections in the order in which readers need them; mkdocs alone would sort them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.structure.nav import Navigation

_SECTIONS: Final = ("Tutorial", "How to", "Explanation", "Reference", "Decisions")


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """Return the navigation: single pages, then the sections."""
    nav.items.sort(key=lambda item: _SECTIONS.index(str(item.title)) if item.children else -1)
    return nav
