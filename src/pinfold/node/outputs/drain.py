"""Drain: the program that moves what containers print from their pipes into files, and keeps the last part of it.

    python -I -S drain.py DIRECTORY < CONTROL

It runs beside the daemon and outlives it, as the containers do; it ends when no pipe and no daemon is left. A container
that prints faster than this program writes has to wait, so no file is ever longer than its bound.

In the directory: NAME, what a container printed last; NAME.1, what it printed before; NAME.TOKEN.pipe, a pipe that a
container prints to, and NAME.TOKEN.open as soon as this program reads it: until then the daemon keeps it open. On the
control pipe the daemon writes lines with the bounds, "EACH TOTAL"; after each of them the directory is searched for new
pipes. One that stays idle costs nothing: the program then waits in one system call.

It imports nothing of pinfold, so that it starts fast and stays small.
"""

from __future__ import annotations

import os
import select
import stat
import sys

PIPE = ".pipe"
OPEN = ".open"
NEW = ".new"
LAST = ".1"
CONTROL = ".control"
LEAST = 64 << 10
"""Bytes of output that every container keeps."""
_RESERVE = 64 << 20
_SHARE = 8
"""Bytes of the file system that output leaves free, or this part of a small one: State and journal need them."""
_AT_ONCE = 1 << 20
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class File:
    """A file that is written at its end."""

    def __init__(self, name: str, file: int) -> None:
        self.name = name
        self.file = file
        self.size = os.fstat(file).st_size
        self.pipes = 0


class Drain:
    """The pipes of one directory."""

    def __init__(self, directory: str, control: int) -> None:
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._control = control
        self._attended = True
        """Whether a daemon has the control pipe open."""
        self._pipes: dict[int, tuple[str, File]] = {}
        self._files: dict[str, File] = {}
        self._seen: set[str] = set()
        """The names of the pipes that are open."""
        self._each = self._half = LEAST // 2
        """Bytes that a file may have: as told by the daemon, and now, when the disk may be nearly full."""
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)

    def run(self) -> None:
        """Move what containers print until no pipe and no daemon is left."""
        while self._pipes or self._attended:
            for file, _ in self._poll.poll():
                if file == self._control:
                    self.heed()
                elif file in self._pipes:
                    self.drain(file)

    def heed(self) -> None:
        """Read the daemon's lines; the last one counts."""
        lines = os.read(self._control, _AT_ONCE).split(b"\n")
        self._attended = len(lines) > 1
        if not self._attended:  # its end: opened again, the pipe is silent until the next daemon comes
            again = os.open(CONTROL, os.O_RDONLY | _FLAGS, dir_fd=self._directory)
            self._poll.unregister(self._control)
            os.dup2(again, self._control)
            os.close(again)
            self._poll.register(self._control, select.EPOLLIN)
            return
        each, total = map(int, lines[-2].split())
        names = os.listdir(self._directory)  # noqa: PTH208 - pathlib would make the program larger
        for name in names:
            if name.endswith((PIPE, OPEN)) and name not in self._seen:
                self.find(name)
        count = sum(not name.endswith((PIPE, OPEN, NEW, LAST, CONTROL)) for name in names)
        self._each = max(min(each, total // max(1, count)), LEAST) // 2
        self.fit()
        self.shrink()

    def find(self, name: str) -> None:
        """Open a new pipe, and the file that belongs to it."""
        try:
            pipe = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=self._directory)
        except OSError:
            return
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.close(pipe)
            return
        name = self.claimed(name)
        title = name.removesuffix(OPEN).removesuffix(PIPE).rpartition(".")[0]
        found = self._files.get(title) or self.opened(title, 0)
        found.pipes += 1
        self._files[title] = found
        self._pipes[pipe] = name, found
        self._seen.add(name)
        self._poll.register(pipe, select.EPOLLIN)
        self.drain(pipe)  # one that no container has any more is silent, and has to be closed

    def claimed(self, name: str) -> str:
        """Say by its name that a pipe is read; return the name."""
        new = name.removesuffix(PIPE) + OPEN if name.endswith(PIPE) else name
        try:
            os.rename(name, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            return name
        return new

    def opened(self, title: str, flags: int) -> File:
        """Return an output file; one that was removed is replaced by a file that keeps nothing."""
        try:
            return File(title, os.open(title, os.O_RDWR | flags | _FLAGS, 0o600, dir_fd=self._directory))
        except OSError:
            return File("", os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))

    def drain(self, pipe: int) -> None:
        """Move the bytes of a pipe, as far as its file has room."""
        name, found = self._pipes[pipe]
        self.fit()
        if found.name and found.size >= self._half:
            self.rotate(found)
        try:
            moved = self.move(pipe, found)
        except BlockingIOError:
            return
        if moved == 0:
            self.close(pipe, name, found)

    def move(self, pipe: int, found: File) -> int:
        """Return how many bytes were moved; what cannot be written is dropped."""
        if found.name:
            try:
                moved = os.splice(pipe, found.file, self._half - found.size, offset_dst=found.size)
            except BlockingIOError:
                raise
            except OSError:  # the disk is full, or broken: the container must not wait for that
                return len(os.read(pipe, _AT_ONCE))
            found.size += moved
            return moved
        return len(os.read(pipe, _AT_ONCE))

    def close(self, pipe: int, name: str, found: File) -> None:
        """Record that all containers have closed a pipe."""
        os.close(pipe)
        del self._pipes[pipe]
        self._seen.discard(name)
        self.unlink(name)
        found.pipes -= 1
        if found.pipes == 0:
            os.close(found.file)
            self._files = {title: file for title, file in self._files.items() if file is not found}

    def rotate(self, found: File) -> None:
        """Make a file that is full the earlier half, and begin a new one; unless it is removed with its pod."""
        is_there, is_earlier = os.fstat(found.file).st_nlink > 0, True
        try:
            if is_there:
                os.rename(found.name, found.name + LAST, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except FileNotFoundError:
            is_there = False
        except OSError:  # there is another file in the way, or the disk is broken: the earlier half is lost
            self.unlink(found.name)
            is_earlier = False
        if not is_there:
            os.ftruncate(found.file, 0)
            found.size = 0
            return
        new = self.opened(found.name, os.O_CREAT | os.O_EXCL)
        if is_earlier and os.fstat(found.file).st_nlink == 0:  # removed before there was a new one to remove
            self.unlink(found.name)
        os.dup2(new.file, found.file, inheritable=False)
        os.close(new.file)
        found.name, found.size = new.name, 0

    def fit(self) -> None:
        """Keep less while the disk is nearly full."""
        found = os.fstatvfs(self._directory)
        free, reserve = found.f_bavail * found.f_frsize, min(_RESERVE, found.f_blocks * found.f_frsize // _SHARE)
        half = self._each if free > reserve else LEAST // 2
        half, self._half = self._half, half
        if self._half < half:
            self.shrink()

    def shrink(self) -> None:
        """Cut the files that are too long: those of containers that have ended, and all if the bound is a new one."""
        for found in list(self._files.values()):
            if found.name and found.size > self._half:
                self.rotate(found)
        for name in os.listdir(self._directory):  # noqa: PTH208 - as above
            if name not in self._files and not name.endswith((PIPE, OPEN, NEW, CONTROL)):
                try:
                    self.cut(name)
                except OSError:
                    continue

    def cut(self, name: str) -> None:
        """Keep only the end of a file that no container prints to."""
        file = os.open(name, os.O_RDWR | _FLAGS, dir_fd=self._directory)
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size > self._half:
                end = os.pread(file, min(self._half, _AT_ONCE), status.st_size - min(self._half, _AT_ONCE))
                os.ftruncate(file, 0)
                os.pwrite(file, end, 0)
        finally:
            os.close(file)

    def unlink(self, name: str) -> None:
        """Remove a file that may be gone."""
        try:
            os.unlink(name, dir_fd=self._directory)
        except OSError:
            return


if __name__ == "__main__":
    Drain(sys.argv[1], sys.stdin.fileno()).run()
