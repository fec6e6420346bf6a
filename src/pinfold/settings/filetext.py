"""The text of a file that a user names: bounded, and UTF-8."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pinfold.errors import ParseError, Problem

LARGE: Final = 64 << 20
"""The most bytes of a file of pods, of a fleet or of a trace."""
_SMALL: Final = 1 << 20


def read_settings_file(name: str) -> str:
    """Return the text of a file of settings; it must be one that can be read again."""
    # Else a named pipe would wait for a writer, now or at the next reload.
    if Path(name).is_fifo() and not name.startswith(("/dev/", "/proc/")):
        raise ParseError("is a named pipe, which cannot be read again", where=name)
    return read_file(name)


def problems_before_end(error: ParseError) -> list[Problem]:
    """Return the problems at which the reading of a file of settings stopped; the last says that it stopped there."""
    *others, last = map(str, getattr(error, "problems", (error,)))
    is_said = last.endswith("was not read")
    return [*map(Problem, others), Problem(last, "" if is_said else "nothing else in this file was checked")]


def read_text(name: str) -> str:
    """Return the text of a large file, or of stdin for "-"."""
    return _decode(sys.stdin.buffer.read(LARGE + 1), "stdin", LARGE) if name == "-" else read_file(name, LARGE)


def read_file(name: str, most: int = _SMALL) -> str:
    """Return the text of a file; raise a ParseError if it cannot be read or has more than *most* bytes."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise ParseError(getattr(error, "strerror", None) or str(error), where=name) from error
    return _decode(data, name, most)


def _decode(data: bytes, shown: str, most: int) -> str:
    if len(data) > most:
        raise ParseError(f"is larger than {most >> 20} MiB", where=shown)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"is not text (byte {error.start + 1} is not UTF-8)", where=shown) from None
