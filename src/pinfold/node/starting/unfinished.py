"""Unfinished: processes that a killed daemon was about to start. They become their command in a moment, or never."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from time import monotonic
from typing import Final

from pinfold.node.procfs import PROC
from pinfold.node.starting import forker

_PATIENCE: Final = 2.0
"""Seconds for which a process may need the CPU time to become its command, or to end with its daemon."""
_GLANCE: Final = 0.01


async def settle(name: str, patience: float = _PATIENCE) -> None:
    """Return when no killed daemon is about to start a process in the groups of this name; or end the process.

    A daemon that does not wait takes it for a container that runs, although it ends, or starts its command twice.
    """
    left, end = [pid for pid in PROC.numbers() if _is_unfinished(pid, name)], monotonic() + patience
    while left and monotonic() < end:
        await asyncio.sleep(_GLANCE)
        left = [pid for pid in left if _is_unfinished(pid, name) or _is_becoming(pid)]
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # one that is frozen gets it before it can go on


def _is_unfinished(pid: int, name: str) -> bool:
    """Return whether a process is a forker, or was forked by one, whose daemon of these groups has ended."""
    *_, program, _channel, daemon, groups, _end = ["", "", "", "", "", *PROC.command(pid)]
    if program != forker.__file__ or groups != name:
        return False
    found = PROC.process(pid)
    return found is not None and str(found.parent) != daemon


def _is_becoming(pid: int) -> bool:
    """Return whether a process is within its exec: for a moment it has neither a command line nor an environment."""
    return not any(PROC.command(pid)) and PROC.process(pid) is not None
