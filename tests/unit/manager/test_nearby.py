"""Pods that ask to be near devices, on a host without Kubernetes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.topologymanager.others import NO_OTHERS
from pinfold.errors import ParseError
from pinfold.manager.nearby import far_from, near_devices
from pinfold.node.machine.devices import Devices, NoSuchDevice
from tests.property.strategies import pinned, pod_of
from tests.support.devices import usual_devices
from tests.unit.manager.sources.test_supervisor import Host, with_command

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import Pod
    from pinfold.manager.sources.workloads import WorkloadKind

MACHINE = preset("sockets:2,numa:1,cores:4,threads:2")


def near(names: str, *more: tuple[str, str]) -> Pod:
    return replace(pod_of(pinned(2)), annotations={"pinfold.dev/near": names, **dict(more)})


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    usual_devices(tmp_path)
    return Devices(tmp_path)


def test_a_pod_without_the_annotation_is_near_none(devices: Devices) -> None:
    assert near_devices(devices, pod_of(pinned(2))) is NO_OTHERS


def test_each_device_is_a_hint_of_its_own(devices: Devices) -> None:
    held = near_devices(devices, near("eth1, nvme0n1, eth1"))
    assert held.is_asked
    assert {name: str(next(iter(hints or ()))) for name, hints in held.of("app", 0b11).items()} == {
        "eth1": "NUMA 1, preferred",
        "nvme0n1": "NUMA 1, preferred",
    }


@pytest.mark.parametrize(
    ("pod", "error", "said"),
    [
        (near("eth7"), NoSuchDevice, 'there is no device "eth7"; did you mean eth'),
        (near("eth0,,x"), ParseError, 'annotation "pinfold.dev/near": "" is not the name of a device'),
        (near("eth0/../x"), ParseError, "is not the name of a device"),
        (near("eth0", ("pinfold.dev/local-memory", "yes")), ParseError, '"yes" is neither true nor false'),
    ],
    ids=["unknown", "empty", "a path", "local memory"],
)
def test_a_wrong_annotation_is_told(devices: Devices, pod: Pod, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        near_devices(devices, pod)


def test_cpus_that_are_far_are_told(devices: Devices) -> None:
    held = near_devices(devices, near("eth1"))
    assert far_from(held, "app", CPUSet.of(4, 12), MACHINE) == []
    said = far_from(held, "app", CPUSet.of(3, 4, 12), MACHINE)
    assert said == ["2 of the CPUs 3-4,12 are at NUMA node 1, where eth1 is"]
    assert far_from(held, "app", CPUSet.of(1), MACHINE) == ["none of the CPUs 1 is at NUMA node 1, where eth1 is"]
    assert far_from(NO_OTHERS, "app", CPUSet.of(1), MACHINE) == []


def test_a_host_keeps_the_hints_of_its_pods_and_forgets_them_with_the_pod(tmp_path: Path, devices: Devices) -> None:
    async def play() -> None:
        host = Host(tmp_path)
        host.loop.workbook.near = partial(near_devices, devices)
        with pytest.raises(NoSuchDevice):
            await host.loop.submit(with_command(near("eth9")))
        assert not host.workloads
        pod = with_command(near("eth1"))
        await host.loop.submit(pod)
        assert host.node.roster.others(pod) == near_devices(devices, pod)
        await host.loop.delete(pod.name)
        assert host.node.roster.held == {}

    asyncio.run(play())


def test_a_device_that_has_gone_does_not_stop_a_restart(tmp_path: Path, devices: Devices) -> None:
    async def play() -> None:
        host = Host(tmp_path)
        host.loop.workbook.near = partial(near_devices, devices)
        await host.loop.reserve("app", 1, annotations={"pinfold.dev/near": "eth1"})
        again = Host(tmp_path)
        again.loop.workbook.near = partial(near_devices, Devices(tmp_path / "nothing"))
        again.loop.workbook.take(again.loop.workbook.new(*_first(host)))
        warned = [entry.data() for entry in again.bus.after(0) if entry.what == "warning"]
        assert "there is no device" in str(warned[0]["text"])
        assert not again.node.roster.held

    asyncio.run(play())


def _first(host: Host) -> tuple[Pod, WorkloadKind]:
    workload = next(iter(host.workloads.values()))
    return workload.pod, workload.kind
