"""Which socket is asked for devices and memory, and what its answers mean."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.core.events.daemon import HintsNotRead
from pinfold.core.topologymanager.hint import Hint
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.kubernetes.podresources import PodResources, pod_resources
from tests.support.podresources import RECORDED, PodResourcesAPI

if TYPE_CHECKING:
    from pinfold.core.events import Event
    from pinfold.core.topologymanager.others import Held

POD = RuntimePod("s1", "u1", "device", "default")


def answer(path: Path, api: PodResourcesAPI) -> Held:
    async def ask() -> Held:
        heard: list[Event] = []
        async with api.serving(path):
            source = PodResources(path, heard.append)
            found = await source.find([POD])
            source.close()
        assert not heard
        return found["u1"]

    return asyncio.run(ask())


def test_a_setting_names_the_socket(tmp_path: Path) -> None:
    found = pod_resources("auto", tmp_path, print)
    assert found is not None
    assert found.path == tmp_path / "pod-resources/kubelet.sock"
    named = pod_resources("/run/k.sock", tmp_path, print)
    assert named is not None
    assert named.path == Path("/run/k.sock")
    assert pod_resources("none", tmp_path, print) is None


def test_a_socket_that_is_not_there_is_reported_only_if_it_was_named(tmp_path: Path) -> None:
    heard: list[Event] = []
    assert asyncio.run(PodResources(tmp_path / "no", heard.append).find([POD])) == {}
    assert heard == []
    named = PodResources(tmp_path / "no", heard.append, named=True)
    for _ in range(2):
        assert asyncio.run(named.find([POD])) == {}
    assert heard == [HintsNotRead(f"{tmp_path}/no: No such file or directory")]


def test_the_recorded_answer_has_a_device_and_memory_at_node_0(tmp_path: Path) -> None:
    api = PodResourcesAPI()
    api.put(RECORDED)
    hints = answer(tmp_path / "s", api).of("main", 0b11)
    assert [*(hints["example.com/nic"] or ())] == [Hint.of(0), Hint.of(0, 1, preferred=False)]
    assert [*(hints["memory"] or ())] == [Hint.of(0)]


def test_a_pod_that_has_none_is_known_to_have_none(tmp_path: Path) -> None:
    assert not answer(tmp_path / "s", PodResourcesAPI())


def test_devices_without_nodes_and_impossible_nodes_are_no_hints(tmp_path: Path) -> None:
    api = PodResourcesAPI()
    api.give("device", "main", "example.com/fpga")
    api.give("device", "main", "example.com/mad", -1, 1 << 62)
    api.give("device", "main", "memory", memory=True)
    assert not answer(tmp_path / "s", api)


def test_memory_in_several_blocks_is_one_hint(tmp_path: Path) -> None:
    api = PodResourcesAPI()
    for node in (0, 1):
        api.give("device", "main", "memory", node, memory=True)
        api.give("device", "main", "example.com/gpu", node)
    hints = answer(tmp_path / "s", api).of("main", 0b11)
    assert [*(hints["memory"] or ())] == [*(hints["example.com/gpu"] or ())] == [Hint.of(0, 1)]
