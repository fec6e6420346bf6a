"""Outputs: the files with what containers print, bounded in size and number.

Containers print to pipes; the program `drain` moves that into the files, and cuts them. It is a process of its own, as
containers go on while no daemon is there.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from pinfold.node.outputs import drain

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

PART: Final = 64 << 10
"""Bytes of a file that are read at once."""
_TRIES: Final = 50
_ENDED: Final = 100
"""How many containers that have ended keep their output."""
_HIDDEN: Final = (drain.LAST, drain.PIPE, drain.OPEN, drain.NEW, drain.CONTROL)
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class OutputLimits(NamedTuple):
    """How many bytes of output are kept."""

    each: int
    total: int


def earlier_half(name: str) -> str:
    """Return the name of the file with what was printed before."""
    return f"{name}{drain.LAST}"


DEFAULT_LIMITS: Final = OutputLimits(20 << 20, 1 << 30)


class Outputs:
    """The files in one directory."""

    def __init__(self, directory: Path, limits: OutputLimits = DEFAULT_LIMITS, *, drained: bool = False) -> None:
        """*drained*: real containers print, to pipes; without it there are only the files."""
        self._directory = directory
        self._limits = limits
        self._drained = drained
        self._control: int | None = None
        self._has_drain = asyncio.Event()
        """Whether there is a control pipe."""
        self._started: list[int] = []
        """The drains that this daemon has started."""
        self._looked: int | None = None
        """When the directory had changed last at the last look; None: look again in any case."""
        self._held: dict[Path, int] = {}
        """The pipes that the drain may not read yet: a container that ends before would take its output with it."""

    def open(self, name: str) -> IO[bytes]:
        """Return what a container prints to, so that it comes into the file called *name*; for our user only."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self._directory / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
        if self._drained:
            os.close(file)
            file = self._pipe(f"{name}.{time.monotonic_ns()}")
        os.set_blocking(file, True)
        return os.fdopen(file, "ab", buffering=0)

    def _pipe(self, name: str) -> int:
        """Return a pipe that the drain reads; a container also holds its other end, and so never gets SIGPIPE."""
        new = self._directory / f"{name}{drain.NEW}"
        os.mkfifo(new, 0o600)
        file = os.open(new, os.O_RDWR | _FLAGS)
        try:
            pipe = new.with_suffix(drain.PIPE)
            new.rename(pipe)  # the drain takes a pipe without a container for one that is done
            self._held[pipe] = os.dup(file)
            self.tell_drain()
        except BaseException:
            os.close(file)
            raise
        return file

    def tell_drain(self) -> None:
        """Have the drain look for new pipes, within the limits of this daemon; start one if there is none."""
        if not self._drained:
            return
        self._let_go()
        line = b"%d %d\n" % self._limits
        try:
            if self._control is None:
                self._control = self._start()
            _write(self._control, line)
        except BrokenPipeError:  # it has ended
            self.close()
            self._control = self._start(anew=True)
            _write(self._control, line)
        self._has_drain.set()

    async def drain_ends(self, within: float) -> bool:
        """Return True when the drain has ended, also one that is started now; False after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._has_drain.wait()
                if self._control is not None:
                    await _has_no_reader(self._control)
            self._looked = None
            return True
        return False

    def _let_go(self, pipes: Collection[Path] | None = None) -> None:
        """Close *pipes*, or those that the drain reads, or that were removed."""
        held = tuple(self._held)  # threads call this too
        for pipe in [one for one in held if not one.exists()] if pipes is None else pipes:
            file = self._held.pop(pipe, None)
            if file is not None:
                os.close(file)

    def _start(self, *, anew: bool = False) -> int:
        """Return the control pipe of the drain that runs, or of a new one."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        control = self._directory / drain.CONTROL
        with suppress(FileExistsError):
            os.mkfifo(control, 0o600)
        if not anew:
            with suppress(OSError):  # ENXIO: none reads it
                return os.open(control, os.O_WRONLY | _FLAGS)
        reader = os.open(control, os.O_RDONLY | _FLAGS)
        try:
            writer = os.open(control, os.O_WRONLY | _FLAGS)
            command = [sys.executable, "-I", "-S", drain.__file__, str(self._directory)]
            null = subprocess.DEVNULL
            process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=reader, stdout=null, stderr=null, env={}, cwd="/", start_new_session=True
            )
            process.returncode = 0  # so that Popen does not wait for it: it may outlive us
            self._started.append(process.pid)
        finally:
            os.close(reader)
        return writer

    def close(self) -> None:
        """Leave the drain to the containers; it ends with the last of them."""
        self._let_go(tuple(self._held))
        if self._control is not None:
            os.close(self._control)
            self._control = None
            self._has_drain.clear()

    def names(self) -> list[str]:
        """Return the names of all files."""
        with suppress(OSError), os.scandir(self._directory) as entries:
            return [
                one.name for one in entries if not one.name.endswith(_HIDDEN) and one.is_file(follow_symlinks=False)
            ]
        return []

    def read(self, name: str, at: int = 0) -> bytes:
        """Return the bytes of a file from *at* on, 64 KiB at most; a negative *at* counts from the end."""
        with suppress(OSError):
            file = os.open(self._directory / name, os.O_RDONLY | _FLAGS)
            try:
                start = at if at >= 0 else max(os.fstat(file).st_size + at, 0)
                return os.pread(file, PART, start)
            finally:
                os.close(file)
        return b""

    def size(self, name: str) -> int:
        """Return how many bytes a file has now: fewer than before if its start was cut off."""
        with suppress(OSError):
            return (self._directory / name).stat().st_size
        return 0

    async def written(self, name: str) -> None:
        """Return when all that a container has printed is in its file; for one that goes on printing, after 1 s."""
        for _ in range(_TRIES):
            if not any(map(_unread, self._pipes(name))):
                self._let_go()
                return
            await asyncio.sleep(1 / _TRIES)

    def remove(self, name: str) -> None:
        """Remove a file, its earlier half and its pipes."""
        file, earlier = self._directory / name, self._directory / earlier_half(name)
        # Twice: the drain may just be making the file the earlier half, and begin a new one. It looks for that too.
        for path in (file, earlier, file, *self._pipes(name)):
            with suppress(OSError):
                path.unlink()

    def has_news(self) -> bool:
        """Return whether a file, a pipe or the drain has come or gone since the last look. It may wait for a disk."""
        return self._looked is None or self._written_at("") != self._looked

    def look(self, current: Collection[str]) -> tuple[str, ...]:
        """See that the drain runs; return the outputs to remove: the oldest of containers that have ended.

        *current* are the outputs of containers that run. It may wait for a disk.
        """
        self._started = [pid for pid in self._started if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        self._looked = self._written_at("")
        names = self.names()
        if names:
            self.tell_drain()
        ended = sorted(set(names).difference(current), key=self._written_at, reverse=True)
        return tuple(ended[_ENDED:])

    def _written_at(self, name: str) -> int:
        """Return when a file was written last; 0 if it is not there."""
        with suppress(OSError):
            return (self._directory / name).lstat().st_mtime_ns
        return 0

    def _pipes(self, name: str) -> list[Path]:
        with suppress(OSError):
            paths = self._directory.iterdir()
            ours = (path for path in paths if path.suffix in {drain.PIPE, drain.OPEN})
            return [path for path in ours if path.stem.rpartition(".")[0] == name]
        return []


def _write(pipe: int, line: bytes) -> None:
    with suppress(BlockingIOError):  # as many lines wait as fit into a pipe: the drain will look
        os.write(pipe, line)


async def _has_no_reader(pipe: int) -> None:
    """Return when no process reads from a pipe any more."""
    loop, gone, ours = asyncio.get_running_loop(), asyncio.Event(), os.dup(pipe)  # it may be replaced meanwhile
    loop.add_reader(ours, gone.set)  # there is nothing to read at this end: only the error is heard of
    try:
        await gone.wait()
    finally:
        loop.remove_reader(ours)
        os.close(ours)


def _unread(pipe: Path) -> int:
    """Return how many bytes are in a pipe."""
    try:
        file = os.open(pipe, os.O_RDONLY | _FLAGS)
    except OSError:
        return 0
    try:
        length: int = struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, bytes(4)))[0]
    except OSError:  # no pipe
        return 0
    finally:
        os.close(file)
    return length
