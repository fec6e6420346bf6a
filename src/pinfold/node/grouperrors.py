"""What goes wrong with groups of processes, and what no kind of them can promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.node.processgroups.names import show

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.core.pods import ContainerRef

OUTSIDERS: Final = "processes that pinfold has not started or adopted may run on exclusive CPUs"
OFFLINE: Final = "while all CPUs of a container are offline, its processes run on the others"
_SHOWN_PIDS: Final = 10


class GroupError(PinfoldError):
    """A group of processes that cannot be made, changed or asked."""


class NoGroupError(GroupError):
    """A container that has no group (yet, or any more)."""

    def __init__(self, ref: ContainerRef) -> None:
        super().__init__(f"container {show(ref)} has no group; make it first")
        self.ref = ref


class NoCPUsError(GroupError):
    """An empty set of CPUs for a group: cgroup v2 would take it for "all CPUs"."""

    def __init__(self, group: str) -> None:
        super().__init__(f"{group}: no CPUs given; a group needs at least one")
        self.group = group


class NoProcessError(GroupError):
    """A process that is not there (any more)."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"there is no process {pid}")
        self.pid = pid


class GroupInUseError(GroupError):
    """A group that cannot go, because it has processes."""

    def __init__(self, group: str, pids: Collection[int]) -> None:
        listed = ", ".join(map(str, sorted(pids)[:_SHOWN_PIDS]))
        more = f" and {len(pids) - _SHOWN_PIDS} more" if len(pids) > _SHOWN_PIDS else ""
        super().__init__(f"{group} still has processes: {listed}{more}; end them first")
        self.group = group
        self.pids = tuple(sorted(pids))


class KindUnavailableError(GroupError):
    """A kind of groups that this machine does not have, or does not let us use."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"{kind} cannot be used: {why}")
        self.kind = kind
        self.why = why


class GroupsHeldError(GroupError):
    """Groups that another daemon uses."""

    def __init__(self, tree: str) -> None:
        super().__init__(f"another daemon uses the groups {tree}; end it, or choose others with --group-name")
        self.tree = tree
