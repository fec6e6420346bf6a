"""Reads addresses, numbers and durations that users write in flags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError, excerpt
from pinfold.formats.kubelet.flags import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

_FORM: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]*)):([0-9]{1,5})")
_PREFIX: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*|")
_HOST: Final = re.compile(r"\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MOST_PORT: Final = 65_535
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_LONGEST_LIST: Final = 1 << 16


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host in _LOOPBACK:
            return True
        from ipaddress import ip_address  # noqa: PLC0415 - most daemons listen where it is plain

        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def name(self) -> str:
        """The host as HTTP clients write it in the Host header.

        >>> Address("::1", 9440).name, Address("Node-7", 9440).name
        ('[::1]', 'node-7')
        """
        return f"[{self.host}]" if ":" in self.host else self.host.lower()

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_ADDRESS: Final = Address("127.0.0.1", 9440)


def parse_address(text: str) -> Address | None:
    """Return the address that HOST:PORT names; None for "none".

    >>> print(parse_address("[::1]:0"), parse_address(":9440"), parse_address("none"))
    [::1]:0 0.0.0.0:9440 None
    """
    if text == "none":
        return None
    found = _FORM.fullmatch(text)
    if found is None or int(found[3]) > _MOST_PORT:
        raise ParseError(
            f"{excerpt(text)} is not an address; allowed: HOST:PORT such as 127.0.0.1:9440, [::1]:0, or none"
        )
    return Address(found[1] or found[2] or "0.0.0.0", int(found[3]))  # noqa: S104 - refused without --allow-remote-read


def parse_hosts(text: str) -> frozenset[str]:
    """Return the names of hosts in a list, in lower case.

    >>> sorted(parse_hosts("node-7.example,PINFOLD.monitoring.svc"))
    ['node-7.example', 'pinfold.monitoring.svc']
    """
    if len(text) > _LONGEST_LIST:
        raise ParseError(f"a list of {len(text):,} characters; {_LONGEST_LIST:,} are allowed")
    names = text.lower().split(",")
    for name in names:
        if not _HOST.fullmatch(name):
            said = "is not a host name; expected one such as node-7.example, without a port"
            raise ParseError(f"{excerpt(name)} {said}")
    return frozenset(names)


def parse_prefix(text: str) -> str:
    """Return the prefix of metric names; may be empty."""
    if not _PREFIX.fullmatch(text):
        raise ParseError(f'{excerpt(text)} cannot start a metric name; allowed: letters, digits, "_" and ":"')
    return text


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser for a whole number in a range."""

    def parse(text: str) -> int:
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise ParseError(f"{excerpt(text)} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def duration_within(most: int) -> Callable[[str], float]:
    """Return a parser for a duration of at most so many seconds."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not 0 <= seconds <= most:
            raise ParseError(f"{excerpt(text)} is not within 0s and {most}s")
        return seconds

    return parse
