"""PluginPeer: the runtime's end of one plugin's NRI connection, in the bytes that containerd speaks.

Sends requests to the plugin, receives its answers and its registration, and drops a plugin that does not answer in
time or sends frames that containerd does not take. `nri` decides which requests are sent and uses the answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.errors import PinfoldError
from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import LONGEST_TO_RUNTIME, Connection, MuxError
from pinfold.formats.wire.ttrpc import MessageKind
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.nri.requests import SERVICE, parse

if TYPE_CHECKING:
    from google.protobuf.message import Message

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")

RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
_CHUNK: Final = 1 << 16
_UNIMPLEMENTED: Final = 12
_NANO: Final = 1_000_000_000


class PluginError(PinfoldError):
    """An answer of a plugin that makes a call of the runtime fail, mostly an error; *code* is gRPC's."""

    def __init__(self, method: str, code: int, text: str) -> None:
        super().__init__(f"{method}: {text} (code {code})")
        self.method = method
        self.code = code
        self.text = text


class PluginGone(PinfoldError):  # noqa: N818 - the fact
    """A plugin whose connection has ended, also because it did not answer in time."""


class PluginPeer:
    """One connection; `run` receives until it ends, and `why` then says why it did."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._messages = nrimux.Messages()
        self._answers: dict[int, asyncio.Future[envelope.Response]] = {}
        self._registration: asyncio.Future[nri.RegisterPluginRequest] = asyncio.get_running_loop().create_future()
        self._registered_on = 0
        self._stream = -1
        self._over = asyncio.Event()
        self.why = ""

    async def run(self) -> None:
        """Receive until either side ends the connection."""
        try:
            while data := await self._reader.read(_CHUNK):
                for connection, message in self._messages.feed(data):
                    self._check_frames()
                    self._receive(connection, message)
            self.close("the plugin hung up")
        except (PinfoldError, OSError) as error:
            self.close(str(error) or type(error).__name__)
        finally:
            self.close("the runtime stopped receiving")
            with suppress(OSError):
                await self._writer.wait_closed()
            self._over.set()

    async def ended(self, within: float) -> str:
        """Wait until the connection has ended, for *within* seconds at most, and return why it did."""
        async with asyncio.timeout(within):
            await self._over.wait()
        return self.why

    def close(self, why: str) -> None:
        """End the connection, once; every call that waits for an answer raises PluginGone."""
        self.why = self.why or why
        self._writer.close()
        self._registration.cancel()
        for answer in self._answers.values():
            answer.cancel()

    async def registration(self, within: float) -> nri.RegisterPluginRequest:
        """Return what the plugin registers as; a plugin that is silent for *within* seconds is dropped."""
        return await self._wait(self._registration, within, "registration")

    def answer_registration(self, code: int = 0, text: str = "") -> None:
        """Accept the plugin, or refuse it with an error."""
        self._respond(self._registered_on, envelope.Status(code=code, message=text))

    async def ask(self, method: str, message: Message, kind: type[_M], *, within: float) -> _M:
        """Return the plugin's answer; raise PluginError if it is an error, PluginGone if there is none in time."""
        answer = await self.response(self.request(method, message, within=within), within)
        if answer.status.code:
            raise PluginError(method, answer.status.code, answer.status.message)
        return parse(kind, answer.payload)

    def request(self, method: str, message: Message, *, service: str = SERVICE, within: float = 0.0) -> int:
        """Send a request, and return its stream; *within* is the limit that the plugin is told."""
        body = envelope.Request(
            service=service, method=method, payload=message.SerializeToString(), timeout_nano=int(within * _NANO)
        )
        return self.call(body.SerializeToString())

    def call(self, body: bytes) -> int:
        """Send the bytes of a request, and return its stream."""
        self._stream += 2  # a client's streams are odd
        self._answers[self._stream] = asyncio.get_running_loop().create_future()
        self.send(Connection.PLUGIN, ttrpc.Message(self._stream, MessageKind.REQUEST, body))
        return self._stream

    async def response(self, stream: int, within: float) -> envelope.Response:
        """Return the answer to a request; a plugin that gives none within *within* seconds is dropped."""
        try:
            return await self._wait(self._answers[stream], within, "answer")
        finally:
            del self._answers[stream]

    def send(self, connection: Connection, message: ttrpc.Message) -> None:
        """Send a message in one frame, however long it is."""
        self.write(nrimux.format_frames(connection, ttrpc.format_message(message), ttrpc.MOST_MESSAGE))

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def _wait(self, future: asyncio.Future[_T], within: float, what: str) -> _T:
        await asyncio.wait({future}, timeout=0 if self.why else within)
        if not future.done():
            self.close(f"no {what} within {within:g} s")
        if future.cancelled():
            raise PluginGone(self.why)
        return future.result()

    def _check_frames(self) -> None:
        if self._messages.longest > LONGEST_TO_RUNTIME:
            raise MuxError(f"an NRI frame of {self._messages.longest:,} bytes; at most {LONGEST_TO_RUNTIME:,} are read")

    def _receive(self, connection: Connection, message: ttrpc.Message) -> None:
        match connection, message.kind:
            case Connection.PLUGIN, MessageKind.RESPONSE if waiting := self._answers.get(message.stream):
                if not waiting.done():
                    waiting.set_result(parse(envelope.Response, message.body))
            case Connection.RUNTIME, MessageKind.REQUEST:
                self._serve(message.stream, parse(envelope.Request, message.body))

    def _serve(self, stream: int, request: envelope.Request) -> None:
        registers = (request.service, request.method) == (RUNTIME_SERVICE, "RegisterPlugin")
        if not registers or self._registration.done():
            self._respond(stream, envelope.Status(code=_UNIMPLEMENTED, message=f"no method {request.method}"))
            return
        self._registered_on = stream
        self._registration.set_result(parse(nri.RegisterPluginRequest, request.payload))

    def _respond(self, stream: int, status: envelope.Status) -> None:
        body = envelope.Response(status=status)
        self.send(Connection.RUNTIME, ttrpc.Message(stream, MessageKind.RESPONSE, body.SerializeToString()))
