"""A small gRPC server on a unix socket: unary calls only, so many clients and calls and no more.

It does not know what is asked for: a method is a function from bytes to bytes, which answers at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.serverlink import CallLimits, Connection

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    Method = Callable[[bytes], bytes]
    Report = Callable[[str, Exception], None]

__all__ = ["CallLimits", "GRPCServer"]

DEFAULT: Final = CallLimits()


def _tell_loop(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"no answer to {what}", "exception": error})


class GRPCServer:
    """Serves methods, by their full names, on any number of listening sockets."""

    def __init__(
        self, methods: Mapping[str, Method], *, limits: CallLimits = DEFAULT, report: Report = _tell_loop
    ) -> None:
        """*methods* are as in `/package.Service/Method`; *report* hears of errors nobody expected."""
        self.limits = limits
        self._methods = methods
        self._report = report
        self._listening: list[asyncio.Server] = []
        self._open: dict[Connection, None] = {}
        """Who called last comes last."""

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    async def start(self, listener: socket.socket) -> asyncio.Server:
        """Begin to serve on a listening socket."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Connection(self), sock=listener)
        self._listening.append(server)
        return server

    async def close(self) -> None:
        """Serve no more; whoever is connected is told so."""
        for server in self._listening:
            server.close()
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)  # the sockets are closed in the next round of the loop

    def answer(self, name: str, request: bytes) -> bytes:
        """Return the answer to a call, or raise a CallError that says why there is none."""
        method = self._methods.get(name)
        if method is None:
            raise CallError(name, Code.UNIMPLEMENTED, f"unknown method {name}")
        try:
            return method(request)
        except CallError:
            raise
        except Exception as error:
            # Whatever it is, the client gets an answer and the log the error.
            self._report(name, error)
            raise CallError(name, Code.INTERNAL, "an error nobody expected; it is in the log") from error

    def join(self, connection: Connection) -> bool:
        """Take a client in, whether we did; if there are too many, in place of the one that was idle for longest."""
        if len(self._open) >= self.limits.connections:
            idle = next((other for other in self._open if not other.calls), None)
            if idle is None:
                return False
            idle.close()
        self._open[connection] = None
        return True

    def use(self, connection: Connection) -> None:
        """Note that a client calls."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def leave(self, connection: Connection) -> None:
        """Forget a client."""
        self._open.pop(connection, None)
