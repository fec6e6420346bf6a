"""The bytes of one connection, both ways: every wait has an end, and both buffers have a size.

It knows nothing of HTTP. asyncio's own streams cost a request twice as much: they need a timeout of its own for every
wait, and another object for each direction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE: Final = 64 << 10
"""At most so much is read at once; and with more than this not read, no more is received."""


class Carrier(asyncio.Protocol):
    """A connection that was accepted; one task at a time reads from it."""

    transport: asyncio.Transport

    def __init__(self, connected: Callable[[Carrier], None]) -> None:
        self.ended = False
        """Whether the client has sent all that it will send, or has gone."""
        self.received = b""
        """What has come and is not read yet."""
        self._connected = connected
        self._error: Exception | None = None
        self._paused = False
        self._wake: asyncio.Future[bool] | None = None
        """Gets True if there is something to read, False if the time is over."""
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: asyncio.Event | None = None
        """Is there while too much is not sent, and set when that is over."""

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)  # of a socket it always is one
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        """Keep what has come until it is read."""
        self.received = self.received + data if self.received else data
        if len(self.received) > _PIECE and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._rouse(more=True)

    def eof_received(self) -> bool:
        """Return that we go on: a client that has sent all still reads."""
        self.ended = True
        self._rouse(more=True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        self.ended, self._error = True, exc
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._rouse(more=True)

    def pause_writing(self) -> None:
        """Make writers wait."""
        self._unsent = asyncio.Event()

    def resume_writing(self) -> None:
        """Let writers go on."""
        if self._unsent is not None:
            self._unsent.set()
            self._unsent = None

    # -- reading

    async def read(self, until: float) -> bytes:
        """Return what has come, empty after the end; wait for it *until* a time of the loop, or raise TimeoutError."""
        if not self.received and not self.ended and not await self._more(until):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        received, self.received = self.received[:_PIECE], self.received[_PIECE:]
        if self._paused and len(self.received) <= _PIECE:
            self._paused = False
            self.transport.resume_reading()
        return received

    async def _more(self, until: float) -> bool:
        loop = asyncio.get_running_loop()
        self._until, self._wake = until, loop.create_future()
        # A timer that is due earlier stays: most waits are over before, and a timer for each would cost more.
        if self._timer is None or self._timer.when() > until:
            self._set_timer(loop)
        try:
            # A client that never stops sending has no more time than others.
            return await self._wake and loop.time() < until
        finally:
            self._wake = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            self._rouse(more=False)
        elif self._wake is not None:
            self._set_timer(loop)

    def _rouse(self, *, more: bool) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(more)

    # -- writing

    async def write(self, data: bytes, within: float) -> None:
        """Send, and wait until the client has read enough of it; raise OSError if it does not in so many seconds."""
        self.transport.write(data)
        if self.transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if self._unsent is not None:
            await self._drain(within)

    async def flush(self, within: float) -> None:
        """Wait until all is sent; raise OSError if that takes more seconds."""
        self.transport.set_write_buffer_limits(high=0)
        await self._drain(within)

    async def _drain(self, within: float) -> None:
        if self._unsent is not None:
            async with asyncio.timeout(within):
                await self._unsent.wait()
        if self.transport.is_closing():
            raise ConnectionResetError("the client has gone")
