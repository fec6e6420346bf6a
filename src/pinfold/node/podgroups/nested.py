"""The order of writing where a group must be within the one above it (cgroup v1), so that every group is set by itself.

Groups shrink from the bottom up and widen from the top down; a pool that moves is widened first. The groups above
(pod, class, kubepods) have no processes themselves, and are widened as needed.

A runtime that makes a container copies the pod's CPUs into it. If that container is in the way, everything is done
once more. If the pod shrinks between the runtime's reading and writing, the container cannot start: so the caller
names the settled pods, in which no container is being made, and the others stay wide until it has started.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.settings import CPUS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.driver import Pooling
    from pinfold.node.podgroups.settings import GroupChanges
    from pinfold.node.podgroups.tree import PodTree

# Each round takes microseconds, and is needed only for a container that was made during the round before.
_ROUNDS: Final = 20
# The errors that a container being made causes. The last has no errno: the runtime has written after us.
_DISTURBED: Final = ("EBUSY", "EACCES", "")


class _Move(NamedTuple):
    """The CPUs of a group."""

    before: CPUSet
    target: CPUSet


class Nested:
    """Writes CPUs for one change, on a kernel that wants groups within those above them."""

    def __init__(self, changes: GroupChanges, tree: PodTree, pooling: Pooling) -> None:
        self._changes = changes
        self._driver = changes.driver
        self._pooling = pooling
        self._tree = tree

    def share(
        self,
        top: Path,
        cpus: CPUSet,
        *,
        closely: bool,  # noqa: ARG002 - every group must be set by itself
        settled: Collection[Path] | None,
    ) -> None:
        """Set *top* and all groups below it; pods that are not *settled* do not shrink, only their containers."""
        self._undisturbed(lambda: self._share_once(top, cpus, settled))

    def give(self, container: Path, file: str, wanted: CPUSet) -> None:
        """Set a container and all groups below it, with room above."""
        self._undisturbed(lambda: self._give_once(container, file, wanted))

    def make_room(self, pod: Path, file: str, wanted: CPUSet) -> None:
        """Let the pod contain what is wanted; its containers keep what they have."""
        self._widen((*self._tree.paths.above(pod), pod), file, wanted)

    def _undisturbed(self, write: Callable[[], None]) -> None:
        """Write, and once more as long as a container that is being made is in the way."""
        for tries_left in reversed(range(_ROUNDS)):
            try:
                write()
            except CgroupError as error:
                if error.name not in _DISTURBED or not tries_left:
                    raise
            else:
                return

    def _share_once(self, top: Path, cpus: CPUSet, settled: Collection[Path] | None) -> None:
        """Widen *top*, set the pods below it, then let it shrink; *top* can be the one pod."""
        self._widen(self._tree.paths.above(top), CPUS, cpus)
        if self._tree.paths.levels(top) == 1:
            self._pooling.share(top.parent, cpus, partial(self._move, cpus), pods=[top.name], settled=settled)
            return
        with self._changes.unless_gone(top):
            before = self._driver.own(top, CPUS)
            wide = before | cpus
            if wide != before:
                self._changes.set_own(top, CPUS, wide, before)
            all_shrank = self._pooling.share(top, cpus, partial(self._move, cpus), settled=settled)
            self._changes.set_own(top, CPUS, cpus if all_shrank else wide, wide)

    def _move(self, cpus: CPUSet, container: Path) -> None:
        """Set a container that shares, and all groups below it."""
        self._set_round(self._moves(container, CPUS, cpus), CPUS)

    def _give_once(self, container: Path, file: str, wanted: CPUSet) -> None:
        self._widen(self._tree.paths.above(container), file, wanted)
        self._set_round(self._moves(container, file, wanted), file)

    def _widen(self, groups: Iterable[Path], file: str, wanted: CPUSet) -> None:
        """Let the groups, from the top down, contain what is wanted.

        On v1 a CPU that was offline for a while is missing in every group until it is put back.
        """
        for group in groups:
            own = self._driver.own(group, file)
            if not wanted <= own:
                self._changes.set_own(group, file, own | wanted, own)

    def _set_round(self, moves: dict[Path, _Move], file: str) -> None:
        parents = {group.parent for group in moves}
        has = {group: move.before for group, move in moves.items()}
        for group, (before, target) in moves.items():
            if not target <= before:
                # A group with others below it must contain them until they have moved too.
                wider = target | before if group in parents else target
                with self._changes.unless_gone(group):
                    self._changes.set_own(group, file, wider, before)
                    has[group] = wider
        for group, move in reversed(moves.items()):
            with self._changes.unless_gone(group):
                self._changes.set_own(group, file, move.target, has[group])

    def _moves(self, container: Path, file: str, wanted: CPUSet) -> dict[Path, _Move]:
        """Return what the container and each group inside it has and is to have, those above first."""
        moves: dict[Path, _Move] = {}
        for group in self._tree.below(container):
            with self._changes.unless_gone(group):
                before = self._driver.own(group, file)
                if group == container:
                    moves[group] = _Move(before, wanted)
                elif before and group.parent in moves:
                    moves[group] = _Move(before, _follow(before, moves[group.parent]))
        return moves


def _follow(before: CPUSet, above: _Move) -> CPUSet:
    """Return the CPUs of a group inside a container: all again if it had all, else what is left of its own, or all."""
    return above.target if before == above.before else before & above.target or above.target
