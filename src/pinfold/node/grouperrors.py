"""The errors that groups of plain processes and groups of Kubernetes pods have in common."""

from __future__ import annotations

from pinfold.errors import PinfoldError


class GroupError(PinfoldError):
    """A group cannot be made, changed, read or removed."""


class NoCPUsError(GroupError):
    """A group was to get an empty set of CPUs, which cgroup v2 would take for "all CPUs"."""

    def __init__(self, group: str) -> None:
        super().__init__(f"{group}: no CPUs given; a group needs at least one")
        self.group = group


class KindUnavailableError(GroupError):
    """This machine does not have a kind of groups, or the daemon may not use it."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"{kind} cannot be used: {why}")
        self.kind = kind
        self.why = why
