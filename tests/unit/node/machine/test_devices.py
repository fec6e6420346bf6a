"""Devices in sysfs: names, NUMA nodes, and what is said about names that mean nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.devices import Device, DeviceKind, describe_devices
from pinfold.core.machine.layout import layout_data
from pinfold.core.machine.presets import preset
from pinfold.errors import ParseError
from pinfold.formats.machine.topologyjson import format_topology_json, parse_topology_json
from pinfold.node.machine.devices import Devices, NoNUMANode, NoSuchDevice
from pinfold.render.machine.map import format_map
from tests.support.devices import DeviceTree, usual_devices

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "node", "address"),
    [
        ("eth0", 0, "0000:17:00.0"),
        ("eth1", 1, "0000:3b:00.0"),
        ("nvme0", 1, "0000:5e:00.0"),
        ("nvme0n1", 1, "0000:5e:00.0"),
        ("card1", 1, "0000:af:00.0"),
        ("gpu0", 1, "0000:af:00.0"),
        ("0000:3b:00.0", 1, "0000:3b:00.0"),
        ("3B:00.0", 1, "0000:3b:00.0"),
    ],
)
def test_a_device_is_found_by_each_of_its_names(tmp_path: Path, name: str, node: int, address: str) -> None:
    usual_devices(tmp_path)
    assert Devices(tmp_path).find(name) == (1 << node, address)


def test_a_map_has_network_cards_disks_and_gpus_but_no_screen_of_a_board_controller(tmp_path: Path) -> None:
    usual_devices(tmp_path)
    assert describe_devices(Devices(tmp_path).shown()) == ["NUMA 0: eth0", "NUMA 1: eth1, nvme0, gpu0"]


def test_virtual_functions_and_virtual_interfaces_are_not_in_a_map(tmp_path: Path) -> None:
    tree = usual_devices(tmp_path)
    function = tree.pci("0000:3b:02.0", 1)
    (function / "physfn").mkdir()
    tree.of_class("net", "eth1v0", function)
    virtual = tree.sys / "devices/virtual/net/lo"
    virtual.mkdir(parents=True)
    tree.link("class/net/lo", virtual)
    devices = Devices(tmp_path)
    assert [device.name for device in devices.shown()] == ["eth0", "eth1", "nvme0", "gpu0"]
    assert devices.find("eth1v0").nodes == 0b10
    with pytest.raises(NoNUMANode, match="device lo: it is virtual and has no NUMA node"):
        devices.find("lo")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ethl1", 'there is no device "ethl1"; did you mean eth1?'),
        ("nvme0n2", 'there is no device "nvme0n2"; did you mean nvme0n1?'),
        ("gpu7", 'there is no device "gpu7"; did you mean gpu0?'),
        ("../../etc", "this machine has eth0, eth1, nvme0, gpu0, nvme0n1"),
        ("", 'there is no device ""; this machine has eth0'),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(tmp_path: Path, name: str, said: str) -> None:
    usual_devices(tmp_path)
    with pytest.raises(NoSuchDevice) as error:
        Devices(tmp_path).find(name)
    assert said in str(error.value)


def test_a_device_whose_firmware_tells_no_node_is_refused_on_a_machine_with_several(tmp_path: Path) -> None:
    tree = DeviceTree(tmp_path)
    tree.of_class("net", "eth0", tree.pci("0000:17:00.0", -1))
    devices = Devices(tmp_path)
    with pytest.raises(NoNUMANode, match="device eth0: its numa_node is -1: the firmware tells no node"):
        devices.find("eth0")
    assert describe_devices(devices.shown()) == ["unknown NUMA node: eth0"]


def test_every_device_of_a_machine_with_one_node_is_there(tmp_path: Path) -> None:
    tree = DeviceTree(tmp_path, nodes=1)
    tree.of_class("net", "eth0", tree.pci("0000:17:00.0", -1))
    assert Devices(tmp_path).find("eth0").nodes == 0b1


def test_a_namespace_of_several_controllers_is_at_all_their_nodes(tmp_path: Path) -> None:
    tree = DeviceTree(tmp_path)
    subsystem = tree.sys / "devices/virtual/nvme-subsystem/nvme-subsys0"
    (subsystem / "nvme0n1").mkdir(parents=True)
    tree.link("class/block/nvme0n1", subsystem / "nvme0n1")
    for number in (0, 1):
        controller = tree.of_class("nvme", f"nvme{number}", tree.pci(f"0000:5{number}:00.0", number))
        tree.link(str((subsystem / f"nvme{number}").relative_to(tree.sys)), controller)
    assert Devices(tmp_path).find("nvme0n1").nodes == 0b11


def test_a_link_out_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    tree = DeviceTree(tmp_path / "root")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "numa_node").write_text("1")
    tree.link("class/net/eth0", outside)
    with pytest.raises(NoSuchDevice):
        Devices(tree.root).find("eth0")


def test_hostile_files_are_no_devices(tmp_path: Path) -> None:
    tree = usual_devices(tmp_path)
    (tree.sys / "devices/pci0000:00/0000:3b:00.0/numa_node").write_text("9" * 17)
    (tree.sys / "devices/pci0000:00/0000:af:00.0/vendor").write_bytes(b"\xff\xfe")
    devices = Devices(tmp_path)
    assert describe_devices(devices.shown()) == ["NUMA 0: eth0", "NUMA 1: nvme0, gpu0", "unknown NUMA node: eth1"]
    with pytest.raises(NoNUMANode):
        devices.find("eth1")


def test_a_machine_without_sysfs_has_none(tmp_path: Path) -> None:
    assert Devices(tmp_path).shown() == []
    with pytest.raises(NoSuchDevice, match="this machine has none that is known"):
        Devices(tmp_path).find("eth0")


def test_devices_are_in_json_and_come_back_from_it() -> None:
    nic, gpu = Device("eth0", DeviceKind.NETWORK, 1, "0000:3b:00.0", 0x8086), Device("gpu0", DeviceKind.GPU, None)
    machine = replace(preset("cores:2"), devices=(nic, gpu))
    assert parse_topology_json(format_topology_json(machine)).devices == (nic, gpu)
    assert "Devices: NUMA 1: eth0; unknown NUMA node: gpu0" in format_map(machine)
    assert layout_data(machine)["devices"] == ["NUMA 1: eth0", "unknown NUMA node: gpu0"]
    assert pickle.loads(pickle.dumps(machine)).devices == (nic, gpu)  # noqa: S301 - our own
    with pytest.raises(ParseError, match=r'devices\[0\].kind: "network card" is none of network, nvme, gpu'):
        parse_topology_json(format_topology_json(machine).replace('"network"', '"network card"'))
