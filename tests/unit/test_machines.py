from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY
from pinfold.formats.machine.cadvisor import parse_cadvisor
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.lscpu import format_lscpu, parse_lscpu
from pinfold.node.machine.sysfs import discover
from tests.machines.builder import cadvisor_json, lscpu_text, write_sysfs
from tests.machines.catalogue import MACHINES
from tests.machines.hwlocbuilder import hwloc_xml
from tests.machines.machine import expected

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.machine.topology import Topology
    from tests.machines.machine import Machine


def machines_for(twin: str) -> pytest.MarkDecorator:
    able = [machine for machine in MACHINES if twin not in machine.cannot]
    return pytest.mark.parametrize("machine", able, ids=lambda machine: machine.name)


def with_sockets_by_lowest_cpu(topology: Topology) -> Topology:
    lowest: dict[int | None, int] = {}
    for row in topology.cpus:
        lowest.setdefault(row.socket, row.cpu)
    rows = (row._replace(socket=None if row.socket is None else lowest[row.socket]) for row in topology.cpus)
    return replace(topology, cpus=tuple(rows))


@machines_for("sysfs")
def test_sysfs_tree_gives_the_machine(machine: Machine, tmp_path: Path) -> None:
    write_sysfs(machine, tmp_path)
    assert discover(tmp_path) == expected(machine)


@machines_for("hwloc1")
def test_hwloc_format_1_gives_the_machine(machine: Machine) -> None:
    assert parse_hwloc(hwloc_xml(machine, 1)) == replace(expected(machine), isolated=EMPTY)


@machines_for("hwloc2")
def test_hwloc_format_2_gives_the_machine(machine: Machine) -> None:
    assert parse_hwloc(hwloc_xml(machine, 2)) == replace(expected(machine), isolated=EMPTY)


@machines_for("hwloc3")
def test_hwloc_format_3_gives_the_machine(machine: Machine) -> None:
    assert parse_hwloc(hwloc_xml(machine, 3)) == replace(expected(machine), isolated=EMPTY)


@machines_for("lscpu")
def test_lscpu_with_cache_columns_gives_the_rows(machine: Machine) -> None:
    found = with_sockets_by_lowest_cpu(parse_lscpu(lscpu_text(machine, "columns")))
    assert found.cpus == with_sockets_by_lowest_cpu(expected(machine)).cpus


@machines_for("lscpu")
def test_lscpu_with_cache_list_gives_the_rows(machine: Machine) -> None:
    found = with_sockets_by_lowest_cpu(parse_lscpu(lscpu_text(machine, "list")))
    assert found.cpus == with_sockets_by_lowest_cpu(expected(machine)).cpus


@machines_for("lscpu")
def test_lscpu_of_all_cpus_gives_the_rows_and_the_offline_cpus(machine: Machine) -> None:
    found = with_sockets_by_lowest_cpu(parse_lscpu(lscpu_text(machine, "all")))
    assert found.cpus == with_sockets_by_lowest_cpu(expected(machine)).cpus
    assert found.offline == expected(machine).offline


@machines_for("lscpu")
def test_lscpu_as_we_print_it_gives_the_rows_back(machine: Machine) -> None:
    assert parse_lscpu(format_lscpu(expected(machine))).cpus == expected(machine).cpus


@machines_for("cadvisor")
def test_cadvisor_json_gives_the_machine_as_far_as_it_tells(machine: Machine) -> None:
    assert parse_cadvisor(cadvisor_json(machine)) == replace(expected(machine), offline=EMPTY, isolated=EMPTY)


def test_names_of_machines_are_their_own() -> None:
    assert len({machine.name for machine in MACHINES}) == len(MACHINES)


_UNKNOWN = "no file says which CPUs share this cache; the cache is unknown"
WARNED = {
    "overlapping-nodes": ["NUMA node 1 also claims CPUs 2, which another NUMA node has; the first one keeps them"],
    "package-files-span-two-sockets": ["CPUs 0-5: listed as one package, but with 2 package ids; the ids are used"],
    "core-ids-repeat-across-nodes-without-siblings": [
        "CPUs 0-3: no file names the CPUs of their core; taken from core_id, package and NUMA node"
    ],
    "cache-lists-of-other-cpus": ["cpu/cpuN/cache/index3/shared_cpu_list (CPUs 0,2): leaves out its own CPU; ignored"],
    "cache-maps-zero": ["cpu/cpuN/cache/index3/shared_cpu_map (CPUs 0,2): names no CPU; ignored"],
    "cache-maps-zero-without-lists": [
        "cpu/cpuN/cache/index3/shared_cpu_map (CPUs 0-3): names no CPU; ignored",
        f"cpu/cpuN/cache/index3 (CPUs 0-3): {_UNKNOWN}",
    ],
    "cache-lists-of-other-cpus-and-maps-zero": [
        "cpu/cpuN/cache/index3/shared_cpu_list (CPUs 0-3): leaves out its own CPU; ignored",
        "cpu/cpuN/cache/index3/shared_cpu_map (CPUs 0-3): names no CPU; ignored",
        f"cpu/cpuN/cache/index3 (CPUs 0-3): {_UNKNOWN}",
    ],
}


@pytest.mark.parametrize("name", WARNED)
def test_what_a_sysfs_tree_tells_wrongly_is_a_warning(name: str, tmp_path: Path) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    write_sysfs(machine, tmp_path)
    assert [*discover(tmp_path).warnings] == WARNED[name]
