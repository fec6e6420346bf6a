"""Times as people write them: 03:12, 10m ago, 2026-11-16T03:12:00Z, 1763262720."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pinfold.errors import ParseError, excerpt

_EPOCH: Final = re.compile(r"[0-9]{9,11}(\.[0-9]{1,9})?")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_AGO: Final = re.compile(r"((?:[0-9]{1,9}(?:\.[0-9]{1,3})?[smhdw] ?)+)( ?ago)?")
_PART: Final = re.compile(r"([0-9.]+)([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_ALLOWED: Final = "expected 03:12, 10m ago, 2026-11-16T03:12:00 or seconds since the epoch"


def parse_when(text: str, now: float, where: str) -> float:
    """Return the time in seconds since the epoch; a time of day means the last such time.

    >>> parse_when("10m ago", now=1_000_000.0, where="--since"), parse_when("1h30m", now=10_000.0, where="--since")
    (999400.0, 4600.0)
    """
    text = text.strip()
    if text == "now":
        return now
    if _EPOCH.fullmatch(text):
        return float(text)
    if match := _AGO.fullmatch(text):
        return now - sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(match[1]))
    if match := _CLOCK.fullmatch(text):
        return _last_at(now, int(match[1]), int(match[2]), int(match[3] or 0))
    try:
        # Without an offset it is the local time of this host.
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        raise ParseError(f"{excerpt(text)} is no time; {_ALLOWED}", where=where) from error


def show_when(time: float) -> str:
    """Return a time in this host's zone, to the second."""
    try:
        return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{time:.0f}"


def _last_at(now: float, hour: int, minute: int, second: int) -> float:
    local = datetime.fromtimestamp(now, UTC).astimezone()
    # Without its offset: whether summer time is in force may be different then.
    today = local.replace(hour=hour, minute=minute, second=second, microsecond=0, tzinfo=None)
    if today.timestamp() > now:
        today -= timedelta(days=1)
    return today.timestamp()
