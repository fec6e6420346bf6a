"""Many clients of a daemon in one process: streams of events, and a scraper that comes at a steady pace.

They share two CPUs with the daemon that they watch, so they do as little as they can: what comes is kept with its
time, and looked into when all is over.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

LAST: Final = "the-last"
"""The pod whose end is the end of the streams."""
WITHIN: Final = 120.0

_ASK: Final = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PIECE: Final = 1 << 18
_LONGEST: Final = 1024
_END: Final = re.compile(rb'"what": "released"[^\n]*"the-last"')
_LENGTH: Final = re.compile(rb"content-length: (\d+)\r\n", re.IGNORECASE)


class Load(NamedTuple):
    """Who is to come."""

    watchers: int
    scrapes: int
    rate: float
    """Scrapes a second, as far as they are answered."""


class Seen(NamedTuple):
    """What they saw; times in seconds."""

    scrapes: list[float]
    """How long each took."""
    numbers: list[list[int]]
    """Of the events, for each stream."""
    delays: list[float]
    """From the time of each event to its being there."""


class Stream:
    """A client of the event stream."""

    def __init__(self, host: str, port: int, source: str) -> None:
        self.socket = socket.create_connection((host, port), WITHIN, (source, 0))
        self.socket.sendall(_ASK % b"/events")
        self._pieces: list[tuple[float, bytes]] = []
        self._tail = b""
        while b"event: hello" not in self._tail:
            self.read()

    def read(self) -> bool:
        """Take what has come; return whether that was all."""
        data = self.socket.recv(_PIECE)
        if not data:
            sys.exit("a stream was cut off")
        self._pieces.append((time.time(), data))
        self._tail = self._tail[-_LONGEST:] + data
        return _END.search(self._tail) is not None

    def events(self) -> Iterator[tuple[int, float]]:
        """Yield the number and the delay of each event."""
        rest = b""
        for came, data in self._pieces:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {") and line != b"data: {}":
                    event = json.loads(line[6:])
                    yield event["number"], came - event["time"]


class _Scraper:
    """A client that requests /metrics again and again."""

    def __init__(self, host: str, port: int, load: Load) -> None:
        self.socket = socket.create_connection((host, port), WITHIN)
        self._load = load
        self._begun = time.perf_counter()
        self._asked = 0.0
        """When; 0 if nothing is asked for."""
        self._answer = b""
        self.took: list[float] = []

    @property
    def done(self) -> bool:
        return len(self.took) >= self._load.scrapes

    @property
    def per_s(self) -> float:
        return len(self.took) / (time.perf_counter() - self._begun)

    def ask(self) -> float:
        """Ask if it is time to; return how long there is nothing to do."""
        if self._asked or self.done:
            return WITHIN
        early = self._begun + len(self.took) / self._load.rate - time.perf_counter()
        if early > 0:
            return early
        self._asked = time.perf_counter()
        self.socket.sendall(_ASK % b"/metrics")
        return WITHIN

    def read(self) -> bool:
        """Take what has come; return whether that was all."""
        self._answer += self.socket.recv(_PIECE)
        head, _, body = self._answer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            sys.exit(f"a scrape failed: {head!r}")
        if len(body) == int(length[1]):
            self.took.append(time.perf_counter() - self._asked)
            self._asked, self._answer = 0.0, b""
        return self.done


def watch(told: Connection, host: str, port: int, load: Load) -> None:
    """Say when all streams are there, at the end of the scrapes how many a second, and of the streams what was seen."""
    # An address may have 32.
    streams = [Stream(host, port, f"127.0.0.{1 + number // 32}") for number in range(load.watchers)]
    scraper = _Scraper(host, port, load)
    told.send("ready")
    with selectors.DefaultSelector() as selector:
        clients: list[Stream | _Scraper] = [*streams, scraper]
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        while selector.get_map():
            for key, _ in selector.select(scraper.ask()):
                if key.data.read():
                    selector.unregister(key.fileobj)
                    if key.data is scraper:
                        told.send(scraper.per_s)
    seen = [list(stream.events()) for stream in streams]
    numbers = [[number for number, _ in events] for events in seen]
    told.send(Seen(scraper.took, numbers, [delay for events in seen for _, delay in events]))
