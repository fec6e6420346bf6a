"""The table of cache classes as users write it: `NAME=L3:MASK/MB:PERCENT,...`, of a row either part alone or both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.core.caching import CacheClass
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping

_WAYS: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_PERCENT: Final = re.compile(r"[0-9]{1,3}")


def parse_cache_classes(rows: Mapping[str, str]) -> dict[str, CacheClass]:
    """Return the cache classes by name."""
    return {name: parse_cache_class(text) for name, text in rows.items()}


def parse_cache_class(text: str) -> CacheClass:
    """Return a cache class.

    >>> parse_cache_class("L3:ff0/MB:50"), parse_cache_class("MB:20")
    (CacheClass(ways=4080, bandwidth=50), CacheClass(ways=None, bandwidth=20))
    >>> parse_cache_class("L3=ff0")
    Traceback (most recent call last):
    pinfold.errors.ParseError: "L3=ff0" is not of the form L3:MASK/MB:PERCENT, such as L3:ff0/MB:50
    """
    parts = [part.partition(":")[::2] for part in text.split("/", 2)]
    match parts:
        case [("L3", ways)] if _WAYS.fullmatch(ways):
            return CacheClass(int(ways, 16))
        case [("MB", percent)] if _PERCENT.fullmatch(percent):
            return CacheClass(None, int(percent))
        case [("L3", ways), ("MB", percent)] if _WAYS.fullmatch(ways) and _PERCENT.fullmatch(percent):
            return CacheClass(int(ways, 16), int(percent))
    raise ParseError(f"{excerpt(text)} is not of the form L3:MASK/MB:PERCENT, such as L3:ff0/MB:50")
