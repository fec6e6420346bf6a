"""A file that describes a machine, in any supported format → Topology.

The content shows the format: hwloc's XML, cAdvisor's MachineInfo, our own JSON, or else output of lscpu. Knows nothing
of file names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pinfold.errors import ParseError
from pinfold.formats.machine.cadvisor import parse_cadvisor, parse_cadvisor_as_kubelet
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.lscpu import parse_lscpu
from pinfold.formats.machine.topologyjson import load_json, parse_topology_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.machine.topology import Topology


class MachineFormat(StrEnum):
    """A format in which machines are described, by the name that users know."""

    HWLOC = "hwloc XML"
    CADVISOR = "cAdvisor JSON"
    PINFOLD = "pinfold JSON"
    LSCPU = "lscpu text"


_PARSERS: Final[Mapping[MachineFormat, Callable[[str], Topology]]] = {
    MachineFormat.HWLOC: parse_hwloc,
    MachineFormat.CADVISOR: parse_cadvisor,
    MachineFormat.PINFOLD: parse_topology_json,
    MachineFormat.LSCPU: parse_lscpu,
}


def parse_machine(text: str) -> Topology:
    r"""Return the machine that *text* describes.

    >>> len(parse_machine("# CPU,Core,Socket,Node\n0,0,0,0\n1,0,0,0\n").cores)
    1
    """
    text = text.removeprefix("\ufeff")
    return _PARSERS[detect_format(text)](text)


def parse_machine_as_kubelet(text: str) -> Topology:
    """Return the machine as a kubelet sees it; only from cAdvisor, because a kubelet reads that."""
    text = text.removeprefix("\ufeff")
    found = detect_format(text)
    if found is not MachineFormat.CADVISOR:
        raise ParseError(f"a kubelet's view needs {MachineFormat.CADVISOR}, not {found}")
    return parse_cadvisor_as_kubelet(text)


def detect_format(text: str) -> MachineFormat:
    """Return the format of *text*; lscpu's if it is neither XML nor JSON.

    >>> print(detect_format("  <topology/>"))
    hwloc XML
    """
    start = text.lstrip()[:1]
    rows = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if start not in {"<", "{", ""} and "," not in next(rows, ","):
        raise ParseError(f"is not a description of a machine; expected {', '.join(MachineFormat)} (lscpu -p)")
    if start == "<":
        return MachineFormat.HWLOC
    return _json_format(load_json(text)) if start == "{" else MachineFormat.LSCPU


def _json_format(document: object) -> MachineFormat:
    members = document if isinstance(document, dict) else {}
    cpus = members.get("cpus")
    first = cpus[0] if isinstance(cpus, list) and cpus else None
    if "lscpu" in members or (isinstance(first, dict) and "node" in first):
        raise ParseError(
            "lscpu's JSON leaves out too much; save the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE,ONLINE"
        )
    return MachineFormat.PINFOLD if "cpus" in members else MachineFormat.CADVISOR
