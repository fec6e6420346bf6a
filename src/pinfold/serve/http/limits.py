"""How much a client may send, how long it may take, and how many may come: figures, and what counts them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_ADDRESSES: Final = 1024
_NETWORK: Final = 64


class Rate(NamedTuple):
    """How many requests an address may make: so many a second, and *burst* at once."""

    per_second: float
    burst: int


class Limits(NamedTuple):
    """What a server puts up with. Sizes are bytes, times are seconds."""

    target: int = 8 << 10
    head: int = 16 << 10
    body: int = 16 << 20
    request: float = 10.0
    """From the first byte of a request to its last."""
    idle: float = 75.0
    """Until the first byte of the next request."""
    unread: float = 10.0
    """How long a client may read nothing of what it asked for."""
    pace: int = 32 << 10
    """How much of an answer it has to read a second, all in all."""
    buffered: int = 64 << 10
    """What is kept for a client that reads slowly."""
    linger: float = 5.0
    """How long a client may go on sending after the last answer, so that it comes to read it."""
    dropped: int = 64 << 20
    """How much it may send then."""
    farewell: float = 1.0
    """What answers on their way get when the server closes."""
    heartbeat: float = 15.0
    """After what silence a stream of events shows that it is alive."""
    connections: int = 256
    connections_each: int = 256
    """How many of them one client may have."""
    streams: int = 64
    streams_each: int = 64
    held: int = 256 << 20
    """How much there may be of answers that are on their way; what fits into `buffered` is not counted."""
    held_each: int = 256 << 20
    rate: Rate | None = None


LOCAL: Final = Limits()
"""For a unix socket, where whole files of pods come in."""

REMOTE: Final = Limits(
    body=64 << 10,
    dropped=16 << 20,
    connections_each=64,
    streams_each=32,
    held=64 << 20,
    held_each=16 << 20,
    rate=Rate(200.0, 1000),
)
"""For TCP, where nothing is sent but questions."""


def client_of(address: str) -> str:
    """Return as whom an address is counted: who has one of IPv6 has all of its network.

    >>> client_of("10.0.0.7"), client_of("::ffff:10.0.0.7"), client_of("2001:db8::1:2:3:4")
    ('10.0.0.7', '10.0.0.7', '2001:db8::/64')
    """
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), _NETWORK), strict=False))


class Shares:
    """Counts what clients have of something: not more than there is, and none of them all of it."""

    def __init__(self, most: int, each: int) -> None:
        self._most = most
        self._each = each
        self._taken: dict[str, int] = {}
        self.total = 0

    def take(self, client: str, count: int = 1) -> bool:
        """Whether a client may have so much more; it has it then. The first to take may take any amount."""
        mine = self._taken.get(client, 0)
        if (self.total and self.total + count > self._most) or (mine and mine + count > self._each):
            return False
        self._taken[client] = mine + count
        self.total += count
        return True

    def give(self, client: str, count: int = 1) -> None:
        """Take back what a client has taken."""
        self.total -= count
        self._taken[client] -= count
        if not self._taken[client]:
            del self._taken[client]


class Turns:
    """Has clients wait until it is their turn: few have one at once, and none has two."""

    def __init__(self, most: int) -> None:
        self._few = asyncio.Semaphore(most)
        self._mine: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One for each client that has a turn or waits for one."""

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        mine = self._mine.setdefault(client, asyncio.Lock())
        async with mine, self._few:
            yield


class Buckets:
    """Counts requests by address: every address has a bucket of tokens that fills again by and by."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, address: str, now: float) -> float:
        """Take a token and return 0, or how many seconds it takes until there is one."""
        level, since = self._levels.pop(address, (float(self._rate.burst), now))
        level = min(float(self._rate.burst), level + (now - since) * self._rate.per_second)
        missing = max(0.0, 1 - level)
        self._levels[address] = (level if missing else level - 1, now)
        # Whoever was here last stays; so many addresses at once are no longer one client's doing.
        if len(self._levels) > _ADDRESSES:
            del self._levels[next(iter(self._levels))]
        return missing / self._rate.per_second
