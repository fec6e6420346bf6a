"""A described machine as hwloc XML of each format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pinfold.core.machine.cpuset import cpus_of
from tests.machines.machine import mask

if TYPE_CHECKING:
    from tests.machines.machine import Machine


@dataclass(slots=True)
class _Object:
    type: str
    cpus: int
    id: int | None = None
    more: str = ""
    children: list[_Object] = field(default_factory=list)

    def insert(self, other: _Object) -> None:
        """Put *other* below the smallest object around it."""
        around = next((child for child in self.children if not other.cpus & ~child.cpus and _holds(child)), None)
        if around is None or not other.cpus:
            self.children.append(other)
        else:
            around.insert(other)

    def walk(self) -> list[_Object]:
        return [self, *(below for child in self.in_order() for below in child.walk())]

    def in_order(self) -> list[_Object]:
        return sorted(self.children, key=lambda child: child.cpus & -child.cpus)


def _holds(thing: _Object) -> bool:
    return thing.type != "PU" and "local_memory" not in thing.more


def hwloc_xml(machine: Machine, version: Literal[1, 2, 3]) -> str:
    """Return what lstopo exports; format 1 keeps what NUMA nodes have inside them, later ones hang them on the side."""
    whole = f'complete_cpuset="{bitmap(machine.present)}" allowed_cpuset="{bitmap(machine.online)}"'
    online = f' online_cpuset="{bitmap(machine.online)}"' if version == 1 else ""
    root = _Object("Machine", machine.online, 0, whole + online)
    objects, nodes = _objects(machine, version), _nodes(machine, version)
    # Of equal sets the first is the outer one.
    things = [*nodes, *objects] if version == 1 else [*objects, *nodes]
    for thing in sorted(things, key=lambda thing: -thing.cpus.bit_count()):
        root.insert(thing)
    version_attribute = "" if version == 1 else f' version="{version}.0"'
    before, after = _distances(machine, root, version)
    body = _element(root, before)
    doctype = f'<!DOCTYPE topology SYSTEM "hwloc{"" if version == 1 else 2}.dtd">'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n<topology{version_attribute}>\n{body}{after}</topology>\n'
    )


def _objects(machine: Machine, version: int) -> list[_Object]:
    package, cache = ("Socket", "Cache") if version == 1 else ("Package", f"{machine.uncore_name}Cache")
    level = f'depth="{machine.files.uncore_level}" cache_type="0"'
    objects = [
        _Object(package, mask(text), socket if machine.files.package_id is None else None)
        for socket, text in machine.sockets.items()
    ]
    objects += [
        _Object(cache, mask(text), number, level)
        for text, number in zip(machine.uncore.values(), machine.cache_ids, strict=True)
    ]
    for place, core in enumerate(machine.core_masks):
        if machine.files.caches:
            objects.append(_Object("Cache" if version == 1 else "L2Cache", core, place, 'depth="2" cache_type="0"'))
        if machine.files.topology:
            objects.append(_Object("Core", core, machine.core_id(place)))
    objects += [_Object("PU", 1 << cpu, cpu) for cpu in cpus_of(machine.online)]
    for thing in objects:
        thing.cpus &= machine.online
    return [thing for thing in objects if thing.cpus]


def _nodes(machine: Machine, version: int) -> list[_Object]:
    objects = []
    nearest = 0
    for node in sorted(machine.nodes):
        own = mask(machine.nodes[node]) & machine.online
        nearest = nearest or own
        # From format 2 on, memory without CPUs is hung on the nearest CPUs.
        cpus = own if own or version == 1 else nearest
        objects.append(_Object("NUMANode", cpus, node, "" if version == 1 else 'local_memory="65536"'))
    return objects


def _distances(machine: Machine, root: _Object, version: int) -> tuple[str, str]:
    """Return the matrix as it stands in the machine (format 1) or after it."""
    if not machine.distances:
        return "", ""
    nodes = sorted(machine.nodes)
    if version == 1:
        order = [thing.id for thing in root.walk() if thing.type == "NUMANode"]
        values = [machine.distances[nodes.index(a or 0)][nodes.index(b or 0)] / 10 for a in order for b in order]
        cells = "".join(f'<latency value="{value:.6f}"/>\n' for value in values)
        attributes = f'nbobjs="{len(nodes)}" relative_depth="1" latency_base="10.000000"'
        return f"<distances {attributes}>\n{cells}</distances>\n", ""
    values_text = "".join(f"<u64values>{' '.join(map(str, row))} </u64values>\n" for row in machine.distances)
    indexes = f"<indexes>{' '.join(map(str, nodes))} </indexes>\n"
    attributes = f'type="NUMANode" nbobjs="{len(nodes)}" kind="5" name="NUMALatency" indexing="os"'
    return "", f"<distances2 {attributes}>\n{indexes}{values_text}</distances2>\n"


def _element(thing: _Object, before: str = "") -> str:
    number = "" if thing.id is None else f' os_index="{thing.id}"'
    inside = before + "".join(map(_element, thing.in_order()))
    return f'<object type="{thing.type}"{number} cpuset="{bitmap(thing.cpus)}" {thing.more}>\n{inside}</object>\n'


def bitmap(cpus: int) -> str:
    """Return a mask as hwloc writes it: chunks of 32 bits, empty inside where they are 0."""
    chunks = [cpus >> shift & 0xFFFFFFFF for shift in range(0, max(cpus.bit_length(), 1), 32)]
    last, *higher = (f"0x{chunk:08x}" if chunk else "" for chunk in chunks)
    return ",".join([*reversed(higher), last or "0x0"])
