"""Topology → a table with a row for each CPU, easy to read and to parse with awk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.render.columns import Column, format_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.machine.topology import Topology

_COLUMNS: Final = (*(Column(head, right=True) for head in ("CPU", "CORE", "SOCKET", "NUMA", "L3")), Column("STATE"))


def format_topology(topology: Topology) -> str:
    """Return the table; "-" is what the machine does not say.

    >>> from pinfold.core.machine.presets import preset
    >>> print(format_topology(preset("sockets:1,l3:0,cores:2")), end="")
    CPU  CORE  SOCKET  NUMA  L3  STATE
      0     0       0     0   -  online
      1     1       0     0   -  online
    """
    return format_table(_COLUMNS, _rows(topology)) + "\n"


def _rows(topology: Topology) -> Iterator[tuple[str, ...]]:
    online = {row.cpu: row for row in topology.cpus}
    for cpu in topology.online | topology.offline:
        places = online[cpu][1:] if cpu in online else (None,) * 4
        state = "offline" if cpu not in online else "isolated" if cpu in topology.isolated else "online"
        yield (str(cpu), *("-" if place is None else str(place) for place in places), state)
