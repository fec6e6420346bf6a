"""The plugin's connection, against the runtime's end of the protocol on a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from google.protobuf.message import Message

from pinfold.errors import ConfigError, PinfoldError
from pinfold.formats import nrimux, ttrpc
from pinfold.formats.nrimux import Connection, format_frames
from pinfold.formats.ttrpc import Kind, format_message
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.nriplugin import BackOff, Identity, Launch, Link, Plugin, launched, serve, serve_launched
from pinfold.runtimes.nrirequests import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

M = TypeVar("M", bound=Message)
WITHIN = 10.0
POD = nri.PodSandbox(id="p", name="web", linux=nri.LinuxPodSandbox(cgroup_parent="/kubepods/podx"))
CONTAINER = nri.Container(id="c", pod_sandbox_id="p", name="main")
ABOUT = nri.ContainerRequest(pod=POD, container=CONTAINER)
LAB = Path(__file__).parents[4] / "shared/reference/lab"


def update(container: str, cpus: str) -> nri.ContainerUpdate:
    made = nri.ContainerUpdate(container_id=container)
    made.linux.resources.cpu.cpus = cpus
    return made


class Recorder:
    """A handler that notes what it is asked, gives fixed answers, and fails when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.error = error
        self.updates = [update("other", "0")]

    def note(self, what: str, *about: nri.PodSandbox | nri.Container) -> None:
        self.asked.append(" ".join([what, *(thing.id for thing in about)]))
        if self.error:
            raise self.error

    def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        self.note("synchronize", *pods, *containers)
        return self.updates

    async def create(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        self.note("create", pod, container)
        adjustment = nri.ContainerAdjustment()
        adjustment.linux.resources.cpu.cpus = "2-3"
        return adjustment, self.updates

    def start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("start", pod, container)

    async def post_start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("post_start", pod, container)

    def update(
        self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources
    ) -> list[nri.ContainerUpdate]:
        self.note(f"update to {wanted.cpu.cpus}", pod, container)
        return self.updates

    def stop(self, pod: nri.PodSandbox, container: nri.Container) -> list[nri.ContainerUpdate]:
        self.note("stop", pod, container)
        return self.updates

    def remove(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.note("remove", pod, container)

    def run_pod(self, pod: nri.PodSandbox) -> None:
        self.note("run_pod", pod)

    async def stop_pod(self, pod: nri.PodSandbox) -> None:
        self.note("stop_pod", pod)

    def remove_pod(self, pod: nri.PodSandbox) -> None:
        self.note("remove_pod", pod)


class Runtime:
    """The runtime's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = nrimux.Decoder()
        self.messages = {connection: ttrpc.Decoder() for connection in Connection}
        self.received: list[tuple[Connection, ttrpc.Message]] = []
        self.longest = 0
        self.stream = 1

    def send(self, connection: Connection, message: ttrpc.Message) -> None:
        self.writer.write(format_frames(connection, format_message(message)))

    def request(self, method: str, message: Message, service: str = SERVICE) -> int:
        """Send a request, and return its stream."""
        self.stream += 2
        body = envelope.Request(service=service, method=method, payload=message.SerializeToString())
        self.send(Connection.PLUGIN, ttrpc.Message(self.stream, Kind.REQUEST, body.SerializeToString()))
        return self.stream

    async def receive(self) -> tuple[Connection, ttrpc.Message]:
        while not self.received:
            data = await asyncio.wait_for(self.reader.read(65536), WITHIN)
            assert data, "the plugin hung up"
            for frame in self.frames.feed(data):
                self.longest = max(self.longest, 8 + len(frame.data))
                self.received += [
                    (frame.connection, found) for found in self.messages[frame.connection].feed(frame.data)
                ]
        return self.received.pop(0)

    async def response(self, stream: int) -> envelope.Response:
        connection, message = await self.receive()
        assert (connection, message.stream, message.kind) == (Connection.PLUGIN, stream, Kind.RESPONSE)
        answer: envelope.Response = envelope.Response.FromString(message.body)
        return answer

    async def ask(self, method: str, message: Message, kind: type[M]) -> M:
        """Return what a method returns."""
        answer = await self.response(self.request(method, message))
        assert answer.status.code == 0, answer.status.message
        result: M = kind.FromString(answer.payload)
        return result

    async def fail(self, method: str, message: Message, service: str = SERVICE) -> tuple[int, str]:
        """Return the error that a method returns."""
        status = (await self.response(self.request(method, message, service))).status
        return status.code, status.message

    async def registration(self) -> nri.RegisterPluginRequest:
        connection, message = await self.receive()
        assert (connection, message.stream, message.kind) == (Connection.RUNTIME, 1, Kind.REQUEST)
        request = envelope.Request.FromString(message.body)
        assert (request.service, request.method) == ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
        wanted: nri.RegisterPluginRequest = nri.RegisterPluginRequest.FromString(request.payload)
        return wanted

    def accept(self, code: int = 0, message: str = "") -> None:
        body = envelope.Response(status=envelope.Status(code=code, message=message))
        self.send(Connection.RUNTIME, ttrpc.Message(1, Kind.RESPONSE, body.SerializeToString()))

    async def configure(self, milliseconds: int = 0) -> nri.ConfigureResponse:
        request = nri.ConfigureRequest(runtime_name="fake", runtime_version="1", request_timeout=milliseconds)
        return await self.ask("Configure", request, nri.ConfigureResponse)

    async def ended(self) -> None:
        """Wait until the plugin has hung up."""
        with suppress(ConnectionError):
            while await asyncio.wait_for(self.reader.read(65536), WITHIN):
                pass


class Told:
    """What the callbacks were told."""

    def __init__(self) -> None:
        self.links: list[tuple[Link, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def changed(self, link: Link, detail: str) -> None:
        self.links.append((link, detail))
        self.news.set()

    def failed(self, method: str, error: Exception) -> None:
        self.failures.append((method, repr(error)))

    async def until(self, link: Link) -> str:
        """Wait until *link* is told, and return the detail."""
        while not (found := [detail for told, detail in self.links if told == link]):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), WITHIN)
        return found[-1]

    def plugin(self, handler: Recorder, identity: Identity | None = None) -> Plugin:
        return Plugin(handler, identity, self.changed, self.failed)


@asynccontextmanager
async def connected(handler: Recorder, told: Told | None = None) -> AsyncIterator[Runtime]:
    """Yield the runtime's end of a connection that a plugin serves; it has sent its registration."""
    ours, theirs = socket.socketpair()
    plugin = (told or Told()).plugin(handler)
    running = asyncio.create_task(plugin.run(*await asyncio.open_unix_connection(sock=ours)))
    runtime = Runtime(*await asyncio.open_unix_connection(sock=theirs))
    try:
        await runtime.registration()
        yield runtime
    finally:
        runtime.writer.close()
        await asyncio.wait_for(running, WITHIN)
        with suppress(ConnectionError):
            await runtime.writer.wait_closed()


def run(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(coroutine)


def talk(handler: Recorder, told: Callable[[], Told] = Told) -> Callable[[Callable[[Runtime], Awaitable[None]]], Told]:
    """Run a conversation with a plugin, and return what the callbacks were told."""

    def start(conversation: Callable[[Runtime], Awaitable[None]]) -> Told:
        async def hold() -> Told:
            callbacks = told()
            async with connected(handler, callbacks) as runtime:
                await conversation(runtime)
            return callbacks

        return asyncio.run(hold())

    return start


def test_plugin_registers_before_it_hears_anything() -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        plugin = Plugin(Recorder(), Identity("cpus", "07"))
        running = asyncio.create_task(plugin.run(*await asyncio.open_unix_connection(sock=ours)))
        runtime = Runtime(*await asyncio.open_unix_connection(sock=theirs))
        wanted = await runtime.registration()
        assert (wanted.plugin_name, wanted.plugin_idx) == ("cpus", "07")
        runtime.writer.close()
        await running

    run(check())


def test_links_are_told_in_order() -> None:
    async def conversation(runtime: Runtime) -> None:
        await runtime.configure()  # before the answer to the registration, as runtimes do at times
        runtime.accept()
        await runtime.ask("Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)
        await runtime.ask("Shutdown", nri.Empty(), nri.Empty)
        await runtime.ended()

    assert talk(Recorder())(conversation).links == [
        (Link.CONNECTED, ""),
        (Link.REGISTERED, "fake 1"),
        (Link.SYNCHRONIZED, "fake 1"),
        (Link.CLOSED, "the runtime shuts down"),
    ]


def test_only_events_that_the_handler_has_are_asked_for() -> None:
    async def conversation(runtime: Runtime) -> None:
        assert (await runtime.configure()).events == 0b110_1110_1111

    talk(Recorder())(conversation)


def test_pieces_of_a_node_reach_the_handler_as_one() -> None:
    handler = Recorder()

    async def conversation(runtime: Runtime) -> None:
        for index in range(2):
            piece = nri.SynchronizeRequest(pods=[POD], containers=[nri.Container(id=str(index))], more=True)
            answer = await runtime.ask("Synchronize", piece, nri.SynchronizeResponse)
            assert answer == nri.SynchronizeResponse(more=True)
            assert handler.asked == []
        answer = await runtime.ask(
            "Synchronize", nri.SynchronizeRequest(containers=[CONTAINER]), nri.SynchronizeResponse
        )
        assert answer == nri.SynchronizeResponse(update=handler.updates)
        await runtime.ask("Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)

    talk(handler)(conversation)
    assert handler.asked == ["synchronize p p 0 1 c", "synchronize"]


def test_create_update_and_stop_carry_what_the_handler_decides() -> None:
    handler = Recorder()

    async def conversation(runtime: Runtime) -> None:
        created = await runtime.ask("CreateContainer", ABOUT, nri.CreateContainerResponse)
        assert created.adjust.linux.resources.cpu.cpus == "2-3"
        assert list(created.update) == handler.updates
        wanted = nri.UpdateContainerRequest(pod=POD, container=CONTAINER)
        wanted.linux_resources.cpu.cpus = "7"
        updated = await runtime.ask("UpdateContainer", wanted, nri.UpdateContainerResponse)
        assert list(updated.update) == handler.updates
        stopped = await runtime.ask("StopContainer", ABOUT, nri.StopContainerResponse)
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

    async def conversation(runtime: Runtime) -> None:
        change = nri.StateChangeEvent(event=event, pod=POD, container=CONTAINER)
        await runtime.ask("StateChange", change, nri.Empty)
        await runtime.ask(method, ABOUT, nri.Empty)

    talk(handler)(conversation)
    assert handler.asked == [asked, asked]


def test_events_without_a_handler_are_answered() -> None:
    handler = Recorder()

    async def conversation(runtime: Runtime) -> None:
        for event in (5, 9, 14, 99):  # also those of newer runtimes
            change = nri.StateChangeEvent.FromString(bytes([0x08, event]))
            await runtime.ask("StateChange", change, nri.Empty)

    talk(handler)(conversation)
    assert handler.asked == []


def test_unknown_methods_are_unimplemented_so_that_newer_runtimes_fall_back() -> None:
    async def conversation(runtime: Runtime) -> None:
        for method in ("PostCreateContainer", "ValidateContainerAdjustment", "answer", "_create", ""):
            assert await runtime.fail(method, ABOUT) == (12, f'no method "{method}"')
        code, text = await runtime.fail("Configure", ABOUT, "containerd.Else")
        assert (code, text.partition(";")[0]) == (12, 'no service "containerd.Else"')

    talk(Recorder())(conversation)


@pytest.mark.parametrize("method", ["CreateContainer", "StartContainer", "UpdateContainer", "StopContainer"])
def test_error_of_ours_is_the_reply_and_the_connection_lives_on(method: str) -> None:
    handler = Recorder(PinfoldError("wanted 4 CPUs, 2 free (0-1)"))

    async def conversation(runtime: Runtime) -> None:
        assert await runtime.fail(method, ABOUT) == (9, "wanted 4 CPUs, 2 free (0-1)")
        handler.error = None
        await runtime.ask(method, ABOUT, nri.Empty)

    assert talk(handler)(conversation).failures == []


def test_bug_in_the_handler_is_told_and_the_connection_lives_on() -> None:
    handler = Recorder(KeyError("secret"))

    async def conversation(runtime: Runtime) -> None:
        assert await runtime.fail("CreateContainer", ABOUT) == (13, "CreateContainer: internal error (KeyError)")
        handler.error = None
        await runtime.ask("CreateContainer", ABOUT, nri.CreateContainerResponse)

    assert talk(handler)(conversation).failures == [("CreateContainer", "KeyError('secret')")]


def test_error_text_is_one_short_line_that_can_be_sent() -> None:
    async def conversation(runtime: Runtime) -> None:
        code, text = await runtime.fail("CreateContainer", ABOUT)
        assert code == 9
        assert text.startswith(r"a\nb\udc80xxx")
        assert len(text) < 1100

    talk(Recorder(PinfoldError("a\nb\udc80" + "x" * 9999)))(conversation)


class Sleeper(Recorder):
    """A handler that never decides."""

    async def create(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        await asyncio.Event().wait()
        return await super().create(pod, container)


def test_handler_that_does_not_decide_is_answered_for_within_the_runtimes_limit() -> None:
    async def conversation(runtime: Runtime) -> None:
        await runtime.configure(milliseconds=50)
        assert await runtime.fail("CreateContainer", ABOUT) == (4, "no decision within 0.045 s")
        await runtime.ask("StopContainer", ABOUT, nri.StopContainerResponse)

    told = talk(Sleeper())(conversation)
    assert told.failures == [("CreateContainer", "SlowHandlerError('no decision within 0.045 s')")]


def test_own_timeout_of_a_handler_is_a_bug_of_it() -> None:
    async def conversation(runtime: Runtime) -> None:
        code, text = await runtime.fail("CreateContainer", ABOUT)
        assert (code, text) == (13, "CreateContainer: internal error (TimeoutError)")

    talk(Recorder(TimeoutError()))(conversation)


def test_requests_that_come_together_are_answered_in_order() -> None:
    handler = Recorder()

    async def conversation(runtime: Runtime) -> None:
        methods = ["CreateContainer", "StartContainer", "StopContainer", "RemoveContainer"]
        streams = [runtime.request(method, ABOUT) for method in methods]
        for stream in streams:
            await runtime.response(stream)

    talk(handler)(conversation)
    assert handler.asked == ["create p c", "start p c", "stop p c", "remove p c"]


def test_long_answer_travels_in_short_frames() -> None:
    handler = Recorder()
    handler.updates = [update(f"{index:064}", "0-63") for index in range(2000)]

    async def conversation(runtime: Runtime) -> None:
        answer = await runtime.ask("Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse)
        assert len(answer.update) == 2000
        assert runtime.longest == 4096

    talk(handler)(conversation)


def test_answer_over_the_limit_of_ttrpc_is_an_error_reply() -> None:
    handler = Recorder()
    handler.updates = [update("c", "0" * (5 << 20))]

    async def conversation(runtime: Runtime) -> None:
        code, text = await runtime.fail("StopContainer", ABOUT)
        assert code == 8
        assert text.endswith("is too long to send")

    talk(handler)(conversation)


def test_node_that_never_ends_is_refused() -> None:
    handler = Recorder()
    piece = nri.SynchronizeRequest(containers=[nri.Container(id="x" * (3 << 20))], more=True)

    async def conversation(runtime: Runtime) -> None:
        for _ in range(21):
            await runtime.ask("Synchronize", piece, nri.SynchronizeResponse)
        code, text = await runtime.fail("Synchronize", piece)
        assert (code, text) == (8, "Synchronize of more than 67,108,864 bytes")

    talk(handler)(conversation)


def test_payload_that_is_no_message_is_refused_and_the_connection_lives_on() -> None:
    async def conversation(runtime: Runtime) -> None:
        body = envelope.Request(service=SERVICE, method="CreateContainer", payload=b"\xff\xff").SerializeToString()
        for stream, sent in ((101, body), (103, b"\xff")):
            runtime.send(Connection.PLUGIN, ttrpc.Message(stream, Kind.REQUEST, sent))
            status = (await runtime.response(stream)).status
            assert status.code == 3
            assert "that are no" in status.message
        await runtime.configure()

    talk(Recorder())(conversation)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "an NRI frame of connection 1195725856"),
        (format_frames(Connection.PLUGIN, b"\xff" * 10), "a ttrpc message of 4,294,967,295 bytes"),
        (
            format_frames(Connection.RUNTIME, format_message(ttrpc.Message(1, Kind.RESPONSE, b"\xff"))),
            "1 bytes that are",
        ),
    ],
    ids=["frame", "message", "registration"],
)
def test_garbage_ends_the_connection_with_a_reason(data: bytes, reason: str) -> None:
    async def conversation(runtime: Runtime) -> None:
        runtime.writer.write(data)
        await runtime.ended()

    link, detail = talk(Recorder())(conversation).links[-1]
    assert link == Link.CLOSED
    assert detail.startswith(reason)


def test_refused_registration_is_the_reason() -> None:
    async def conversation(runtime: Runtime) -> None:
        runtime.accept(code=2, message="invalid plugin\nindex")
        await runtime.ended()

    links = talk(Recorder())(conversation).links
    assert links[-1] == (Link.CLOSED, r"the runtime refused the plugin: invalid plugin\nindex (code 2)")


def test_messages_that_nobody_waits_for_are_passed_over() -> None:
    async def conversation(runtime: Runtime) -> None:
        for connection in Connection:
            for kind in (Kind.DATA, Kind.RESPONSE):
                runtime.send(connection, ttrpc.Message(99, kind, b"?"))
        await runtime.configure()

    talk(Recorder())(conversation)


def test_plugin_connects_again_after_the_runtime_has_restarted(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told()
        path = str(tmp_path / "nri.sock")
        arrived: asyncio.Queue[Runtime] = asyncio.Queue()
        serving = asyncio.create_task(serve(path, told.plugin(Recorder())))
        assert await told.until(Link.CLOSED) == f"{path}: No such file or directory"
        for _ in range(2):
            told.links.clear()
            server = await asyncio.start_unix_server(lambda *streams: arrived.put_nowait(Runtime(*streams)), path)
            runtime = await asyncio.wait_for(arrived.get(), WITHIN)
            await runtime.registration()
            await runtime.configure()
            await told.until(Link.REGISTERED)
            server.close()
            runtime.writer.close()
            assert await told.until(Link.CLOSED)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    run(check())


def test_closed_is_told_once_while_nothing_changes(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told()
        plugin = told.plugin(Recorder())
        for _ in range(3):
            plugin.tell(Link.CLOSED, f"{tmp_path}: no")
        assert told.links == [(Link.CLOSED, f"{tmp_path}: no")]

    run(check())


def test_wait_doubles_up_to_five_seconds_and_is_short_after_a_registration_that_lived() -> None:
    back_off = BackOff()
    assert [round(back_off.after(0.0), 1) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert back_off.after(1.0) == 5.0
    assert back_off.after(60.0) == 0.1
    assert back_off.after(0.0) == 0.2


def test_launched_plugin_serves_the_socket_it_was_given() -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        launch = launched({"NRI_PLUGIN_SOCKET": str(ours.detach()), "NRI_PLUGIN_NAME": "cpus", "NRI_PLUGIN_IDX": "42"})
        assert launch is not None
        running = asyncio.create_task(serve_launched(launch, Plugin(Recorder(), launch.identity)))
        runtime = Runtime(*await asyncio.open_unix_connection(sock=theirs))
        wanted = await runtime.registration()
        assert (wanted.plugin_name, wanted.plugin_idx) == ("cpus", "42")
        assert not os.get_inheritable(launch.fd)
        runtime.writer.close()
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
        with pytest.raises(ConfigError, match=f"NRI_PLUGIN_SOCKET is {reading}, which is no socket: "):
            asyncio.run(serve_launched(Launch(reading, Identity()), Plugin(Recorder())))
    finally:
        os.close(reading)


def test_launch_with_another_kind_of_socket_says_so() -> None:
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
    with pytest.raises(ConfigError, match="which is another socket than a unix stream"):
        asyncio.run(serve_launched(Launch(datagrams, Identity()), Plugin(Recorder())))


@pytest.mark.parametrize("events", [frozenset[int](), frozenset({0}), frozenset({12}), frozenset({-1, 4})])
def test_events_that_runtimes_do_not_know_are_refused(events: frozenset[int]) -> None:
    with pytest.raises(ConfigError, match="some of 1 to 11 are expected"):
        Identity(events=events)


@pytest.mark.slow
@pytest.mark.skipif(not LAB.is_dir() or os.geteuid() != 0, reason="needs root and the lab's containerd")
@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_real_containerd_registers_and_synchronizes_the_plugin(
    suite: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Socket paths are short, so not the directory that is named after this test.
    work = tmp_path_factory.mktemp("l")
    environ = {**os.environ, "LAB": str(work)}
    subprocess.run([LAB / "provision.sh", suite], env=environ, check=True, capture_output=True)
    subprocess.run([LAB / "containerd.sh", "start", suite], env=environ, check=True, capture_output=True)

    async def check() -> None:
        told = Told()
        handler = Recorder()
        handler.updates = []
        serving = asyncio.create_task(serve(str(work / "run" / suite / "nri.sock"), told.plugin(handler)))
        assert (await told.until(Link.SYNCHRONIZED)).startswith("containerd ")
        assert handler.asked == ["synchronize"]
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    try:
        run(check())
    finally:
        subprocess.run([LAB / "containerd.sh", "stop", suite], env=environ, check=True, capture_output=True)
