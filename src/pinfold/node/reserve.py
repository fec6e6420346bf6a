"""Reserve: files that hold blocks and inodes of the disk, so that State can be saved when others have filled it.

Each is good for one save, which is written into it and renames it. They are made again as soon as there is room.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY: Final = "reserve"
COUNT: Final = 16
SIZE: Final = 512 << 10


def keep_reserve(directory: Path) -> None:
    """Make the files that are missing below *directory*, as long as the disk has room for them."""
    reserve = directory / DIRECTORY
    with suppress(OSError):
        reserve.mkdir(mode=0o700, exist_ok=True)
        there = set(os.listdir(reserve))  # noqa: PTH208 - at each check, and 16 looks take far longer
        for name in map(str, range(COUNT)):
            if name not in there and not _make(reserve / name):
                return


def take_reserve(directory: int, size: int) -> tuple[int, str] | None:
    """Return one of the files, open, and its name below the open *directory*; None if none can hold so many bytes."""
    for name in (f"{DIRECTORY}/{number}" for number in range(COUNT) if size <= SIZE):
        with suppress(OSError):
            return os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory), name
    return None


def give_reserve(directory: int, name: str) -> bool:
    """Give one of the files another name below the open *directory*; return whether there was one."""
    for number in range(COUNT):
        with suppress(OSError):
            os.rename(f"{DIRECTORY}/{number}", name, src_dir_fd=directory, dst_dir_fd=directory)
            return True
    return False


def _make(path: Path) -> bool:
    """Make a file that has all its blocks; return whether there was room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, SIZE)
    except OSError:
        path.unlink()
        return False
    finally:
        os.close(file)
    return True
