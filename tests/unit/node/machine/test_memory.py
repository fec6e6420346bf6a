"""Memory and hugepages of NUMA nodes in sysfs, and what a plan makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.cli.planning.resources import read_resources
from pinfold.node.machine.memory import NodeMemory, nodes_with_memory, read_memory
from tests.support.devices import usual_devices

if TYPE_CHECKING:
    from pathlib import Path

MEMINFO = """Node 1 MemTotal:        8388608 kB
Node 1 MemFree:         1048576 kB
Node 1 Active(file):     524288 kB
Node 1 Inactive(file):   262144 kB
Node 1 SReclaimable:     262144 kB
Node 1 nonsense: x kB
"""


def test_memory_hugepages_and_gpus_of_a_node_are_read(tmp_path: Path) -> None:
    tree = usual_devices(tmp_path)
    node = tree.sys / "devices/system/node/node1"
    (node / "meminfo").write_text(MEMINFO)
    pages = node / "hugepages/hugepages-1048576kB"
    pages.mkdir(parents=True)
    (pages / "nr_hugepages").write_text("2\n")
    (pages / "free_hugepages").write_text("1\n")
    assert read_memory(tmp_path) == {1: NodeMemory(8 << 30, 2 << 30, {1 << 30: (2, 1)})}
    assert read_resources(tmp_path) == {1: {"memory": 6 << 30, "hugepages-1Gi": 2 << 30, "nvidia.com/gpu": 1}}


def test_a_machine_that_tells_nothing_has_none(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == {}
    assert nodes_with_memory(tmp_path) is None
    assert read_resources(tmp_path) == {}


def test_a_node_with_no_memory_or_none_told_is_not_among_those_with_memory(tmp_path: Path) -> None:
    for node, text in {
        0: "Node 0 MemTotal: 4096 kB\n",
        1: "Node 1 MemTotal: 0 kB\n",
        2: "Node 2 HugePages_Total: 0\n",
    }.items():
        directory = tmp_path / f"sys/devices/system/node/node{node}"
        directory.mkdir(parents=True)
        (directory / "meminfo").write_text(text)
    assert str(nodes_with_memory(tmp_path)) == "0"
