"""The errors of groups of plain processes, and what no kind of these groups can promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.names import show

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef

NOT_PROMISED: Final = (
    "processes that pinfold has not started or adopted may run on exclusive CPUs",
    "while all CPUs of a container are offline, its processes run on the others",
)
"""What no kind of groups can promise, for people to read."""
_SHOWN_PIDS: Final = 10


def listed(pids: Collection[int]) -> str:
    """Return the first few PIDs in words.

    >>> listed([3, 1]), listed(range(1, 13))
    ('1, 3', '1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more')
    """
    shown = ", ".join(map(str, sorted(pids)[:_SHOWN_PIDS]))
    return shown if len(pids) <= _SHOWN_PIDS else f"{shown} and {len(pids) - _SHOWN_PIDS} more"


class NoGroupError(GroupError):
    """A container has no group: it was not made yet, or it was removed."""

    def __init__(self, ref: ContainerRef) -> None:
        super().__init__(f"container {show(ref)} has no group; make it first")
        self.ref = ref


class NoProcessError(GroupError):
    """There is no process with this number."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"there is no process {pid}")
        self.pid = pid


class GroupInUseError(GroupError):
    """A group cannot be removed because it has processes."""

    def __init__(self, group: str, pids: Collection[int]) -> None:
        super().__init__(f"{group} still has processes: {listed(pids)}; end them first")
        self.group = group
        self.pids = tuple(sorted(pids))


class GroupsHeldError(GroupError):
    """Another daemon uses the groups of this name."""

    def __init__(self, tree: str) -> None:
        super().__init__(f"another daemon uses the groups {tree}; stop it, or choose another name with --group-name")
        self.tree = tree


class BarredError(GroupError):
    """The daemon's own cpuset lacks CPUs, so it cannot put the processes that it starts on them."""

    def __init__(self, group: str, cpus: CPUSet, barred: CPUSet) -> None:
        advice = f"start the daemon with --reserved-cpus {barred}, so that it promises them to no container"
        super().__init__(f"{group}: CPUs {cpus} → the daemon's cpuset does not have {cpus & barred}; {advice}")
        self.group = group
        self.cpus = cpus
        self.barred = barred


class AffinityError(GroupError):
    """The kernel does not let a thread have these CPUs."""

    def __init__(self, thread: int, cpus: CPUSet, meaning: str) -> None:
        super().__init__(f"thread {thread}: CPUs {cpus} → {meaning}")
        self.thread = thread
        self.cpus = cpus
        self.meaning = meaning
