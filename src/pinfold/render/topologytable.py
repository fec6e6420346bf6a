"""Topology → a table with a row for each CPU, easy to read and to parse with awk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.machine.topology import Topology

_HEADER: Final = ("CPU", "CORE", "SOCKET", "NUMA", "L3", "STATE")


def format_table(topology: Topology) -> str:
    """Return the table; "-" is unknown.

    >>> from pinfold.core.machine.presets import preset
    >>> print(format_table(preset("sockets:1,l3:0,cores:2")), end="")
    CPU  CORE  SOCKET  NUMA  L3  STATE
      0     0       0     0   -  online
      1     1       0     0   -  online
    """
    rows = [_HEADER, *_rows(topology)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(w) for cell, w in zip(row[:-1], widths, strict=False)) + f"  {row[-1]}" for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _rows(topology: Topology) -> Iterator[tuple[str, ...]]:
    online = {row.cpu: row for row in topology.cpus}
    for cpu in topology.online | topology.offline:
        places = online[cpu][1:] if cpu in online else (None,) * 4
        state = "offline" if cpu not in online else "isolated" if cpu in topology.isolated else "online"
        yield (str(cpu), *("-" if place is None else str(place) for place in places), state)
