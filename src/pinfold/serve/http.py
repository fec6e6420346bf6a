"""A small HTTP/1.1 server on asyncio: h11 speaks the protocol, this carries the bytes, with limits on everything."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

_MAX_BODY: Final = 16 << 20
_MAX_HEAD: Final = 16 << 10
_SLOWEST: Final = 10.0
_UCRED: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """Who is at the other end of a unix socket."""

    pid: int
    uid: int
    gid: int


class Request(NamedTuple):
    """What a client asks for."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    peer: Peer


class Response(NamedTuple):
    """What it gets: JSON, or a stream of lines."""

    status: int
    data: object = None
    lines: AsyncIterator[bytes] | None = None


class HTTPError(PinfoldError):
    """A request that cannot be served, with its status and a word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Server:
    """Serves one handler on a unix socket to root and to the user that it belongs to."""

    def __init__(self, handle: Callable[[Request], Awaitable[Response]], uids: frozenset[int]) -> None:
        self._handle = handle
        self._uids = uids

    async def start(self, listener: socket.socket) -> asyncio.Server:
        """Begin to serve on a listening socket."""
        return await asyncio.start_unix_server(self._serve, sock=listener, limit=_MAX_HEAD)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        try:
            peer = _peer(writer)
            if peer.uid not in self._uids:
                await _send(connection, writer, _failure(403, "Forbidden", f"user {peer.uid} may not use this socket"))
                return
            while await self._exchange(connection, reader, writer, peer):
                connection.start_next_cycle()
        except (h11.ProtocolError, ConnectionError, TimeoutError):
            pass
        finally:
            with suppress(ConnectionError):
                writer.close()

    async def _exchange(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer
    ) -> bool:
        try:
            request = await _receive(connection, reader, peer)
        except HTTPError as error:
            await _send(connection, writer, _failure(error.status, error.reason, str(error)))
            return False
        if request is None:
            return False
        try:
            response = await self._handle(request)
        except HTTPError as error:
            response = _failure(error.status, error.reason, str(error))
        except PinfoldError as error:
            response = _failure(400, type(error).__name__, str(error))
        await _send(connection, writer, response)
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _receive(connection: h11.Connection, reader: asyncio.StreamReader, peer: Peer) -> Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            wait = _SLOWEST if head is not None else None
            connection.receive_data(await asyncio.wait_for(reader.read(65536), wait))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MAX_BODY:
                raise HTTPError(413, "TooLarge", f"a request has at most {_MAX_BODY:,} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            path, _, query = head.target.decode("latin-1").partition("?")
            pairs = dict(part.split("=", 1) for part in query.split("&") if "=" in part)
            return Request(head.method.decode(), path, pairs, bytes(body), peer)
        else:
            return None


async def _send(connection: h11.Connection, writer: asyncio.StreamWriter, response: Response) -> None:
    kind = b"application/json" if response.lines is None else b"application/x-ndjson"
    headers = [(b"content-type", kind)]
    body = b""
    if response.lines is None:
        body = json.dumps(response.data).encode() + b"\n"
        headers.append((b"content-length", str(len(body)).encode()))
    else:
        headers.append((b"connection", b"close"))
    writer.write(connection.send(h11.Response(status_code=response.status, headers=headers)) or b"")
    if response.lines is None:
        writer.write(connection.send(h11.Data(data=body)) or b"")
    else:
        async for line in response.lines:
            writer.write(connection.send(h11.Data(data=line)) or b"")
            await asyncio.wait_for(writer.drain(), _SLOWEST)
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await asyncio.wait_for(writer.drain(), _SLOWEST)


def _failure(status: int, reason: str, message: str) -> Response:
    return Response(status, {"reason": reason, "message": message})


def _peer(writer: asyncio.StreamWriter) -> Peer:
    sock: socket.socket = writer.get_extra_info("socket")
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))
