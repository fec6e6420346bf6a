"""Stands between a plugin and a runtime's NRI socket: passes every byte on, and notes what was asked and when."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection
from pinfold.formats.wire.ttrpc import MessageKind
from pinfold.proto import ttrpc_pb2 as envelope

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 16


class Answered(NamedTuple):
    """A request of the runtime that the plugin has answered."""

    method: str
    seconds: float
    code: int


class Relay:
    """Listens at *path* for plugins of the runtime at *runtime*."""

    def __init__(self, path: Path, runtime: Path) -> None:
        self._path = path
        self._runtime = runtime
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._asked: dict[tuple[int, int], tuple[str, float]] = {}
        self.answered: list[Answered] = []
        self.called: list[str] = []
        """The methods that plugins have called by themselves."""
        self.longest = 0
        """The most bytes in one frame towards the runtime."""

    def __enter__(self) -> Self:
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def times(self, method: str) -> list[float]:
        """Return how many seconds each answer took, in the order of the answers."""
        return [found.seconds for found in self.answered if found.method == method]

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]  # a function
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                plugin, _ = self._listener.accept()
                runtime = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._open += [plugin, runtime]
                if runtime.connect_ex(str(self._runtime)):  # it is not there just now
                    plugin.close()
                    continue
                number = len(self._open)
                self._run(self._pump_answers, plugin, runtime, number)
                self._run(self._pump_requests, runtime, plugin, number)

    def _pump_requests(self, runtime: socket.socket, plugin: socket.socket, number: int) -> None:
        noted = nrimux.Messages()
        with suppress(OSError):
            while data := runtime.recv(_CHUNK):
                now = time.perf_counter()
                for connection, message in noted.feed(data):
                    if (connection, message.kind) == (Connection.PLUGIN, MessageKind.REQUEST):
                        self._asked[number, message.stream] = (_method(message), now)
                plugin.sendall(data)
        with suppress(OSError):
            plugin.shutdown(socket.SHUT_WR)

    def _pump_answers(self, plugin: socket.socket, runtime: socket.socket, number: int) -> None:
        noted = nrimux.Messages()
        with suppress(OSError):
            while data := plugin.recv(_CHUNK):
                now = time.perf_counter()
                runtime.sendall(data)
                for connection, message in noted.feed(data):
                    if connection is Connection.RUNTIME:
                        self.called.append(_method(message))
                    else:
                        method, asked = self._asked.pop((number, message.stream))
                        code = envelope.Response.FromString(message.body).status.code
                        self.answered.append(Answered(method, now - asked, code))
                self.longest = max(self.longest, noted.longest)
        with suppress(OSError):
            runtime.shutdown(socket.SHUT_WR)


def _method(message: ttrpc.Message) -> str:
    return str(envelope.Request.FromString(message.body).method)
