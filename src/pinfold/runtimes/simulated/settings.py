"""RuntimeSettings: how a container runtime behaves, and the versions of containerd that behave differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pinfold.formats.wire.ttrpc import MOST_BODY

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """A runtime; the defaults are containerd 2.1. Times are seconds."""

    name: str = "containerd"
    version: str = "2.1.9"
    early: bool = False
    """Whether a container's cgroup and process are made when it is created, as in CRI-O; else when it is started."""

    registration_timeout: float = 5.0
    """How long a new NRI connection may take to register."""
    request_timeout: float = 2.0
    """How long an NRI plugin may take to answer."""
    most_synchronized: int = MOST_BODY - 1024
    """How many bytes of an NRI Synchronize go into one message; a longer one comes in pieces."""
    own_methods: bool = False
    """Whether each NRI event comes by a method of its own, as from NRI 0.12 on; else by StateChange."""

    events: bool = True
    """Whether CRI has GetContainerEvents."""
    windows: bool = False
    """Whether it runs Windows containers."""


RUNTIMES: Final[Mapping[str, RuntimeSettings]] = {
    "containerd-1.6": RuntimeSettings(version="1.6.20", events=False),
    "containerd-1.7": RuntimeSettings(version="1.7.24"),
    "containerd-2.1": RuntimeSettings(),
    "containerd-2.3": RuntimeSettings(version="2.3.0", own_methods=True),
}
"""The runtimes in use; containerd 1.6 has no NRI, so do not listen for plugins there."""
