"""Limits on clients: how much one may send, how long it may take, and how many there may be."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator

_ADDRESSES: Final = 1024
_NETWORK: Final = 64


class Rate(NamedTuple):
    """How many requests an address may make: so many a second, and *burst* at once."""

    per_second: float
    burst: int


class HTTPLimits(NamedTuple):
    """The limits of a server. Sizes are bytes, times are seconds; `each` is the limit of one client."""

    target: int = 8 << 10
    head: int = 16 << 10
    body: int = 16 << 20
    request: float = 10.0  # from the first byte of a request to its last
    idle: float = 75.0  # until the first byte of the next request
    unread: float = 10.0  # how long a client may read nothing of an answer
    pace: int = 32 << 10  # how much of an answer a client must read per second, on average
    buffered: int = 64 << 10  # what is kept for a client that reads slowly
    linger: float = 5.0  # how long a client may go on sending after the last answer, so that it comes to read it
    dropped: int = 64 << 20  # how much it may send then
    farewell: float = 1.0  # what answers on their way get when the server closes
    heartbeat: float = 15.0  # after which silence a stream of events shows that it is alive
    connections: int = 256
    connections_each: int = 192
    streams: int = 64
    streams_each: int = 56
    held: int = 256 << 20  # the answers on their way; one that fits into `buffered` is always sent
    held_each: int = 192 << 20
    rate: Rate = Rate(math.inf, 1)


LOCAL: Final = HTTPLimits()
"""For a unix socket, over which files with many pods come in."""

REMOTE: Final = HTTPLimits(
    body=64 << 10,
    dropped=16 << 20,
    connections_each=64,
    streams_each=32,
    held=64 << 20,
    held_each=16 << 20,
    rate=Rate(200.0, 1000),
)
"""For TCP, over which clients only read."""


def client_of(address: str) -> str:
    """Return the client that an address is counted as: all addresses of one IPv6 network are one client.

    >>> client_of("10.0.0.7"), client_of("::ffff:10.0.0.7"), client_of("2001:db8::1:2:3:4")
    ('10.0.0.7', '10.0.0.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    from ipaddress import IPv6Address, IPv6Network  # noqa: PLC0415 - most clients have no such address

    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), _NETWORK), strict=False))


def fits(taken: Counter[str], client: str, count: int, most: int, each: int) -> bool:
    """Whether a client may take so much more, given what all have *taken*; the first always may.

    >>> from collections import Counter
    >>> taken = Counter({"10.0.0.7": 2, "10.0.0.8": 1})
    >>> fits(taken, "10.0.0.7", 1, most=5, each=2), fits(taken, "10.0.0.8", 1, most=5, each=2)
    (False, True)
    """
    total, mine = taken.total(), taken[client]
    return (not total or total + count <= most) and (not mine or mine + count <= each)


class Turns:
    """Makes clients wait for their turn: only a few have one at the same time, and no client has two."""

    def __init__(self, most: int) -> None:
        self._few = asyncio.Semaphore(most)
        self._mine: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each client that has a turn or waits for one."""

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        mine = self._mine.setdefault(client, asyncio.Lock())
        async with mine, self._few:
            yield


class Buckets:
    """Counts requests by address; every address may make some at once, and then as many as the rate allows."""

    def __init__(self, rate: Rate) -> None:
        self._apart = 1 / rate.per_second
        self._ahead = (rate.burst - 1) * self._apart
        self._next: dict[str, float] = {}
        """When each address, if its requests had come at the rate, would make the next one."""

    def take(self, address: str, now: float) -> float:
        """Count a request and return 0, or return the seconds to wait for the next one."""
        due = max(now, self._next.pop(address, now))
        wait = max(0.0, due - now - self._ahead)
        self._next[address] = due if wait else due + self._apart
        # The address that has been silent for longest is forgotten; one client cannot have so many.
        if len(self._next) > _ADDRESSES:
            del self._next[next(iter(self._next))]
        return wait
