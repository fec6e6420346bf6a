"""The order of writing where a group must be within the one above it (cgroup v1), so that every group is set by itself.

Groups shrink from the bottom up and widen from the top down; a pool that moves is widened first. The groups above
(pod, class, kubepods) have no processes themselves, and are widened as needed.

A runtime that makes a container copies the pod's CPUs into it. If that container is in the way, everything is done
once more. If the pod shrinks between the runtime's reading and writing, the container cannot start: so the caller
names the settled pods, in which no container is being made, and the others stay wide until it has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.settings import CPUS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
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

    def __init__(self, changes: GroupChanges, tree: PodTree) -> None:
        self._changes = changes
        self._driver = changes.driver
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
        self._set_all(top, CPUS, cpus, settled)

    def give(self, container: Path, file: str, wanted: CPUSet) -> None:
        """Set a container and all groups below it, with room above."""
        self._set_all(container, file, wanted, None)

    def make_room(self, pod: Path, file: str, wanted: CPUSet) -> None:
        """Let the pod contain what is wanted; its containers keep what they have."""
        self._widen((*self._tree.paths.above(pod), pod), file, wanted)

    def _set_all(self, top: Path, file: str, wanted: CPUSet, settled: Collection[Path] | None) -> None:
        for tries_left in reversed(range(_ROUNDS)):
            try:
                self._widen(self._tree.paths.above(top), file, wanted)
                self._set_round(self._moves(top, file, wanted, settled), file)
            except CgroupError as error:
                if error.name not in _DISTURBED or not tries_left:
                    raise
            else:
                return

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
        # The kernel keeps every group within the one above it: what the top one has, read back, is true of all below.
        every = next(iter(moves.values())).target if moves else EMPTY
        last = len(moves) - 1
        for place, (group, move) in enumerate(reversed(moves.items())):
            read_back = place == last or move.target != every
            with self._changes.unless_gone(group):
                self._changes.set_own(group, file, move.target, has[group], read_back=read_back)

    def _moves(self, top: Path, file: str, wanted: CPUSet, settled: Collection[Path] | None) -> dict[Path, _Move]:
        """Return what each group has and is to have, those above first; those above unsettled pods do not shrink."""
        moves: dict[Path, _Move] = {}
        containers = len(top.parts) + self._tree.paths.levels(top)
        groups = self._tree.below(top)
        wide = _unsettled((group for group in groups if len(group.parts) == containers - 1), settled)
        for group in groups:
            with self._changes.unless_gone(group):
                before = self._driver.own(group, file)
                if len(group.parts) <= containers:
                    moves[group] = _Move(before, wanted | before if group in wide else wanted)
                elif before and group.parent in moves:
                    moves[group] = _Move(before, _follow(before, moves[group.parent]))
        return moves


def _unsettled(pods: Iterable[Path], settled: Collection[Path] | None) -> set[Path]:
    """Return the pods that may not shrink, and the groups above them."""
    return set() if settled is None else {above for pod in pods if pod not in settled for above in (pod, pod.parent)}


def _follow(before: CPUSet, above: _Move) -> CPUSet:
    """Return the CPUs of a group inside a container: all again if it had all, else what is left of its own, or all."""
    return above.target if before == above.before else before & above.target or above.target
