"""Subtree: the groups of one cgroup hierarchy that are pinfold's own.

    NAME/shared/POD/CONTAINER    NAME/exclusive/POD/CONTAINER

Finds, lists and removes the groups of containers; does not know what is in their files.
"""

from __future__ import annotations

import fcntl
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node import cgroupfiles as files
from pinfold.node.processgroups.errors import GroupInUseError, GroupsHeldError
from pinfold.node.processgroups.names import EXCLUSIVE, SHARED, checked_name, decode, encode, show

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_LISTED: Final = 0o711
"""Other users can enter the directory but not open it: they could lock it, and keep the daemon from starting."""

_MOST_PATHS: Final = 4096


class Subtree:
    """The group NAME below *root*, and all groups in it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = checked_name(name)
        self.top = root / name
        self.shared = self.top / SHARED
        self.exclusive = self.top / EXCLUSIVE
        self._held: int | None = None

    def hold(self) -> None:
        """Keep other daemons from using this subtree for as long as this process lives; raise if one does."""
        if self._held is not None:
            return
        files.make_group(self.top)
        held = os.open(self.top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(held)
            raise GroupsHeldError(str(self.top)) from error
        os.fchmod(held, _NOT_LISTED)
        self._held = held

    def group(self, ref: ContainerRef, *, exclusive: bool) -> Path:
        """Return where the container's group is, or would be."""
        return _below(self.exclusive if exclusive else self.shared, ref)

    def has(self, ref: ContainerRef, *, exclusive: bool) -> bool:
        """Return whether the container has a group."""
        return os.path.isdir(_path(self.exclusive if exclusive else self.shared, ref))  # noqa: PTH112 - at each check

    def make_shared(self, ref: ContainerRef) -> tuple[bool, bool]:
        """Make the groups of a pod and its container, where they are missing; return whether each was made."""
        group = _path(self.shared, ref)
        return files.make_group(group.rpartition("/")[0]), files.make_group(group)

    def refs(self, *, exclusive: bool) -> Iterator[ContainerRef]:
        """Yield the containers that have a group; groups that pinfold has not made are skipped."""
        pool = self.exclusive if exclusive else self.shared
        for pod in files.names_below(pool):
            uid = decode(pod)
            if uid is None:
                continue
            for container in files.names_below(f"{pool}/{pod}"):
                name = decode(container)
                if name is not None:
                    yield ContainerRef(PodUID(uid), name)

    def try_out(self) -> None:
        """Raise if groups cannot be made here; leave nothing behind."""
        if files.make_group(self.top):
            files.remove_group(self.top)
        elif not os.access(self.top, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):  # a daemon of root has made it
            raise files.CgroupError(self.top, "make a group below", "", files.NO_PERMISSION)

    def make_pools(self) -> None:
        """Make the groups of both pools, where they are missing; remove empty pods that a killed daemon has left."""
        for group in (self.top, self.shared, self.exclusive):
            files.make_group(group)
        for pod in (*files.groups_below(self.shared), *files.groups_below(self.exclusive)):
            if decode(pod.name) is not None and not files.has_below(pod) and not files.read_pids(pod):
                files.remove_group(pod)

    def remove(self, ref: ContainerRef, *, exclusive: bool) -> None:
        """Remove the container's group, and with the last one of a pod the pod's; a missing group is fine."""
        if not self.has(ref, exclusive=exclusive):
            return
        group = self.group(ref, exclusive=exclusive)
        pids = files.read_pids(group)
        if pids:
            raise GroupInUseError(f"container {show(ref)}", pids)
        files.remove_group(group)
        if not files.groups_below(group.parent):
            files.remove_group(group.parent)

    def expel(self, pid: int) -> None:
        """Move a process to the top of the hierarchy, if it is in this subtree."""
        if any(pid in files.read_pids(group) for group in self._all()):
            files.add_unless_gone(self.root, pid)

    def remove_empty(self) -> list[int]:
        """Remove every group without processes, in it and below it; return the processes that are left."""
        left: list[int] = []
        for group in self._all():
            pids = files.read_pids(group)
            left += pids
            if not pids and not files.groups_below(group):
                files.remove_group(group)
        if self._held is not None and not self.top.is_dir():
            os.close(self._held)
            self._held = None
        return left

    def _all(self) -> list[Path]:
        """Return every group of the subtree, those below before those above."""
        groups = [self.top] if self.top.is_dir() else []
        for group in groups:  # grows while it is walked
            groups.extend(files.groups_below(group))
        return groups[::-1]


@lru_cache(_MOST_PATHS)
def _below(pool: Path, ref: ContainerRef) -> Path:
    """Return the group of a container in a pool; each check needs it of all containers."""
    return Path(_path(pool, ref))


@lru_cache(_MOST_PATHS)
def _path(pool: Path, ref: ContainerRef) -> str:
    """Return the same as text: to make a Path takes as long as to make a group."""
    return f"{pool}/{encode(ref.pod)}/{encode(ref.name)}"
