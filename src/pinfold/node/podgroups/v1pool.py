"""V1Pool: the pods and containers of the shared pool on cgroup v1, each of which is set by itself.

There may be hundreds, and the start of a container waits for them: so all are opened by the one directory above the
pods, each pod's file once, and what is below a pod is listed only when it may have changed. All on strings: a Path for
each group takes as long as a system call.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError, CPUsFile
from pinfold.node.podgroups.settings import CPUS, GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.cgroupfiles import Directory
    from pinfold.node.podgroups.balance import BalanceFlags

_MOST: Final = 4096
"""The containers of so many pods are remembered."""


class V1Pool:
    """Sets pods and their containers. The names of these are remembered, and listed again where they have changed."""

    def __init__(self, flags: BalanceFlags) -> None:
        self._flags = flags
        self._names: dict[str, Sequence[str]] = {}

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
        for _ in range(2):
            names = self._names_below(above, pod)
            if names and before != cpus:
                self._flags.spare(f"{above.path}/{pod}", names)
            found = [_set_one(above, f"{pod}/{name}", cpus) for name in names]
            if None not in found:
                break
            self._names.pop(f"{above.path}/{pod}", None)  # another one may have come in its place
        left = [name for name, is_set in zip(names, found, strict=True) if is_set is False]
        return (cgroupfiles.whole(f"{pod}/{name}", above) for name in left)

    def _names_below(self, above: Directory, pod: str) -> Sequence[str]:
        """Return the names of the containers of a pod; as many as there are, but they may have been others before."""
        path = f"{above.path}/{pod}"
        known = self._names.get(path)
        if known is None or cgroupfiles.count_below(pod, above) != len(known):
            if len(self._names) >= _MOST:
                self._names.clear()
            known = self._names[path] = cgroupfiles.names_below(path)
        return known


def _set_one(above: Directory, group: str, cpus: CPUSet) -> bool | None:
    """Return whether the group has these CPUs now: no, if groups below it must move too; None, if it is gone."""
    try:
        return cgroupfiles.change_cpus(f"{group}/{CPUS}", cpus, lambda: not cgroupfiles.has_below(group, above), above)
    except CgroupError as error:
        if error.name == "EBUSY":
            return False
        if error.name not in GONE or os.path.isdir(f"{above.path}/{group}"):  # noqa: PTH112 - of hundreds of groups
            raise
    return None
