"""The JSON that a container runtime adds to the status of a container: its process, its cgroup and its CPU resources.

No standard defines it, so each value is checked; missing values get defaults.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from pinfold.errors import ParseError, excerpt

_LARGEST: Final = (1 << 63) - 1


class Info(NamedTuple):
    """A container's data beyond its status."""

    pid: int = 0
    pod: str = ""
    """The runtime's own name for its pod."""
    cgroups_path: str = ""
    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    memory: int | None = None
    cpus: str = ""
    mems: str = ""


def parse_info(text: str) -> Info:
    """Return the data in the JSON *text*.

    >>> parse_info('{"pid": 7, "runtimeSpec": {"linux": {"cgroupsPath": "/a/b", "resources": {"cpu": {"shares": 2}}}}}')
    Info(pid=7, pod='', cgroups_path='/a/b', shares=2, quota=None, period=None, memory=None, cpus='', mems='')
    >>> parse_info('{"pid": "7"}')
    Traceback (most recent call last):
    pinfold.errors.ParseError: info: pid: a whole number is expected, not "7"
    """
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {excerpt(text)}", where="info") from error
    root = _Node(value, "info")
    spec = root.child("runtimeSpec")
    linux = spec.child("linux")
    cpu = linux.child("resources").child("cpu")
    return Info(
        pid=root.whole("pid") or 0,
        pod=root.text("sandboxID") or spec.child("annotations").text("io.kubernetes.cri.sandbox-id"),
        cgroups_path=linux.text("cgroupsPath"),
        shares=cpu.whole("shares"),
        quota=cpu.whole("quota"),
        period=cpu.whole("period"),
        memory=linux.child("resources").child("memory").whole("limit"),
        cpus=cpu.text("cpus"),
        mems=cpu.text("mems"),
    )


class _Node:
    """A mapping of the JSON and its path; null is the same as missing."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict | None):
            raise ParseError(f"a mapping is expected, not {_shown(value)}", where=path)
        self._values = value or {}
        self._path = path

    def child(self, key: str) -> _Node:
        return _Node(self._values.get(key), f"{self._path}: {key}")

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if not isinstance(value, str | None):
            raise ParseError(f"text is expected, not {_shown(value)}", where=f"{self._path}: {key}")
        return value or ""

    def whole(self, key: str) -> int | None:
        value = self._values.get(key)
        # A bool is an int in Python; shares are unsigned 64-bit, the rest is signed.
        if value is None or (type(value) is int and -_LARGEST <= value <= 2 * _LARGEST + 1):
            return value
        raise ParseError(f"a whole number is expected, not {_shown(value)}", where=f"{self._path}: {key}")


def _shown(value: object) -> str:
    match value:
        case str():
            return excerpt(value)
        case int() | float():
            return "a number like that" if type(value) is not bool else str(value).lower()
        case _:
            return "a list" if isinstance(value, list) else "a mapping"
