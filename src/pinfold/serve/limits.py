"""How much a client may send, how long it may take, and how many may come: figures, and what counts them."""

from __future__ import annotations

from typing import Final, NamedTuple

_ADDRESSES: Final = 1024


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
    streams: int = 64
    rate: Rate | None = None


LOCAL: Final = Limits()
"""For a unix socket, where whole files of pods come in."""

REMOTE: Final = Limits(body=64 << 10, dropped=16 << 20, rate=Rate(200.0, 1000))
"""For TCP, where nothing is sent but questions."""


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
