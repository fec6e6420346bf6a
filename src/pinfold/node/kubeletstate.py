"""Whether a kubelet on this node manages CPUs itself: by its state file, its configuration, or its answer (/configz).

Two managers of the same CPUs would undo each other's changes, so the second one only watches, or takes over.
"""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.formats.kubelet.config import parse_kubelet_config
from pinfold.node.statefile import read_state_file

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.config import Config
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.state import State

FILE: Final = "cpu_manager_state"
CONFIG: Final = "config.yaml"
READ_ONLY_PORT: Final = 10_255
_STATIC: Final = "static"
_HERE: Final = "127.0.0.1"
_SLOWEST: Final = 1.0
_MOST: Final = 1 << 20
_PIECE: Final = 64 << 10


class KubeletState(NamedTuple):
    """The state file that a kubelet uses or has left behind."""

    path: Path
    policy: str
    state: State | None
    """None if it cannot be read."""
    problem: str = ""


def find_kubelet(directory: Path, port: int = READ_ONLY_PORT) -> KubeletState | None:
    """Return the state of a kubelet whose own policy assigns CPUs; None if there is none."""
    path = directory / FILE
    found = read_kubelet(directory)
    config = _configured(directory)
    if found is None and _STATIC in {config.policy if config is not None else None, ask_policy(port)}:
        return KubeletState(path, _STATIC, None, "the kubelet has policy static, but this file is missing")
    return found


def other_reservation(directory: Path, ours: CPUSet) -> str | None:
    """Return what the kubelet's configuration reserves if that differs from *ours*; None if not, or if unknown."""
    config = _configured(directory)
    if config is None:
        return None
    cpus, count = config.reserved.cpus, config.reserved.count
    if cpus is not None:
        return None if cpus == ours else f"CPUs {cpus}"
    return None if count == len(ours) else f"{count} CPUs"


def _configured(directory: Path) -> Config | None:
    """Return the kubelet's configuration, where kubeadm and most others put it; None if it cannot be read."""
    try:
        text = read_state_file(directory / CONFIG)
        return None if text is None else parse_kubelet_config(text).config
    except PinfoldError:
        return None


def ask_policy(port: int = READ_ONLY_PORT) -> str | None:
    """Return the CPU Manager policy of the kubelet that answers on its read-only port here; None if none does."""
    try:
        answer = json.loads(_get("/configz", port))
        policy = answer["kubeletconfig"]["cpuManagerPolicy"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return policy if isinstance(policy, str) else None


def _get(path: str, port: int) -> bytes:
    """Return the body of an answer, whole or the first part of a large one; ValueError if its status is no success.

    HTTP 1.0: a server then sends the body in one piece, and closes. So this needs no client such as http.client, which
    is 1.4 MB of memory of every daemon on a Kubernetes node.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as connection:
        connection.settimeout(_SLOWEST)
        connection.connect((_HERE, port))
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {_HERE}\r\n\r\n".encode())
        answer = bytearray()
        while len(answer) < _MOST and (piece := connection.recv(_PIECE)):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("no success")
    return bytes(body)


def read_kubelet(directory: Path) -> KubeletState | None:
    """Return what the kubelet's state file says; None if there is no file, or its policy assigns no CPUs."""
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
    """Return the policy's name; a file without one is not trusted either."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return "unknown"
    if isinstance(data, dict) and isinstance(data.get("data"), str):  # the newest form is JSON within JSON
        return _policy(data["data"])
    name = data.get("policyName") if isinstance(data, dict) else None
    return name if isinstance(name, str) else "unknown"
