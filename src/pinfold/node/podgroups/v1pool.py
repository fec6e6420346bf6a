"""V1Pool: the pods and containers of the shared pool on cgroup v1, each of which is set by itself.

There may be hundreds, and the start of a container waits for them: so all are opened by the one directory above the
pods, each pod's file once, and what is below a pod is listed only when it may have changed. All on strings: a Path for
each group takes as long as a system call.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError, CPUsFile
from pinfold.node.podgroups.settings import CPUS, GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.cgroupfiles import Directory
    from pinfold.node.podgroups.balance import BalanceFlags

_MOST: Final = 4096
"""The containers of so many pods are remembered."""


class _Known(NamedTuple):
    """The containers of a pod."""

    names: Sequence[str]
    cpus: CPUSet | None = None
    """The CPUs that all of them were given; None if that is not certain. They can have fewer only by another hand."""


class V1Pool:
    """Sets pods and their containers. These are remembered, and listed again where they have changed."""

    def __init__(self, flags: BalanceFlags) -> None:
        self._flags = flags
        self._known: dict[str, _Known] = {}

    def share(
        self,
        above: Path,
        cpus: CPUSet,
        move: Callable[[Path], None],
        *,
        pods: Collection[str] | None = None,
        settled: Collection[Path] | None = None,
    ) -> bool:
        """Set the *pods* below this group; see `driver.Pooling`."""
        wide = False
        settled_pods = None if settled is None else set(map(str, settled))
        with cgroupfiles.directory_of(str(above)) as directory:
            if directory is None:
                return True
            self._doubt(directory, pods or ())
            for pod in cgroupfiles.names_below(directory.path) if pods is None else pods:
                keeps = settled_pods is not None and f"{directory.path}/{pod}" not in settled_pods
                try:
                    self._share_pod(directory, pod, cpus, move, keeps=keeps)
                except CgroupError as error:
                    if error.name not in GONE or os.path.isdir(f"{directory.path}/{pod}"):  # noqa: PTH112
                        raise
                else:
                    wide |= keeps
        return not wide

    def _share_pod(
        self, above: Directory, pod: str, cpus: CPUSet, move: Callable[[Path], None], *, keeps: bool
    ) -> None:
        """Widen a pod, set its containers, and let it shrink, unless it *keeps* what it has."""
        with CPUsFile(f"{pod}/{CPUS}", above) as file:
            before = file.read()
            if before != cpus:
                self._flags.spare(above.path, (pod,))
            wide = before if cpus <= before else before | cpus
            if wide is not before:
                file.write(wide)
            for container in self._share_containers(above, pod, cpus, before):
                move(container)
            if wide != cpus and not keeps:
                file.write(cpus)

    def _share_containers(self, above: Directory, pod: str, cpus: CPUSet, before: CPUSet) -> Iterator[Path]:
        """Set the containers of a pod that had these CPUs *before*; yield those with groups below them instead."""
        path = f"{above.path}/{pod}"
        for _ in range(2):
            names, given = self._known_below(above, pod)
            self._known[path] = _Known(names)
            if names and before != cpus:
                self._flags.spare(path, names)
            shrinks = given is not None and cpus != given and cpus <= given
            found = [_set_one(above, f"{pod}/{name}", cpus, shrinks=shrinks) for name in names]
            if all(found):
                self._known[path] = _Known(names, cpus)
            if None not in found:
                break
            del self._known[path]  # another one may have come in the place of one that is gone
        left = [name for name, is_set in zip(names, found, strict=True) if is_set is False]
        return (cgroupfiles.whole(f"{pod}/{name}", above) for name in left)

    def _doubt(self, above: Directory, pods: Iterable[str]) -> None:
        """Look at the containers of these pods: Guaranteed ones can have had CPUs of their own meanwhile."""
        for path in (f"{above.path}/{pod}" for pod in pods):
            if path in self._known:
                self._known[path] = _Known(self._known[path].names)

    def _known_below(self, above: Directory, pod: str) -> _Known:
        """Return the containers of a pod; as many as there are, but they may have been others before."""
        path = f"{above.path}/{pod}"
        known = self._known.get(path)
        if known is None or cgroupfiles.count_below(pod, above) != len(known.names):
            if len(self._known) >= _MOST:
                self._known.clear()
            known = _Known(cgroupfiles.names_below(path))
        return known


def _set_one(above: Directory, group: str, cpus: CPUSet, *, shrinks: bool) -> bool | None:
    """Return whether the group has these CPUs now: no, if groups below it must move too; None, if it is gone.

    If it *shrinks*, it is not read before it is written, which takes a quarter of the time.
    """
    path = f"{group}/{CPUS}"
    try:
        if not shrinks:
            return cgroupfiles.change_cpus(path, cpus, lambda: not cgroupfiles.has_below(group, above), above)
        cgroupfiles.write_cpus(path, cpus, above)
    except CgroupError as error:
        if error.name == "EBUSY":
            return False
        if error.name not in GONE or os.path.isdir(f"{above.path}/{group}"):  # noqa: PTH112 - of hundreds of groups
            raise
        return None
    return True
