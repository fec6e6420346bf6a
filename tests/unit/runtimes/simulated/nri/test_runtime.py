"""The scripted runtime's side of NRI: plugins that come and go, are slow, misbehave, or are more than one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.formats.wire import ttrpc
from pinfold.formats.wire.nrimux import Connection, format_frames
from pinfold.formats.wire.ttrpc import MessageKind, format_message
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.nri.plugin import Plugin, PluginIdentity, serve
from pinfold.runtimes.simulated.nri.peer import RUNTIME_SERVICE, PluginError, PluginGone
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.unit.runtimes.nrirecorder import Quiet, adjustment, update
from tests.unit.runtimes.simulated.scripts import PATIENT, Node, burstable, guaranteed, play

if TYPE_CHECKING:
    from pathlib import Path

QUICK = RuntimeSettings(registration_timeout=0.2, request_timeout=0.2)


def test_plugin_is_told_all_that_lives_and_the_sandboxes_that_are_dead() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.runtime.pods.run(burstable("web"))
        await node.runtime.stop_pod((await node.runtime.pods.run(burstable("old"))).id)
        sandbox = await node.runtime.run_pod(guaranteed("db"))
        await node.runtime.create_container(sandbox.id, "app")
        await node.plug(handler)
        containers = [message for message in handler.messages if isinstance(message, nri.Container)]
        assert [container.state for container in containers] == [nri.CONTAINER_RUNNING, nri.CONTAINER_CREATED]

    play(script)
    assert handler.asked == ["synchronize web old db app app"]


def test_updates_in_the_answer_to_synchronize_are_applied() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.runtime.pods.run(burstable())
        container = node.runtime.record.find("web", "app")
        handler.updates = [update(container.id, "5")]
        await node.plug(handler)
        assert node.cpus(container) == "5"

    play(script)


@pytest.mark.parametrize("most", [1, 3000, 100_000])
def test_node_that_comes_in_pieces_is_one_to_the_handler(most: int) -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        for number in range(5):
            await node.runtime.pods.run(burstable(f"web-{number}"))
        await node.plug(handler)

    play(script, replace(PATIENT, most_synchronized=most))
    [asked] = handler.asked
    assert sorted(asked.split()) == ["app"] * 5 + ["synchronize"] + [f"web-{number}" for number in range(5)]


def test_plugin_that_was_away_learns_what_came_and_went() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        plugin = await node.plug(handler)
        gone = await node.runtime.pods.run(burstable("gone"))
        await node.unplug(plugin)
        await node.runtime.remove_pod(gone.id)
        await node.runtime.pods.run(burstable("new"))
        handler.asked.clear()
        await node.plug(handler)

    play(script)
    assert handler.asked == ["synchronize new app"]


def test_restarted_runtime_lists_everything_and_forgets_to_tell_of_the_end_of_old_pods(tmp_path: Path) -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.runtime.nri.listen(str(tmp_path / "nri.sock"))
        serving = asyncio.create_task(serve(str(tmp_path / "nri.sock"), Plugin(handler)))
        await node.runtime.nri.until(1)
        sandbox = await node.runtime.pods.run(guaranteed())
        handler.asked.clear()
        await node.runtime.restart()
        await node.runtime.nri.until(1)
        await node.runtime.remove_pod(sandbox.id)
        await node.runtime.run_pod(burstable())
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    play(script)
    assert handler.asked == ["synchronize db app", "stop db app", "remove db app", "run_pod web"]


class Slow(Quiet):
    """Does not answer a creation."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def create(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        self.is_asked.set()
        await asyncio.Event().wait()
        return await super().create(pod, container)


def test_plugin_that_does_not_answer_in_time_is_dropped_and_the_container_created_without_it() -> None:
    handler = Slow()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        node.runtime.nri.settings = QUICK
        container = await node.runtime.pods.run_container(sandbox.id, "app")
        assert container.spec.cpus == ""
        assert node.runtime.nri.plugins == []
        assert [str(error) for error in node.runtime.nri.errors] == ["no answer within 0.2 s"]

    play(script)
    assert handler.asked == ["synchronize", "run_pod db"]


def test_plugin_that_hangs_up_in_a_request_is_as_one_that_was_not_asked() -> None:
    handler = Slow()

    async def script(node: Node) -> None:
        plugin = await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        creating = asyncio.create_task(node.runtime.create_container(sandbox.id, "app"))
        await handler.is_asked.wait()
        plugin.cancel()
        assert (await creating).spec.cpus == ""
        assert [str(error) for error in node.runtime.nri.errors] == ["the plugin hung up"]

    play(script)


def test_second_plugin_that_sets_the_same_fails_the_creation() -> None:
    first, second = Quiet(), Quiet()
    first.adjustment = second.adjustment = adjustment("2")

    async def script(node: Node) -> None:
        await node.plug(second, PluginIdentity("b", "20"))
        await node.plug(first, PluginIdentity("a", "10"))
        assert [plugin.name for plugin in node.runtime.nri.plugins] == ["10-a", "20-b"]
        sandbox = await node.runtime.run_pod(guaranteed())
        with pytest.raises(PluginError, match="plugin 20-b sets what another set: cpus"):
            await node.runtime.create_container(sandbox.id, "app")
        assert not node.runtime.record.containers

    play(script)


def test_plugin_that_updates_the_container_being_created_fails_the_creation() -> None:
    class Confused(Quiet):
        async def create(
            self, pod: nri.PodSandbox, container: nri.Container
        ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
            self.note("create", pod, container)
            return adjustment("2"), [update(container.id, "3")]

    async def script(node: Node) -> None:
        await node.plug(Confused())
        sandbox = await node.runtime.run_pod(guaranteed())
        with pytest.raises(PluginError, match="plugin 10-pinfold updates the container being created"):
            await node.runtime.create_container(sandbox.id, "app")

    play(script)


def test_plugin_is_told_only_of_the_events_that_it_asked_for() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler, PluginIdentity(events=frozenset({nri.CREATE_CONTAINER})))
        await node.runtime.remove_pod((await node.runtime.pods.run(guaranteed())).id)

    play(script)
    assert handler.asked == ["synchronize", "create db app"]


def test_launched_plugin_of_an_old_containerd_is_not_synchronized() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.runtime.pods.run(burstable())
        plugins = await node.runtime.nri.attach(synchronize=False)
        running = asyncio.create_task(Plugin(handler).run(*await asyncio.open_unix_connection(sock=plugins)))
        await node.runtime.nri.until(1)
        await node.runtime.run_pod(guaranteed())
        await node.runtime.close()
        await running

    play(script)
    assert handler.asked == ["run_pod db"]


def test_waiting_for_a_plugin_that_does_not_come_ends_with_what_is_known() -> None:
    async def script(node: Node) -> None:
        with pytest.raises(PluginGone, match=r"0 instead of 1 plugins after 0\.01 s; errors: none"):
            await node.runtime.nri.until(1, within=0.01)

    play(script)


# -- what only a broken plugin sends


def request(service: str, method: str, payload: bytes) -> bytes:
    body = envelope.Request(service=service, method=method, payload=payload).SerializeToString()
    return format_frames(Connection.RUNTIME, format_message(ttrpc.Message(1, MessageKind.REQUEST, body)))


def registration(name: str, index: str) -> bytes:
    wanted = nri.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
    return request(RUNTIME_SERVICE, "RegisterPlugin", wanted.SerializeToString())


def configured(events: int) -> bytes:
    answer = nri.ConfigureResponse(events=events)
    body = envelope.Response(payload=answer.SerializeToString()).SerializeToString()
    return format_frames(Connection.PLUGIN, format_message(ttrpc.Message(1, MessageKind.RESPONSE, body)))


LONG = format_frames(Connection.RUNTIME, format_message(ttrpc.Message(1, MessageKind.REQUEST, bytes(5000))), 1 << 20)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([b""], "no registration within 0.2 s"),
        ([b"GET / HTTP/1.1\r\n"], "an NRI frame of connection 1195725856"),
        ([registration("", "10")], 'invalid plugin "10-"; expected an index of two digits and a name'),
        ([registration("x", "7")], 'invalid plugin "7-x"; expected an index of two digits and a name'),
        ([registration("x", "10")], "no answer within 0.2 s"),
        ([registration("x", "10"), configured(1 << 11)], "events 0x800 are not among the known 0x7ff"),
        ([request(RUNTIME_SERVICE, "UpdateContainers", b"")], "no registration within 0.2 s"),
        ([LONG], "an NRI frame of 5,010 bytes; at most 4,096 are read"),
    ],
    ids=["silent", "HTTP", "no name", "one digit", "not configured", "unknown event", "other method", "long frame"],
)
def test_connection_that_is_no_plugin_is_dropped_with_a_reason_and_the_next_one_is_served(
    sent: list[bytes], why: str
) -> None:
    async def script(node: Node) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=await node.runtime.nri.attach())
        for part in sent:
            writer.write(part)
            await reader.read(1 << 16)
        await reader.read()
        writer.close()
        node.runtime.nri.settings = PATIENT
        await node.plug(Quiet())
        [error] = node.runtime.nri.errors
        assert why in str(error)

    play(script, QUICK)
