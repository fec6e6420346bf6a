"""Clients of what a daemon shows over TCP: of its answers, and of its stream of events."""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing
from copy import copy
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote

from tests.e2e.daemon import PATIENCE, Daemon

if TYPE_CHECKING:
    from collections.abc import Callable

Data = dict[str, Any]  # Any: JSON of the daemon

MACHINE: Final = "epyc-7303-2s"
LIVE: Final = 1.0
"""Seconds within which a change is to be seen."""
_SIMULATED: Final = ("--runtime", "simulated", "--preset", MACHINE)
_PAGE: Final = re.compile(r"page http://(\S+):(\d+)/")


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:  # noqa: ANN401 - JSON of the daemon
        return json.loads(self.body)


class Event(NamedTuple):
    """One event of a stream."""

    id: str
    name: str
    data: Data


class Web:
    """A client of what a daemon shows over TCP."""

    def __init__(self, daemon: Daemon) -> None:
        found = _PAGE.search(daemon.ready)
        assert found is not None, daemon.ready
        self.host, self.port = found[1], int(found[2])
        self.source = ""

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        with closing(self.http()) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def get(self, what: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        answer = self.ask(f"/api/v1/{what}")
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json"
        return answer.data

    def explain(self, who: str) -> Any:  # noqa: ANN401 - JSON of the daemon
        return self.get(f"explain?container={quote(who, safe='')}")

    def entries(self, **query: str) -> list[Data]:
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        entries: list[Data] = self.get(f"history?{asked}")["entries"]
        return entries

    def of(self, source: str) -> Self:
        """Return a client that asks from another address of this host."""
        other = copy(self)
        other.source = source
        return other

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), PATIENCE, self._source)

    def http(self) -> HTTPConnection:
        return HTTPConnection(self.host, self.port, PATIENCE, self._source)

    @property
    def _source(self) -> tuple[str, int] | None:
        return (self.source, 0) if self.source else None


class Stream:
    """A client that watches what happens."""

    def __init__(self, web: Web, after: str | None = None) -> None:
        self._connection = web.http()
        self._connection.request("GET", "/events", headers={} if after is None else {"Last-Event-ID": after})
        self.answer: HTTPResponse = self._connection.getresponse()
        assert self.answer.status == 200
        assert self.block() == {"event": "hello", "retry": "1000", "data": "{}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._connection.close()

    def block(self) -> dict[str, str]:
        """Return the fields of what comes next; a comment, which says that the server is there, has none."""
        lines = list(iter(lambda: self.answer.readline().decode().rstrip("\n"), ""))
        assert lines, "the stream has ended"
        return dict(line.split(": ", 1) for line in lines if not line.startswith(":"))

    def next(self) -> Event:
        """Return the next event."""
        fields = self.block() or self.block()
        return Event(fields["id"], fields["event"], json.loads(fields["data"]))

    def until(self, last: Callable[[Event], bool]) -> list[Event]:
        """Return the events up to one."""
        found = [self.next()]
        while not last(found[-1]):
            found.append(self.next())
        return found


def is_about(what: str, name: str) -> Callable[[Event], bool]:
    return lambda event: (event.data["what"], event.data.get("pod")) == (what, name)


def simulated(*options: str) -> Daemon:
    """Return a daemon for a simulated machine; what it starts does not run."""
    daemon = Daemon(*_SIMULATED, *options, kind="affinity")
    daemon.groups = []
    return daemon
