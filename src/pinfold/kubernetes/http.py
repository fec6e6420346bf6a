"""An HTTP client for the kubelet and the API server: one connection for each request, bounded in time and size.

h11 knows the protocol; asyncio carries it, through TLS where a Trust is given.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from pinfold.errors import PinfoldError, RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pinfold.kubernetes.tls import Pipe, Trust

MAX_BODY: Final = 16 << 20
MAX_LINE: Final = 4 << 20
"""More than the largest object that etcd stores."""
TIMEOUT: Final = 5.0
_MAX_HEAD: Final = 64 << 10
_PIECE: Final = 64 << 10
_OK: Final = range(200, 300)
_MOST_TOLD: Final = 300


class Server(NamedTuple):
    """Where a server listens, and how its clients know it and show who they are."""

    host: str
    port: int
    trust: Trust | None = None
    """None: plain HTTP."""
    token: Callable[[], str] | None = None
    """Read anew for each request: tokens are replaced while we run."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.trust is None else 'https'}://{host}:{self.port}"


class Body(NamedTuple):
    """What a request carries."""

    kind: str
    """Its Content-Type."""
    data: bytes


class HTTPStatusError(PinfoldError):
    """An answer with a status that is not a success; the message has what the server says about it."""

    def __init__(self, where: str, status: int, body: bytes) -> None:
        said = _message(body)
        super().__init__(f"{where}: HTTP status {status}{f': {said}' if said else ''}")
        self.status = status


class HTTPClient:
    """Sends requests to one server."""

    def __init__(self, server: Server, *, timeout: float = TIMEOUT) -> None:
        """*timeout*: seconds for an answer, from connecting to its last byte; for a stream, to its head."""
        self.server = server
        self._timeout = timeout

    async def send(self, method: str, target: str, body: Body | None = None) -> bytes:
        """Return the body of the answer; raise HTTPStatusError for an error of the server."""
        async with self._within(self._timeout), self._open(method, target, body) as answer:
            return await answer.rest(MAX_BODY)

    @asynccontextmanager
    async def lines(self, target: str, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of an answer as they come, while the block lasts; the stream ends after so much *silence*."""
        async with self._within(self._timeout) as limit, self._open("GET", target, None) as answer:
            limit.reschedule(None)
            yield self._lines(answer, silence)

    async def _lines(self, answer: _Answer, silence: float) -> AsyncIterator[bytes]:
        begun = bytearray()
        while True:
            async with self._within(silence):
                piece = await answer.piece()
            if not piece:
                return
            begun += piece
            *whole, rest = begun.split(b"\n")
            begun = bytearray(rest)
            if len(begun) > MAX_LINE:
                raise RuntimeUnavailable(f"{self.server}: a line of more than {MAX_LINE:,} bytes")
            for line in whole:
                yield bytes(line)

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(seconds) as limit:
                yield limit
        except TimeoutError:
            raise RuntimeUnavailable(f"{self.server}: no answer in {seconds:g} s") from None

    @asynccontextmanager
    async def _open(self, method: str, target: str, body: Body | None) -> AsyncIterator[_Answer]:
        """Send a request, and yield its answer once the head has come."""
        try:
            pipe = await _connect(self.server)
            try:
                answer = _Answer(pipe, f"{self.server}{target.partition('?')[0]}")
                await answer.ask(method, target, self._headers(body), body)
                yield answer
            finally:
                pipe.close()
        except TimeoutError:
            raise
        except (OSError, h11.ProtocolError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise RuntimeUnavailable(f"{self.server}: {_bare(said)}") from error

    def _headers(self, body: Body | None) -> list[tuple[str, str]]:
        server = self.server
        headers = [("Host", str(server).partition("://")[2]), ("User-Agent", "pinfold"), ("Connection", "close")]
        headers.append(("Accept", "application/json"))
        if server.token is not None:
            headers.append(("Authorization", f"Bearer {server.token()}"))
        if body is not None:
            headers += [("Content-Type", body.kind), ("Content-Length", str(len(body.data)))]
        return headers


class _Answer:
    """One request and its answer on a connection."""

    def __init__(self, pipe: Pipe, where: str) -> None:
        self._pipe = pipe
        self._where = where
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)

    async def ask(self, method: str, target: str, headers: list[tuple[str, str]], body: Body | None) -> None:
        """Send the request and wait for the head of the answer; raise HTTPStatusError if it says no."""
        send = self._wire.send
        data = send(h11.Request(method=method, target=target, headers=headers)) or b""
        if body is not None:
            data += send(h11.Data(data=body.data)) or b""
        await self._pipe.write(data + (send(h11.EndOfMessage()) or b""))
        head = await self._next()
        while not isinstance(head, h11.Response):
            head = await self._next()
        if head.status_code not in _OK:
            raise HTTPStatusError(self._where, head.status_code, await self.rest(_PIECE))

    async def rest(self, limit: int) -> bytes:
        """Return all that is left of the body."""
        found = bytearray()
        while piece := await self.piece():
            found += piece
            if len(found) > limit:
                raise RuntimeUnavailable(f"{self._where}: more than {limit:,} bytes")
        return bytes(found)

    async def piece(self) -> bytes:
        """Return the next piece of the body; empty at its end."""
        while True:
            event = await self._next()
            if not isinstance(event, h11.Data):
                return b""
            if event.data:
                return bytes(event.data)

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            data = await self._pipe.read()
            if not data and self._wire.their_state is h11.SEND_RESPONSE:
                raise RuntimeUnavailable(f"{self._where}: the server ended the connection")
            self._wire.receive_data(data)
        return event  # type: ignore[return-value]  # NEED_DATA has just been excluded


class _Plain:
    """A connection without TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(_PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.transport.abort()


async def _connect(server: Server) -> Pipe:
    plain = _Plain(*await asyncio.open_connection(server.host, server.port))
    if server.trust is None:
        return plain
    try:
        return await server.trust.secure(plain)
    except BaseException:
        plain.close()
        raise


def _message(body: bytes) -> str:
    """Return what a server says about an error: the API server in a Status object, the kubelet as plain text."""
    try:
        said = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = body.decode(errors="replace")
    return _bare(" ".join(said.split()))


def _bare(text: str) -> str:
    shown = text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}…"
    return "".join(c if c.isprintable() else " " for c in shown)
