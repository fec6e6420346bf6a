"""Partitions: an owner's group of cgroup v2 as a scheduler partition, which takes its CPUs from the whole host.

The kernel then keeps every other process of the host off these CPUs, and balances no load across the border. Owners are
not directly below the top, so this is a "remote" partition (Linux 6.7): cpuset.cpus.exclusive of all groups above must
name its CPUs. A kernel that refuses leaves the owner with a plain cpuset, exclusive among the containers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.processgroups.subtree import Subtree

MEMBER: Final = "member"
_STATE: Final = "cpuset.cpus.partition"
_EXCLUSIVE: Final = "cpuset.cpus.exclusive"
_EFFECTIVE: Final = "cpuset.cpus.effective"
_CPUS: Final = "cpuset.cpus"


class Partitions:
    """The partitions of one subtree; *kind* is what owners' groups are to be: member, root or isolated."""

    def __init__(self, tree: Subtree) -> None:
        self.kind = MEMBER
        self.told: Callable[[str], None] = lambda _why: None
        """Called with the reason why an owner's group is no partition."""
        self._tree = tree
        self._refused: dict[Path, str] = {}

    @property
    def weaker(self) -> list[str]:
        """What cannot be promised, in words."""
        if self.kind != MEMBER and self._tree.top.is_dir() and not self._are_there():
            return ["exclusive CPUs are no scheduler partitions: the kernel has none for these groups; Linux 6.7 has"]
        return [_explained(group, why) for group, why in self._refused.items()]

    def settle(self) -> None:
        """Make the groups that an earlier daemon has left what they are to be; all keep their CPUs."""
        if not self._are_there():
            return
        for group in self._owners():
            if self.kind == MEMBER:
                self._give_up(group)
            else:
                self.tighten(group, files.read_cpus(group / _CPUS))
        self.trim()

    def loosen(self, group: Path, cpus: CPUSet) -> None:
        """Give up a partition whose CPUs change: its CPUs cannot be changed in one step."""
        with suppress(GroupError):
            if self._is_partition(group) and files.read_cpus(group / _EXCLUSIVE) != cpus:
                self._give_up(group)
                self.trim()

    def tighten(self, group: Path, cpus: CPUSet) -> None:
        """Make a group with these CPUs a partition, and read that back; or leave it as it is, and tell why."""
        if self.kind == MEMBER or not self._are_there() or files.read(group / _STATE) == self.kind:
            return
        try:
            for above in (self._tree.top, self._tree.exclusive, group.parent):
                files.write_cpus(above / _EXCLUSIVE, files.read_cpus(above / _EXCLUSIVE) | cpus)
            files.write_cpus(group / _EXCLUSIVE, cpus)
            files.write_once(group / _STATE, self.kind)
            self._check(group, cpus)
            self._refused.pop(group, None)
        except CgroupError as error:
            self._give_up(group)
            self._refuse(group, error.meaning)
            self._trim()

    def trim(self) -> None:
        """Have the groups above name no other CPUs than those of partitions; try again those that were refused."""
        if not self._are_there():
            return
        self._trim()
        for group in list(self._refused):
            if group.is_dir():
                self.tighten(group, files.read_cpus(group / _CPUS))
            else:
                del self._refused[group]

    def lost(self) -> str:
        """Return which group is no partition any more, in words; "" if all are."""
        if self.kind == MEMBER or not self._are_there():
            return ""
        states = ((group, files.read(group / _STATE)) for group in self._owners() if group not in self._refused)
        return next((f"{group / _STATE} is {state}" for group, state in states if state != self.kind), "")

    def restore(self) -> None:
        """Make the groups that are no partitions any more partitions again."""
        if self.lost():
            self.settle()

    def _owners(self) -> Iterator[Path]:
        for pod in files.groups_below(self._tree.exclusive):
            yield from files.groups_below(pod)

    def _are_there(self) -> bool:
        return (self._tree.top / _EXCLUSIVE).exists()

    def _is_partition(self, group: Path) -> bool:
        return self._are_there() and files.read(group / _STATE) != MEMBER

    def _check(self, group: Path, cpus: CPUSet) -> None:
        state, given = files.read(group / _STATE), files.read_cpus(group / _EFFECTIVE)
        if state != self.kind:  # such as: root invalid (Cpu list in cpuset.cpus not exclusive)
            raise CgroupError(group / _STATE, self.kind, "", f"the kernel says {state}")
        if not given <= cpus:
            raise CgroupError(group / _STATE, self.kind, "", f"the kernel lets it run on {given}")

    def _give_up(self, group: Path) -> None:
        if files.read(group / _STATE) != MEMBER:
            files.write_once(group / _STATE, MEMBER)
        if files.read(group / _EXCLUSIVE):
            files.write_once(group / _EXCLUSIVE, "")

    def _refuse(self, group: Path, why: str) -> None:
        if self._refused.get(group) != why:
            self.told(_explained(group, why))
        self._refused[group] = why

    def _trim(self) -> None:
        for pod in files.groups_below(self._tree.exclusive):
            _name_only(pod)
        _name_only(self._tree.exclusive)
        _name_only(self._tree.top)


def _name_only(group: Path) -> None:
    """Have a group name only the CPUs that those below it name."""
    below = EMPTY
    for one in files.groups_below(group):
        if (one / _EXCLUSIVE).exists():
            below |= files.read_cpus(one / _EXCLUSIVE)
    if files.read_cpus(group / _EXCLUSIVE) != below:
        files.write_once(group / _EXCLUSIVE, str(below))


def _explained(group: Path, why: str) -> str:
    return f"container {group.parent.name}/{group.name} has a plain cpuset and no scheduler partition: {why}"
