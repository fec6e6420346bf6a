"""The plugin's connection, against the runtime's end of the protocol on a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import pytest
from google.protobuf.message import Message

from pinfold.errors import ConfigError, PinfoldError
from pinfold.formats.wire import ttrpc
from pinfold.formats.wire.nrimux import Connection, format_frames
from pinfold.formats.wire.ttrpc import MessageKind, format_message
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.backoff import BackOff
from pinfold.runtimes.nri.plugin import Launch, NRILink, Plugin, PluginIdentity, launched, serve, serve_launched
from pinfold.runtimes.nri.requests import SERVICE
from pinfold.runtimes.simulated.nri.peer import PluginPeer
from pinfold.runtimes.simulated.nri.runtime import ScriptedNRI
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.unit.manager.sources.test_supervisor import Clock
from tests.unit.runtimes.nrirecorder import WITHIN, Recorder, Told, update

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

M = TypeVar("M", bound=Message)
POD = nri.PodSandbox(id="p", name="web", linux=nri.LinuxPodSandbox(cgroup_parent="/kubepods/podx"))
CONTAINER = nri.Container(id="c", pod_sandbox_id="p", name="main")
ABOUT = nri.ContainerRequest(pod=POD, container=CONTAINER)


@asynccontextmanager
async def connected(handler: Recorder, told: Told | None = None) -> AsyncIterator[PluginPeer]:
    """Yield the runtime's end of a connection that a plugin serves; the plugin has sent its registration."""
    ours, theirs = socket.socketpair()
    plugin = (told or Told()).plugin(handler)
    running = asyncio.create_task(plugin.run(*await asyncio.open_unix_connection(sock=ours)))
    peer = PluginPeer(*await asyncio.open_unix_connection(sock=theirs))
    receiving = asyncio.create_task(peer.run())
    try:
        await peer.registration(WITHIN)
        yield peer
    finally:
        peer.close("the test is over")
        await asyncio.wait_for(asyncio.gather(running, receiving), WITHIN)


async def ask(peer: PluginPeer, method: str, message: Message, kind: type[M]) -> M:
    """Return what a method returns."""
    return await peer.ask(method, message, kind, within=WITHIN)


async def fail(peer: PluginPeer, method: str, message: Message, service: str = SERVICE) -> tuple[int, str]:
    """Return the error that a method returns."""
    status = (await peer.response(peer.request(method, message, service=service), WITHIN)).status
    return status.code, status.message


async def configure(peer: PluginPeer, milliseconds: int = 0) -> nri.ConfigureResponse:
    request = nri.ConfigureRequest(runtime_name="fake", runtime_version="1", request_timeout=milliseconds)
    return await ask(peer, "Configure", request, nri.ConfigureResponse)


def runtime_without_pods() -> ScriptedNRI:
    async def synchronize(_plugin: object) -> None:
        pass

    return ScriptedNRI(RuntimeSettings("fake", "1"), synchronize)


def run(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(coroutine)


def talk(
    handler: Recorder, told: Callable[[], Told] = Told
) -> Callable[[Callable[[PluginPeer], Awaitable[None]]], Told]:
    """Run a conversation with a plugin, and return what the callbacks were told."""

    def start(conversation: Callable[[PluginPeer], Awaitable[None]]) -> Told:
        async def hold() -> Told:
            callbacks = told()
            async with connected(handler, callbacks) as peer:
                await conversation(peer)
            return callbacks

        return asyncio.run(hold())

    return start


def test_plugin_registers_with_its_name_and_index() -> None:
    async def check() -> None:
        runtime = runtime_without_pods()
        streams = await asyncio.open_unix_connection(sock=await runtime.attach())
        running = asyncio.create_task(Plugin(Recorder(), PluginIdentity("cpus", "07")).run(*streams))
        await runtime.until(1)
        assert [plugin.name for plugin in runtime.plugins] == ["07-cpus"]
        await runtime.close()
        await asyncio.wait_for(running, WITHIN)

    run(check())


def test_links_are_told_in_order() -> None:
    async def conversation(peer: PluginPeer) -> None:
        await configure(peer)  # before the answer to the registration, as runtimes do at times
        peer.answer_registration()
        await ask(peer, "Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)
        await ask(peer, "Shutdown", nri.Empty(), nri.Empty)
        await peer.ended(WITHIN)

    assert talk(Recorder())(conversation).links == [
        (NRILink.CONNECTED, ""),
        (NRILink.REGISTERED, "fake 1"),
        (NRILink.SYNCHRONIZED, "fake 1"),
        (NRILink.CLOSED, "the runtime shuts down"),
    ]


def test_only_events_that_the_handler_has_are_asked_for() -> None:
    async def conversation(peer: PluginPeer) -> None:
        assert (await configure(peer)).events == 0b110_1110_1111

    talk(Recorder())(conversation)


def test_pieces_of_a_node_reach_the_handler_as_one() -> None:
    handler = Recorder()

    async def conversation(peer: PluginPeer) -> None:
        for index in range(2):
            piece = nri.SynchronizeRequest(pods=[POD], containers=[nri.Container(id=str(index))], more=True)
            answer = await ask(peer, "Synchronize", piece, nri.SynchronizeResponse)
            assert answer == nri.SynchronizeResponse(more=True)
            assert handler.asked == []
        answer = await ask(peer, "Synchronize", nri.SynchronizeRequest(containers=[CONTAINER]), nri.SynchronizeResponse)
        assert answer == nri.SynchronizeResponse(update=handler.updates)
        await ask(peer, "Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)

    talk(handler)(conversation)
    assert handler.asked == ["synchronize p p 0 1 c", "synchronize"]


def test_create_update_and_stop_carry_what_the_handler_decides() -> None:
    handler = Recorder()

    async def conversation(peer: PluginPeer) -> None:
        created = await ask(peer, "CreateContainer", ABOUT, nri.CreateContainerResponse)
        assert created.adjust.linux.resources.cpu.cpus == "2-3"
        assert list(created.update) == handler.updates
        wanted = nri.UpdateContainerRequest(pod=POD, container=CONTAINER)
        wanted.linux_resources.cpu.cpus = "7"
        updated = await ask(peer, "UpdateContainer", wanted, nri.UpdateContainerResponse)
        assert list(updated.update) == handler.updates
        stopped = await ask(peer, "StopContainer", ABOUT, nri.StopContainerResponse)
        assert list(stopped.update) == handler.updates

    talk(handler)(conversation)
    assert handler.asked == ["create p c", "update to 7 p c", "stop p c"]


HANDLED = {
    "RunPodSandbox": (nri.RUN_POD_SANDBOX, "run_pod p"),
    "StopPodSandbox": (nri.STOP_POD_SANDBOX, "stop_pod p"),
    "RemovePodSandbox": (nri.REMOVE_POD_SANDBOX, "remove_pod p"),
    "StartContainer": (nri.START_CONTAINER, "start p c"),
    "PostStartContainer": (nri.POST_START_CONTAINER, "post_start p c"),
    "RemoveContainer": (nri.REMOVE_CONTAINER, "remove p c"),
}


@pytest.mark.parametrize("method", HANDLED)
def test_event_reaches_the_handler_by_state_change_and_by_its_own_method(method: str) -> None:
    handler = Recorder()
    event, asked = HANDLED[method]

    async def conversation(peer: PluginPeer) -> None:
        change = nri.StateChangeEvent(event=event, pod=POD, container=CONTAINER)
        await ask(peer, "StateChange", change, nri.Empty)
        await ask(peer, method, ABOUT, nri.Empty)

    talk(handler)(conversation)
    assert handler.asked == [asked, asked]


def test_events_without_a_handler_are_answered() -> None:
    handler = Recorder()

    async def conversation(peer: PluginPeer) -> None:
        for event in (5, 9, 14, 99):  # also those of newer runtimes
            change = nri.StateChangeEvent.FromString(bytes([0x08, event]))
            await ask(peer, "StateChange", change, nri.Empty)

    talk(handler)(conversation)
    assert handler.asked == []


def test_unknown_methods_are_unimplemented_so_that_newer_runtimes_fall_back() -> None:
    async def conversation(peer: PluginPeer) -> None:
        for method in ("PostCreateContainer", "ValidateContainerAdjustment", "answer", "_create", ""):
            assert await fail(peer, method, ABOUT) == (12, f'no method "{method}"')
        code, text = await fail(peer, "Configure", ABOUT, "containerd.Else")
        assert (code, text.partition(";")[0]) == (12, 'no service "containerd.Else"')

    talk(Recorder())(conversation)


@pytest.mark.parametrize("method", ["CreateContainer", "StartContainer", "UpdateContainer", "StopContainer"])
def test_error_of_ours_is_the_reply_and_the_connection_lives_on(method: str) -> None:
    handler = Recorder(PinfoldError("wanted 4 CPUs, 2 free (0-1)"))

    async def conversation(peer: PluginPeer) -> None:
        assert await fail(peer, method, ABOUT) == (9, "wanted 4 CPUs, 2 free (0-1)")
        handler.error = None
        await ask(peer, method, ABOUT, nri.Empty)

    assert talk(handler)(conversation).failures == []


def test_bug_in_the_handler_is_told_and_the_connection_lives_on() -> None:
    handler = Recorder(KeyError("secret"))

    async def conversation(peer: PluginPeer) -> None:
        assert await fail(peer, "CreateContainer", ABOUT) == (13, "CreateContainer: internal error (KeyError)")
        handler.error = None
        await ask(peer, "CreateContainer", ABOUT, nri.CreateContainerResponse)

    assert talk(handler)(conversation).failures == [("CreateContainer", "KeyError('secret')")]


def test_error_text_is_one_short_line_that_can_be_sent() -> None:
    async def conversation(peer: PluginPeer) -> None:
        code, text = await fail(peer, "CreateContainer", ABOUT)
        assert code == 9
        assert text.startswith(r"a\nb\udc80xxx")
        assert len(text) < 1100

    talk(Recorder(PinfoldError("a\nb\udc80" + "x" * 9999)))(conversation)


def test_a_timeout_in_a_handler_is_a_bug_of_it() -> None:
    async def conversation(peer: PluginPeer) -> None:
        code, text = await fail(peer, "CreateContainer", ABOUT)
        assert (code, text) == (13, "CreateContainer: internal error (TimeoutError)")

    talk(Recorder(TimeoutError()))(conversation)


def test_requests_that_come_together_are_answered_in_order() -> None:
    handler = Recorder()

    async def conversation(peer: PluginPeer) -> None:
        methods = ["CreateContainer", "StartContainer", "StopContainer", "RemoveContainer"]
        streams = [peer.request(method, ABOUT) for method in methods]
        for stream in streams:
            await peer.response(stream, WITHIN)

    talk(handler)(conversation)
    assert handler.asked == ["create p c", "start p c", "stop p c", "remove p c"]


def test_long_answer_travels_in_short_frames() -> None:
    handler = Recorder()
    handler.updates = [update(f"{index:064}", "0-63") for index in range(2000)]

    async def conversation(peer: PluginPeer) -> None:
        answer = await ask(peer, "Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)
        assert len(answer.update) == 2000  # a longer frame than 4096 bytes would have ended the connection

    talk(handler)(conversation)


def test_answer_over_the_limit_of_ttrpc_is_an_error_reply() -> None:
    handler = Recorder()
    handler.updates = [update("c", "0" * (5 << 20))]

    async def conversation(peer: PluginPeer) -> None:
        code, text = await fail(peer, "StopContainer", ABOUT)
        assert code == 8
        assert text.endswith("is too long to send")

    talk(handler)(conversation)


def test_node_that_never_ends_is_refused() -> None:
    handler = Recorder()
    piece = nri.SynchronizeRequest(containers=[nri.Container(id="x" * (3 << 20))], more=True)

    async def conversation(peer: PluginPeer) -> None:
        for _ in range(21):
            await ask(peer, "Synchronize", piece, nri.SynchronizeResponse)
        code, text = await fail(peer, "Synchronize", piece)
        assert (code, text) == (8, "Synchronize of more than 67,108,864 bytes")

    talk(handler)(conversation)


def test_payload_that_is_no_message_is_refused_and_the_connection_lives_on() -> None:
    async def conversation(peer: PluginPeer) -> None:
        body = envelope.Request(service=SERVICE, method="CreateContainer", payload=b"\xff\xff").SerializeToString()
        for sent in (body, b"\xff"):
            status = (await peer.response(peer.call(sent), WITHIN)).status
            assert status.code == 3
            assert "that are no" in status.message
        await configure(peer)

    talk(Recorder())(conversation)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "an NRI frame of connection 1195725856"),
        (format_frames(Connection.PLUGIN, b"\xff" * 10), "a ttrpc message of 4,294,967,295 bytes"),
        (
            format_frames(Connection.RUNTIME, format_message(ttrpc.Message(1, MessageKind.RESPONSE, b"\xff"))),
            "1 bytes that are",
        ),
    ],
    ids=["frame", "message", "registration"],
)
def test_garbage_ends_the_connection_with_a_reason(data: bytes, reason: str) -> None:
    async def conversation(peer: PluginPeer) -> None:
        peer.write(data)
        await peer.ended(WITHIN)

    link, detail = talk(Recorder())(conversation).links[-1]
    assert link == NRILink.CLOSED
    assert detail.startswith(reason)


def test_refused_registration_is_the_reason() -> None:
    async def conversation(peer: PluginPeer) -> None:
        peer.answer_registration(2, "invalid plugin\nindex")
        await peer.ended(WITHIN)

    links = talk(Recorder())(conversation).links
    assert links[-1] == (NRILink.CLOSED, r"the runtime refused the plugin: invalid plugin\nindex (code 2)")


def test_messages_that_were_not_expected_are_ignored() -> None:
    async def conversation(peer: PluginPeer) -> None:
        for connection in Connection:
            for kind in (MessageKind.DATA, MessageKind.RESPONSE):
                peer.send(connection, ttrpc.Message(99, kind, b"?"))
        await configure(peer)

    talk(Recorder())(conversation)


def test_plugin_connects_again_after_the_runtime_has_restarted(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told()
        path = str(tmp_path / "nri.sock")
        runtime = runtime_without_pods()
        serving = asyncio.create_task(serve(path, told.plugin(Recorder())))
        assert await told.until(NRILink.CLOSED) == f"{path}: No such file or directory"
        for _ in range(2):
            told.links.clear()
            await runtime.listen(path)
            await runtime.until(1)
            assert await told.until(NRILink.REGISTERED) == "fake 1"
            await runtime.close()
            assert await told.until(NRILink.CLOSED)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    run(check())


def test_plugin_connects_within_half_a_second_to_a_runtime_that_was_away_for_long(tmp_path: Path) -> None:
    clock = Clock()

    async def check() -> None:
        path = str(tmp_path / "nri.sock")
        runtime = runtime_without_pods()
        serving = asyncio.create_task(serve(path, Told().plugin(Recorder())))
        for _ in range(10):
            await clock.leap(10)
        await runtime.listen(path)
        await clock.leap(0.5)
        await runtime.until(1, within=3)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await runtime.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(check())


def test_closed_is_told_once_while_nothing_changes(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told()
        plugin = told.plugin(Recorder())
        for _ in range(3):
            plugin.tell(NRILink.CLOSED, f"{tmp_path}: no")
        assert told.links == [(NRILink.CLOSED, f"{tmp_path}: no")]

    run(check())


def test_wait_doubles_up_to_five_seconds_and_is_short_after_a_registration_that_lived() -> None:
    back_off = BackOff()
    assert [round(back_off.after(0.0), 1) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert back_off.after(1.0) == 5.0
    assert back_off.after(60.0) == 0.1
    assert back_off.after(0.0) == 0.2


def test_launched_plugin_serves_the_socket_it_was_given() -> None:
    async def check() -> None:
        runtime = runtime_without_pods()
        number = str((await runtime.attach()).detach())
        launch = launched({"NRI_PLUGIN_SOCKET": number, "NRI_PLUGIN_NAME": "cpus", "NRI_PLUGIN_IDX": "42"})
        assert launch is not None
        running = asyncio.create_task(serve_launched(launch, Plugin(Recorder(), launch.identity)))
        await runtime.until(1)
        assert [plugin.name for plugin in runtime.plugins] == ["42-cpus"]
        assert not os.get_inheritable(launch.fd)
        await runtime.close()
        await asyncio.wait_for(running, WITHIN)

    run(check())


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"NRI_PLUGIN_SOCKET": "three"}, 'NRI_PLUGIN_SOCKET is "three"; the number of an open file is expected'),
        ({"NRI_PLUGIN_SOCKET": "9" * 99}, "the number of an open file is expected"),
        ({"NRI_PLUGIN_SOCKET": "3"}, "an NRI plugin without a name"),
        ({"NRI_PLUGIN_SOCKET": "3", "NRI_PLUGIN_NAME": "x"}, 'NRI plugin index ""; two digits are expected'),
        ({"NRI_PLUGIN_SOCKET": "3", "NRI_PLUGIN_NAME": "x", "NRI_PLUGIN_IDX": "٣٣"}, "two digits are expected"),
    ],
)
def test_bad_launch_says_what_is_wrong(environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        launched(environ)


def test_launch_with_something_else_than_a_socket_says_so() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    try:
        with pytest.raises(ConfigError, match=f"NRI_PLUGIN_SOCKET is {reading}, which is not a socket: "):
            asyncio.run(serve_launched(Launch(reading, PluginIdentity()), Plugin(Recorder())))
    finally:
        os.close(reading)


def test_launch_with_another_kind_of_socket_says_so() -> None:
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
    with pytest.raises(ConfigError, match="which is not a unix stream socket"):
        asyncio.run(serve_launched(Launch(datagrams, PluginIdentity()), Plugin(Recorder())))


@pytest.mark.parametrize("events", [frozenset[int](), frozenset({0}), frozenset({12}), frozenset({-1, 4})])
def test_events_that_runtimes_do_not_know_are_refused(events: frozenset[int]) -> None:
    with pytest.raises(ConfigError, match="some of 1 to 11 are expected"):
        PluginIdentity(events=events)
