"""The terminal's width, colours and characters. Only this module reads the environment."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from pinfold.render.columns import WIDEST
from pinfold.render.machine.canvas import Look

if TYPE_CHECKING:
    from typing import TextIO

_LEAST_WIDTH: Final = 40
_DRAWN_WITH: Final = "╭╮╰╯─│━┄·…"


def look(stream: TextIO) -> Look:
    """Return how to draw on *stream*; a pipe or file is 80 columns wide, without colour."""
    return Look(
        width=max(shutil.get_terminal_size().columns, _LEAST_WIDTH),
        colour=has_colour(stream),
        ascii_only=not shows_boxes(stream),
    )


def unbroken(stream: TextIO) -> Look:
    """Return how to draw lines that a pipe can filter: as wide as they are, unless *stream* is a terminal."""
    return look(stream) if stream.isatty() else look(stream)._replace(width=WIDEST)


def has_colour(stream: TextIO) -> bool:
    """Whether *stream* is a terminal with colours, and NO_COLOR is not set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shows_boxes(stream: TextIO) -> bool:
    """Whether *stream* can carry the characters that boxes are drawn with."""
    try:
        _DRAWN_WITH.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
