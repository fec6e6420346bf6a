"""gRPC calls over one unix socket, with deadlines; the connection is made when it is needed, and again after a loss.

Any number of calls run on it at once. Knows no protobuf: requests and answers are bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from pinfold.errors import RuntimeUnavailable
from pinfold.grpc.clientlink import Connection, short_name
from pinfold.grpc.errors import CallError, Code, Lost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE: Final = 5.0
MAX_MESSAGE: Final = 16 << 20


class Channel:
    """Calls to whoever serves on a unix socket."""

    def __init__(self, path: str, *, deadline: float = DEADLINE, max_message: int = MAX_MESSAGE) -> None:
        self.path = path
        self.deadline = deadline
        self._max_message = max_message
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def call(self, method: str, request: bytes, *, deadline: float | None = None) -> bytes:
        """Return the answer to a request; *method* is `/package.Service/Method`."""
        seconds = self.deadline if deadline is None else deadline
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._ask(method, request, seconds)
                except Lost:
                    # The other end may have restarted while nobody called; a second time it is really gone.
                    return await self._ask(method, request, seconds)
        except TimeoutError as error:
            raise RuntimeUnavailable(f"{self.path}: {short_name(method)} had no answer in {seconds:g} s") from error

    @asynccontextmanager
    async def stream(self, method: str, request: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask for a stream, whose messages come for as long as the block lasts; they wait until they are read."""
        try:
            async with asyncio.timeout(self.deadline):
                connection = await self._connected()
                call = await connection.start(method, request, None)
        except TimeoutError as error:
            raise RuntimeUnavailable(f"{self.path}: no connection in {self.deadline:g} s") from error
        try:
            yield call.messages()
        finally:
            connection.end(call)

    def close(self) -> None:
        """End the connection and every call on it."""
        if self._connection is not None:
            self._connection.lose("closed by us", RuntimeUnavailable)

    async def _ask(self, method: str, request: bytes, seconds: float) -> bytes:
        connection = await self._connected()
        call = await connection.start(method, request, seconds)
        answer = None
        try:
            async for message in call.messages():
                if answer is not None:
                    raise CallError(call.method, Code.INTERNAL, "more than one answer")
                answer = message
        finally:
            connection.end(call)
        if answer is None:
            raise CallError(call.method, Code.INTERNAL, "no answer, and no error either")
        return answer

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.usable:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(
                lambda: Connection(self.path, self._max_message), self.path
            )
        except (OSError, ValueError) as error:  # ValueError: a path with NUL
            raise RuntimeUnavailable(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error
        return connection
