"""Claim: which groups of this host a daemon changes, kept in its state directory so that they can be given back later.

It is written when the daemon starts, and removed when all groups have their CPUs back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import StateError
from pinfold.node.statefile import read_state_file, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.settings.settings import Settings

FILE: Final = "claim.json"


class Claim(NamedTuple):
    """Where the groups are that a daemon has narrowed."""

    runtime: str
    groups: str = "auto"
    """The kind of groups of plain processes."""
    group_name: str = "pinfold"
    cgroup_root: str = ""
    """The parent of the kubelet's cgroup; empty: there is only one kubelet."""

    @classmethod
    def of(cls, chosen: Settings) -> Claim:
        """Return the claim of a daemon with these settings."""
        return cls(str(chosen.runtime), str(chosen.groups), chosen.group_name, chosen.kubernetes.cgroup_root or "")

    def keep(self, directory: Path) -> None:
        """Save it durably, unless it is there already; or raise."""
        data = json.dumps(self._asdict())
        if read_state_file(directory / FILE) != data:
            write_atomically(directory / FILE, data.encode())


def read_claim(directory: Path) -> Claim | None:
    """Return what a daemon with this state directory has changed; None if it has changed nothing."""
    text = read_state_file(directory / FILE)
    if text is None:
        return None
    try:
        data = json.loads(text)
        return Claim(**{name: _text(data[name]) for name in Claim._fields})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(f"{directory / FILE}: is damaged ({type(error).__name__}: {error})") from error


def drop_claim(directory: Path) -> None:
    """Remove the claim: all groups have their CPUs back."""
    (directory / FILE).unlink(missing_ok=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value
