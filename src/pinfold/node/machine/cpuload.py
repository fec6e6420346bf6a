"""How busy each CPU of this machine is, from two looks at /proc/stat."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_STAT: Final = Path("/proc/stat")
_LINE: Final = re.compile(r"^cpu(\d+) ([\d ]+)$", re.MULTILINE)
_IDLE, _WAITING, _GUEST = 3, 4, 8  # the fields of a line; from _GUEST on they are part of others


class CPUTimes(NamedTuple):
    """What a CPU has done since boot, in clock ticks."""

    busy: int
    total: int


def read_cpu_times(path: Path = _STAT) -> dict[int, CPUTimes]:
    """Return the times of each CPU; none where the kernel does not tell them."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    return {int(cpu): _times(fields) for cpu, fields in _LINE.findall(text)}


def loads(before: Mapping[int, CPUTimes], after: Mapping[int, CPUTimes]) -> dict[int, float]:
    """Return which part of the time between two looks each CPU was busy, from 0 to 1.

    >>> loads({0: CPUTimes(100, 1000)}, {0: CPUTimes(150, 1100), 1: CPUTimes(7, 9)})
    {0: 0.5}
    """
    found = {}
    for cpu, now in after.items():
        if cpu in before and (passed := now.total - before[cpu].total) > 0:
            found[cpu] = min(max((now.busy - before[cpu].busy) / passed, 0.0), 1.0)
    return found


def _times(fields: str) -> CPUTimes:
    values = [int(field) for field in fields.split()][:_GUEST]
    return CPUTimes(sum(values) - sum(values[_IDLE : _WAITING + 1]), sum(values))
