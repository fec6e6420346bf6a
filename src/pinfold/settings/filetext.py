"""The text of a file of settings; bounded, and never a file that cannot be read again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pinfold.errors import ParseError

_MAX_FILE: Final = 1 << 20


def read_text(name: str) -> str:
    """Return the text of the file *name*, or raise what is wrong with it."""
    try:
        # Else a named pipe would wait for a writer, now or at the next reload.
        if Path(name).is_fifo() and not name.startswith(("/dev/", "/proc/")):
            raise ParseError("is a named pipe, which cannot be read again", where=name)
        with Path(name).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise ParseError(error.strerror or str(error), where=name) from error
    if len(data) > _MAX_FILE:
        raise ParseError(f"is larger than {_MAX_FILE >> 20} MiB", where=name)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"is not text (byte {error.start + 1} is not UTF-8)", where=name) from None
