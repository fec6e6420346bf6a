"""A described machine as a sysfs tree, as lscpu prints it, and as cAdvisor's JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pinfold.core.machine.cpuset import CPUSet, cpus_of
from tests.machines.machine import expected, mask

if TYPE_CHECKING:
    from pathlib import Path

    from tests.machines.machine import Machine


def write_sysfs(machine: Machine, root: Path) -> None:
    """Write the files of /sys/devices/system that tell the machine."""
    cpu = root / "sys/devices/system/cpu"
    if machine.files.cpu_lists:
        _write(cpu / "online", CPUSet(machine.online).format())
        _write(cpu / "present", CPUSet(machine.present).format())
        _write(cpu / "possible", CPUSet(machine.present).format())
    if machine.isolated:
        _write(cpu / "isolated", machine.isolated)
    for place, core in enumerate(machine.core_masks):
        for number in cpus_of(core):
            directory = cpu / f"cpu{number}"
            online = machine.online >> number & 1
            if number:  # CPU 0 cannot be switched off, so it has no such file
                _write(directory / "online", str(online))
            if online:
                _write_topology(machine, place, directory / "topology")
                _write_caches(machine, number, directory / "cache")
    if machine.nodes:
        _write_nodes(machine, root / "sys/devices/system/node")


def _write_topology(machine: Machine, place: int, directory: Path) -> None:
    files, core = machine.files, machine.core_masks[place]
    directory.mkdir(parents=True)
    if not files.topology:
        return
    socket = machine.socket_of(core)
    package = {
        "socket": core if socket is None else mask(machine.sockets[socket]),
        "core": core,
        "machine": machine.present,
    }[files.package_is]
    _write(directory / "physical_package_id", str(socket if files.package_id is None else files.package_id))
    _write(directory / "core_id", str(machine.core_id(place)))
    for name, ids in (("die_id", files.die_ids), ("cluster_id", files.cluster_ids), ("book_id", files.book_ids)):
        if ids:
            _write(directory / name, str(ids[place]))
    if files.siblings and files.old_names:
        _write_mask(machine, directory / "thread_siblings", core, "_list")
        _write_mask(machine, directory / "core_siblings", package, "_list")
    if files.siblings and files.new_names:
        _write_mask(machine, directory / "core_cpus", core, "_list")
        _write_mask(machine, directory / "package_cpus", package, "_list")


def _write_caches(machine: Machine, cpu: int, directory: Path) -> None:
    if not machine.files.caches:
        return
    core = next(core for core in machine.core_masks if core >> cpu & 1)
    place = machine.core_masks.index(core)
    caches: list[tuple[int, str, int, int | None]] = [
        (1, "Data", core, place),
        (1, "Instruction", core, place),
        (2, "Unified", core, place),
    ]
    uncore = [*zip(machine.uncore.values(), machine.cache_ids, strict=True)]
    uncore += [(text, number) for number, text in enumerate(machine.files.untold_uncore)]
    for text, number in uncore:
        if mask(text) >> cpu & 1:
            caches.append((machine.files.uncore_level, "Unified", mask(text), number))
    for index, (level, kind, cpus, number) in enumerate(caches):
        cache = directory / f"index{index}"
        _write(cache / "level", str(level))
        _write(cache / "type", kind)
        _write_mask(machine, cache / "shared_cpu_map", cpus, "_list", strip="_map")
        if level == machine.files.uncore_level:
            _spoil_masks(machine, cache, machine.present & ~cpus)
        if number is not None and machine.files.cache_ids != ():
            _write(cache / "id", str(number))


def _spoil_masks(machine: Machine, cache: Path, others: int) -> None:
    """Overwrite the files that are wrong about an uncore cache; *others* are the CPUs that do not share it."""
    if machine.files.uncore_lists != "right" and "list" in machine.files.masks:
        _write(cache / "shared_cpu_list", CPUSet(others).format())
    if machine.files.uncore_maps != "right" and "map" in machine.files.masks:
        _write(cache / "shared_cpu_map", CPUSet().format_mask(machine.present.bit_length()))


def _write_nodes(machine: Machine, directory: Path) -> None:
    nodes = sorted(machine.nodes)
    _write(directory / "online", CPUSet.from_cpus(nodes).format())
    for place, node in enumerate(nodes):
        cpus = mask(machine.nodes[node]) & machine.online
        path = directory / f"node{node}"
        path.mkdir()
        if "list" in machine.files.node_masks:
            _write(path / "cpulist", CPUSet(cpus).format())
        if "map" in machine.files.node_masks:
            _write(path / "cpumap", CPUSet(cpus).format_mask(machine.present.bit_length()))
        if "links" in machine.files.node_masks:
            for cpu in cpus_of(cpus):
                (path / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
        if machine.distances:
            _write(path / "distance", " ".join(map(str, machine.distances[place])))


def _write_mask(machine: Machine, path: Path, cpus: int, suffix: str, strip: str = "") -> None:
    shown = CPUSet(cpus & machine.online)
    if "list" in machine.files.masks:
        _write(path.with_name(path.name.removesuffix(strip) + suffix), shown.format())
    if "map" in machine.files.masks:
        _write(path, shown.format_mask(machine.present.bit_length()))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def lscpu_text(machine: Machine, style: Literal["columns", "list", "all"]) -> str:
    """Return what lscpu prints: caches in columns (old), in one cell (new), or old with offline CPUs too (-a)."""
    caches = [
        *(("L1d", "L1i", "L2") if machine.files.caches else ()),
        *((machine.uncore_name,) if machine.uncore else ()),
    ]
    names = ["CPU", "Core", "Socket", "Node"]
    if caches:
        names += [":".join(caches)] if style == "list" else ["", *caches]
    lines = [",".join([*names, *(["Online"] if style == "all" else [])])]
    shown = machine.present if style == "all" else machine.online
    lines += [_lscpu_row(machine, cpu, len(caches), style) for cpu in cpus_of(shown)]
    return "# Some prose, and then the columns:\n# " + "\n".join(lines) + "\n"


def _lscpu_row(machine: Machine, cpu: int, caches: int, style: str) -> str:
    truth = expected(machine)
    row = next((row for row in truth.cpus if row.cpu == cpu), None)
    if row is None:
        return f"{cpu},,,{',,' if caches else ''},N"
    sockets = sorted({row.socket for row in truth.cpus if row.socket is not None})
    cores = sorted({row.core for row in truth.cpus if row.core is not None})
    # lscpu numbers cores and sockets itself.
    cells = [
        str(cpu),
        "" if row.core is None else str(cores.index(row.core)),
        "" if row.socket is None else str(sockets.index(row.socket)),
        "" if row.numa is None else str(row.numa),
    ]
    cached = [cells[1]] * 3 if machine.files.caches else []
    cached += [] if row.uncore is None else [str(row.uncore)]  # what a CPU lacks is left out, without a mark
    if cached:
        cells += [":".join(cached)] if style == "list" else ["", *cached]
    return ",".join([*cells, *(["Y"] if style == "all" else [])])


def cadvisor_json(machine: Machine) -> str:
    return json.dumps(
        {
            "num_cores": machine.online.bit_count(),
            "num_sockets": len(machine.sockets),
            "topology": [_cadvisor_node(machine, place, node) for place, node in enumerate(sorted(machine.nodes))],
        }
    )


def _cadvisor_node(machine: Machine, place: int, node: int) -> dict[str, object]:
    cpus = mask(machine.nodes[node]) & machine.online
    level = machine.files.uncore_level
    caches = [
        (mask(text) & machine.online, {"id": number or 0, "size": 1 << 25, "type": "Unified", "level": level})
        for text, number in zip(machine.uncore.values(), machine.cache_ids, strict=True)
    ]
    return {
        "node_id": node,
        "memory": 1 << 34,
        "distances": machine.distances[place] if machine.distances else None,
        "caches": [cache for shared, cache in caches if shared == cpus],
        "cores": [
            {
                "core_id": machine.core_id(number),
                "thread_ids": cpus_of(core & cpus),
                "socket_id": -1 if machine.files.package_id == -1 else machine.socket_of(core),
                "caches": [{"id": number, "size": 1 << 20, "type": "Unified", "level": 2}],
                "uncore_caches": [cache for shared, cache in caches if shared & core and shared != cpus],
            }
            for number, core in enumerate(machine.core_masks)
            if core & cpus
        ],
    }
