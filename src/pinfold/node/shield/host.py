"""The Places of a host: groups, threads, IRQs and workqueues, each read and set in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.shield import PlaceKind
from pinfold.node.shield.hostgroups import HostGroups
from pinfold.node.shield.masks import Masks
from pinfold.node.shield.threads import KernelScheduler, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.shield import HostPlace
    from pinfold.node.shield.threads import ThreadAffinity


class Host:
    """The Places of the host below a root directory."""

    def __init__(
        self,
        root: Path,
        *,
        members: Callable[[], Collection[int]] = frozenset,
        joined: Callable[[], Mapping[int, CPUSet]] = dict,
        scheduler: ThreadAffinity | None = None,
        systemctl: str = "systemctl",
    ) -> None:
        """*members* returns the processes of containers that are in no group, *joined* the others with their CPUs."""
        self.groups = HostGroups(root, systemctl=systemctl)
        self._masks = Masks(root)
        self._threads = Threads(root, self.groups.top, scheduler or KernelScheduler(), members, joined)

    def read(self) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of every HostPlace that can be moved."""
        return {**self.groups.read(), **self._threads.read(), **self._masks.read()}

    def joined(self, known: Collection[str], *, all_of_them: bool) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of threads in groups of containers, as `Threads.joined` does."""
        return self._threads.joined(known, all_of_them=all_of_them)

    def write(self, place: HostPlace, cpus: CPUSet) -> None:
        """Set the CPUs of a HostPlace, or raise a GroupError."""
        match place.kind:
            case PlaceKind.GROUP:
                self.groups.write(place, cpus)
            case PlaceKind.PROCESS | PlaceKind.KERNEL_THREAD:
                self._threads.write(place, cpus)
            case _:
                self._masks.write(place, cpus)

    def ticks(self) -> int | None:
        """Return how long the machine is up, in clock ticks; None if that is not known."""
        return self._threads.ticks()

    def matters(self, place: HostPlace, kept: CPUSet) -> bool:
        """Return whether a HostPlace that refuses to move really uses a kept CPU."""
        return place.kind is not PlaceKind.IRQ or self._masks.is_bound(place, kept)
