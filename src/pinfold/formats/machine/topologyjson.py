"""Topology ↔ JSON of our own, for other programs and to keep a machine for later.

One object: `cpus` (a row for each online CPU, null where unknown), `online`, `offline` and `isolated`
in the Linux list format, `nodes` (CPUs of each NUMA node, also of those without any), `distances` and `warnings`; where
they are known also `devices`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from pinfold.core.machine.cpuset import MAX_CPU, CPUSet
from pinfold.core.machine.devices import Device, DeviceKind
from pinfold.core.machine.topology import CPUInfo, Topology
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MOST_CPUS: Final = 8192
"""CPUs of the largest machine that can be described: the most that a Linux kernel is built for."""
MOST_VALUES: Final = 65_536
_MAX_NODES: Final = 1024  # as in Linux
_MAX_ID: Final = 2**31 - 1
_NODE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,9})")
_KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}


def format_topology_json(topology: Topology) -> str:
    """Return *topology* as JSON, a CPU a line.

    >>> from pinfold.core.machine.presets import preset
    >>> print(format_topology_json(preset("cores:2")), end="")
    {
      "cpus": [
        {"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0},
        {"cpu": 1, "core": 1, "socket": 0, "numa": 0, "uncore": 0}
      ],
      "online": "0-1",
      "offline": "",
      "isolated": "",
      "nodes": {
        "0": "0-1"
      },
      "distances": {
        "0": {"0": 10}
      },
      "warnings": []
    }
    """
    distances = {node: dict(row) for node, row in sorted(topology.distances.items())}
    members = {
        "cpus": _list(row._asdict() for row in topology.cpus),
        "online": json.dumps(str(topology.online)),
        "offline": json.dumps(str(topology.offline)),
        "isolated": json.dumps(str(topology.isolated)),
        "nodes": _object({node: str(cpus) for node, cpus in _nodes(topology).items()}),
        "distances": _object(distances),
        "warnings": _list(topology.warnings),
    }
    if topology.devices:
        members["devices"] = _list(map(_device_data, topology.devices))
    return "{\n" + ",\n".join(f'  "{name}": {text}' for name, text in members.items()) + "\n}\n"


def parse_topology_json(text: str) -> Topology:
    """Return the machine that `format_topology_json` wrote.

    >>> parse_topology_json('{"cpus": [{"cpu": 0, "core": 0, "socket": "A", "numa": null, "uncore": null}]}')
    Traceback (most recent call last):
    pinfold.errors.ParseError: cpus[0].socket: expected a whole number, found "A"
    """
    document = _Value("", load_json(text))
    rows = tuple(sorted(_row(item) for item in document.get("cpus").items()))
    online = CPUSet.from_cpus(row.cpu for row in rows)
    offline = document.get("offline", "").cpus()
    if len(online) < len(rows):
        raise ParseError("a CPU is listed twice", where="cpus")
    said = document.get("online", str(online)).cpus()
    if said != online:
        raise ParseError(f'says "{said}", but cpus lists "{online}"', where="online")
    if online & offline:
        raise ParseError(f"CPUs {online & offline} are also online", where="offline")
    return Topology(
        cpus=rows,
        offline=offline,
        isolated=document.get("isolated", "").cpus(),
        memory_only=_memory_only(document, rows),
        distances=_distances(document),
        warnings=tuple(item.text() for item in document.get("warnings", []).items()),
        devices=tuple(_device(item) for item in document.get("devices", []).items()),
    )


def load_json(text: str) -> object:
    """Return the value of the JSON in *text*; a ParseError says where it is wrong."""
    check_values(text)
    try:
        value: object = json.loads(text, parse_int=lambda digits: int(digits[:20]))  # longer ones take too long
    except json.JSONDecodeError as error:
        raise ParseError(f"not JSON: {error.msg}", where=f"line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ParseError("not JSON of a machine: nested too deeply") from None
    return value


def check_values(text: str) -> None:
    """Raise if JSON has more values than a machine needs: there is a comma before every value but the first."""
    if text.count(",") > MOST_VALUES:
        raise ParseError(f"not JSON of a machine: more than {MOST_VALUES:,} values")


def _list(items: Iterable[object]) -> str:
    return _block("[", map(json.dumps, items), "]")


def _object(members: Mapping[int, object]) -> str:
    return _block("{", (f'"{name}": {json.dumps(value)}' for name, value in members.items()), "}")


def _block(start: str, lines: Iterable[str], end: str) -> str:
    body = ",\n".join(f"    {line}" for line in lines)
    return f"{start}\n{body}\n  {end}" if body else start + end


def _nodes(topology: Topology) -> dict[int, CPUSet]:
    """Return the CPUs of each NUMA node that the machine knows."""
    masks = dict.fromkeys(topology.memory_only, 0)
    for row in topology.cpus:
        if row.numa is not None:
            masks[row.numa] = masks.get(row.numa, 0) | 1 << row.cpu
    return {node: CPUSet(masks[node]) for node in sorted(masks)}


def _row(value: _Value) -> CPUInfo:
    cpu = value.get("cpu").number(highest=MAX_CPU)
    core, socket, numa, uncore = (value.get(name).id() for name in ("core", "socket", "numa", "uncore"))
    return CPUInfo(cpu, core, socket, numa, uncore)


def _device_data(device: Device) -> dict[str, object]:
    about = {"name": device.name, "kind": device.kind, "numa": device.node, "address": device.address}
    return {**about, "vendor": device.vendor}


def _device(value: _Value) -> Device:
    kind = value.get("kind").text()
    if kind not in set(DeviceKind):
        raise ParseError(f"{excerpt(kind)} is none of {', '.join(DeviceKind)}", where=f"{value.path}.kind")
    name, address = value.get("name").text(), value.get("address", "").text()
    return Device(name, DeviceKind(kind), value.get("numa").id(), address, value.get("vendor", 0).number())


def _memory_only(document: _Value, rows: Iterable[CPUInfo]) -> tuple[int, ...]:
    """Return the NUMA nodes without CPUs; all others must have the CPUs that the rows say."""
    given = {node: value.cpus() for node, value in document.get("nodes", {}).by_node().items()}
    said = _nodes(Topology(tuple(rows)))
    for node, cpus in given.items():
        if cpus != said.get(node, CPUSet()):
            raise ParseError(f'says "{cpus}", but cpus says "{said.get(node, "")}"', where=f"nodes.{node}")
    return tuple(node for node, cpus in sorted(given.items()) if not cpus)


def _distances(document: _Value) -> dict[int, dict[int, int]]:
    rows = document.get("distances", {}).by_node()
    return {node: {other: value.number() for other, value in row.by_node().items()} for node, row in rows.items()}


class _Value(NamedTuple):
    """A value of the document and its path."""

    path: str
    value: object

    def members(self) -> Mapping[str, object]:
        return self.value if isinstance(self.value, dict) else self._fail("an object")

    def get(self, name: str, default: object = ...) -> _Value:
        members = self.members()
        path = f"{self.path}.{name}".lstrip(".")
        if name not in members and default is ...:
            raise ParseError("is missing", where=path)
        return _Value(path, members.get(name, default))

    def items(self) -> Iterator[_Value]:
        if not isinstance(self.value, list):
            self._fail("a list")
        if len(self.value) > MOST_CPUS:
            raise ParseError(f"{len(self.value):,} items; {MOST_CPUS:,} are allowed", where=self.path)
        return (_Value(f"{self.path}[{i}]", item) for i, item in enumerate(self.value))

    def by_node(self) -> dict[int, _Value]:
        """Return the members, which must be named by NUMA nodes."""
        if len(self.members()) > _MAX_NODES:
            raise ParseError(f"{len(self.members()):,} NUMA nodes; {_MAX_NODES:,} are allowed", where=self.path)
        for key in self.members():
            if not _NODE.fullmatch(key):
                raise ParseError(f"expected the number of a NUMA node, found {excerpt(key)}", where=self.path)
        return {int(key): _Value(f"{self.path}.{key}", value) for key, value in self.members().items()}

    def cpus(self) -> CPUSet:
        text = self.text()
        try:
            return CPUSet.parse(text)
        except ParseError as error:
            raise error.within(self.path) from None

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self._fail("text")

    def id(self) -> int | None:
        return None if self.value is None else self.number(lowest=-_MAX_ID)

    def number(self, *, lowest: int = 0, highest: int = _MAX_ID) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self._fail("a whole number")
        if not lowest <= self.value <= highest:
            raise ParseError(f"expected a number from {lowest} to {highest}, found {self.value}", where=self.path)
        return self.value

    def _fail(self, expected: str) -> NoReturn:
        found = excerpt(self.value) if isinstance(self.value, str) else _KINDS.get(type(self.value), "a number")
        raise ParseError(f"expected {expected}, found {found}", where=self.path or "top")
