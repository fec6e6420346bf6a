"""Whether a kubelet on this node manages CPUs itself: its CPU Manager's state file says so, and what it has given.

Two managers of the same CPUs would undo each other, so whoever comes second only watches, or takes over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError
from pinfold.formats.checkpoint import parse_checkpoint
from pinfold.node.statefile import read_state_file

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.state import State

FILE: Final = "cpu_manager_state"
_STATIC: Final = "static"


class KubeletState(NamedTuple):
    """What a kubelet has left, or uses."""

    path: Path
    policy: str
    state: State | None
    """None: it cannot be read."""
    problem: str = ""


def find_kubelet(directory: Path) -> KubeletState | None:
    """Return the state of a kubelet whose own policy gives CPUs away; None if there is none."""
    path = directory / FILE
    try:
        text = read_state_file(path)
    except PinfoldError as error:
        return KubeletState(path, "unknown", None, str(error))
    if text is None:
        return None
    policy = _policy(text)
    if policy == "none":
        return None
    try:
        return KubeletState(path, policy, parse_checkpoint(text, policy=_STATIC))
    except PinfoldError as error:
        return KubeletState(path, policy, None, str(error))


def _policy(text: str) -> str:
    """Return the policy's name; a file in which there is none is not to be trusted either."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return "unknown"
    if isinstance(data, dict) and isinstance(data.get("data"), str):  # the newest form is JSON within JSON
        return _policy(data["data"])
    name = data.get("policyName") if isinstance(data, dict) else None
    return name if isinstance(name, str) else "unknown"
