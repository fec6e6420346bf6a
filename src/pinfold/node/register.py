"""Register: the daemons of one user on this machine, each with a locked file named after its groups.

The kernel frees the lock when the daemon ends. The directory belongs to the user, so no other user can take a name.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.errors import ParseError
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.errors import GroupsHeldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SUFFIX: Final = ".daemon"
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MOST: Final = 1 << 16
_OTHERS_WRITE: Final = 0o022
_TRIES: Final = 5
_PAUSE: Final = 0.02
_LONG_PAUSE: Final = 0.2


class Registered(NamedTuple):
    """Another daemon."""

    name: str
    """The name of its groups."""
    pid: str
    cpus: CPUSet
    """The CPUs that it may give to containers as exclusive ones."""


class CPUsTakenError(GroupError):
    """Another daemon can give the same CPUs away."""

    def __init__(self, other: Registered, cpus: CPUSet) -> None:
        super().__init__(
            f"another daemon (process {other.pid}, groups {other.name}) can give CPUs {cpus} to containers too; "
            "stop it, or reserve these CPUs in one of the two with --reserved-cpus, or start with --other-daemons warn"
        )
        self.other = other
        self.cpus = cpus


class Register:
    """The files in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = ""
        self._held = -1
        self._told: CPUSet | None = None
        """What the others read now, as far as it is known."""

    def enter(self, name: str) -> bool:
        """Take a name for as long as this process lives, or raise; return whether names can be taken here at all."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_ours():
                return False
            for _ in range(_TRIES):
                if self._take(name):
                    return True
                time.sleep(_PAUSE)  # another daemon may have looked whether the name is taken
        except OSError:
            return False
        raise GroupsHeldError(name)

    def _take(self, name: str) -> bool:
        path = self._path(name)
        held = os.open(path, _FLAGS | os.O_CREAT, 0o600)
        with suppress(OSError):
            if _lock(held) and os.fstat(held).st_ino == path.lstat().st_ino:
                self._name, self._held = name, held
                return True
        os.close(held)
        return False

    def tell(self, cpus: CPUSet) -> None:
        """Tell the other daemons which CPUs this one may give to containers."""
        if self._held >= 0 and cpus != self._told:
            self._told = None
            with suppress(OSError):
                os.ftruncate(self._held, 0)
                os.pwrite(self._held, f"{os.getpid()} {cpus}\n".encode(), 0)
                self._told = cpus

    def claim(self, cpus: CPUSet) -> None:
        """Tell the other daemons which CPUs this one may give to containers; raise if one may give them too.

        Of two that start in the same moment each may find the other, and withdraw; the first to try again goes on.
        """
        for is_last in (False, True):
            self.tell(cpus)
            other = next((other for other in self.others() if other.cpus & cpus), None)
            if other is None:
                return
            self.tell(EMPTY)
            if is_last:
                raise CPUsTakenError(other, other.cpus & cpus)
            from random import uniform  # noqa: PLC0415 - most daemons come here at the first attempt

            time.sleep(uniform(_PAUSE, _LONG_PAUSE))  # noqa: S311 - so that two do not try again together

    def others(self) -> list[Registered]:
        """Return the other daemons that run now."""
        return [found for name in self._names() if name != self._name and (found := self._read(name)) is not None]

    def _names(self) -> Iterator[str]:
        with suppress(OSError):
            names = os.listdir(self._directory)  # noqa: PTH208 - at each check, and a glob takes far longer
            yield from sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def _read(self, name: str) -> Registered | None:
        """Return a daemon; None if it has not told its CPUs yet, or if it has ended: then its file is removed."""
        try:
            file = os.open(self._path(name), _FLAGS)
        except OSError:
            return None
        try:
            if _lock(file):
                self._path(name).unlink()
                return None
            pid, _, cpus = os.read(file, _MOST).decode("ascii", "replace").strip().partition(" ")
            return Registered(name, pid, CPUSet.parse(cpus))
        except (OSError, ParseError):
            return None
        finally:
            os.close(file)

    def _is_ours(self) -> bool:
        found = self._directory.lstat()
        return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"


def directory_of(environment: Mapping[str, str], uid: int) -> Path:
    """Return the directory of a user's register, the same for all daemons of this user.

    >>> print(directory_of({"XDG_RUNTIME_DIR": "/run/user/1000"}, 1000), directory_of({}, 0))
    /run/user/1000/pinfold /run/pinfold
    """
    own = environment.get("XDG_RUNTIME_DIR", "")
    return Path("/run/pinfold") if uid == 0 else Path(own if own.startswith("/") else f"/run/user/{uid}") / "pinfold"


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
