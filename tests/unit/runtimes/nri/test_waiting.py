"""An answer that waits holds up the later requests of its pod, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.proto import nri_pb2 as nri
from tests.unit.runtimes.nri.test_plugin import ABOUT, ask, talk
from tests.unit.runtimes.nrirecorder import WITHIN, Recorder

if TYPE_CHECKING:
    from pinfold.runtimes.simulated.nri.peer import PluginPeer

OTHER = nri.ContainerRequest(pod=nri.PodSandbox(id="q"), container=nri.Container(id="d", pod_sandbox_id="q"))


class Waiting(Recorder):
    """Answers a creation in pod p when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def create(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        self.note("asked for", pod)
        if pod.id == "p":
            await self.go_on.wait()
        return await super().create(pod, container)


def test_requests_of_other_pods_are_answered_while_one_waits() -> None:
    async def conversation(peer: PluginPeer) -> None:
        waiting = peer.request("CreateContainer", ABOUT)
        assert (await ask(peer, "CreateContainer", OTHER, nri.CreateContainerResponse)).HasField("adjust")
        assert handler.asked == ["asked for p", "asked for q", "create q d"]
        handler.go_on.set()
        assert not (await peer.response(waiting, WITHIN)).status.code

    handler = Waiting()
    talk(handler)(conversation)


def test_requests_of_the_same_pod_wait_and_keep_their_order() -> None:
    async def conversation(peer: PluginPeer) -> None:
        streams = [peer.request("CreateContainer", ABOUT)]
        streams += [peer.request(method, ABOUT) for method in ("StopContainer", "RemoveContainer", "StopPodSandbox")]
        await ask(peer, "StopContainer", OTHER, nri.StopContainerResponse)
        assert handler.asked == ["asked for p", "stop q d"]
        handler.go_on.set()
        for stream in streams:
            await peer.response(stream, WITHIN)
        assert handler.asked[2:] == ["create p c", "stop p c", "remove p c", "stop_pod p"]

    handler = Waiting()
    talk(handler)(conversation)


def test_what_waits_is_finished_when_the_connection_ends() -> None:
    async def conversation(peer: PluginPeer) -> None:
        peer.request("CreateContainer", ABOUT)
        await ask(peer, "StopContainer", OTHER, nri.StopContainerResponse)
        asyncio.get_running_loop().call_later(0.05, handler.go_on.set)

    handler = Waiting()
    talk(handler)(conversation)
    assert handler.asked[-1] == "create p c"
