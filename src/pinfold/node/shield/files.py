"""Writes one file of /proc, /sys or a cgroup; in a tree of ordinary files too, where a shorter text ends the longer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pinfold.node.cgroupfiles import explained, opened

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write *text* in a single system call, or raise a CgroupError."""
    file = opened(path, os.O_WRONLY | os.O_TRUNC, text)
    try:
        with explained(path, text, writing=True):
            os.write(file, text.encode() or b"\n")  # an empty value still needs a byte to be a write
    finally:
        os.close(file)
