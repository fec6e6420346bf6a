r"""Entries as lines of the journal's files: a checksum, then one JSON object.

    b3e6817f {"number":7,"time":1763248320.25,"what":"released","pod":"web","container":"app"}

Any prefix of a file gives exactly its complete lines: a line counts only with its line break, and JSON has none
inside. A damaged line is skipped, and reading continues at the next line break.

Whole States are written now and then, and in between only the containers that moved: with many containers that is a
hundredth of a State. A file that follows another begins with the State so far (a *base*), so each file can be read
alone. Readers get whole States. After a missing line the State is unknown until the next whole one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from pinfold.core.events.entries import STATE, Entry, entry_of
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LONGEST: Final = 1 << 20
"""The most bytes of a line."""
_SUM: Final = 8
_HEAD: Final = _SUM + 1
_WHOLE_EVERY: Final = 100
_MOVED: Final = "moved"
_AFTER: Final = "after"
_BASE: Final = "base"
_EXCLUSIVE: Final = "exclusive"


class UnusableEntry(ParseError):  # noqa: N818 - the fact
    """An entry that cannot be written."""


def format_record(data: Mapping[str, object]) -> bytes:
    r"""Return the line for JSON-ready data.

    >>> format_record({"number": 1})
    b'c225affa {"number":1}\n'
    """
    try:
        text = _encode(data).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableEntry(f"not fit for JSON: {error}") from error
    if len(text) + _HEAD + 1 > LONGEST:
        raise UnusableEntry(f"it has {len(text):,} bytes; the most is {LONGEST:,}")
    return b"%08x %b\n" % (crc32(text), text)


def parse_record(line: bytes) -> dict[str, Any] | None:  # Any: JSON
    """Return the data in a line without its line break; None if it is damaged.

    >>> parse_record(b'c225affa {"number":1}'), parse_record(b'c225affa {"number":2}')
    ({'number': 1}, None)
    """
    text = line[_HEAD:]
    if len(line) >= LONGEST or line[:_HEAD] != b"%08x " % crc32(text):
        return None
    try:
        data = _decode(text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


class EntryPacker:
    """Turns the entries of one file into lines, and whole States into the containers that moved."""

    def __init__(self, last: Entry | None = None) -> None:
        """Start with the entry *last*, the last State that a reader of this file knows."""
        self._last = last
        self._moves = 0

    def pack(self, entry: Entry) -> bytes:
        """Return the line of an entry."""
        own = {"number": entry.number, "time": entry.time, "what": entry.what}
        line = format_record({**own, **self._fields(entry), **own})
        if entry.what == STATE:
            self._last = entry
            self._moves = (self._moves + 1) % _WHOLE_EVERY
        return line

    def _fields(self, entry: Entry) -> Mapping[str, object]:
        new = entry.fields.get(_EXCLUSIVE)
        if self._last is None or entry.what != STATE or not isinstance(new, dict) or self._moves == _WHOLE_EVERY - 1:
            return entry.fields
        old = self._last.fields.get(_EXCLUSIVE)
        if not isinstance(old, dict) or None in new.values() or {_MOVED, _AFTER} & entry.fields.keys():
            return entry.fields
        moved = {owner: cpus for owner, cpus in new.items() if old.get(owner) != cpus}
        moved |= dict.fromkeys(owner for owner in old if owner not in new)
        rest = {name: value for name, value in entry.fields.items() if name != _EXCLUSIVE}
        return {**rest, _MOVED: moved, _AFTER: self._last.number}


def format_base(state: Entry) -> bytes:
    """Return the first line of a file that follows another: the State so far."""
    return format_record({_BASE: state.number, "time": state.time, **state.fields})


class Parsed(NamedTuple):
    """The contents of a file."""

    entries: tuple[Entry, ...]
    base: Entry | None = None
    """The entry of the State before this file."""
    damaged: int = 0
    """How many lines could not be read."""
    whole: int = 0
    """Where the last complete line ends: the daemon stopped while it wrote the rest."""

    @property
    def last_state(self) -> Entry | None:
        """The entry of the last State."""
        for entry in reversed(self.entries):
            if entry.what == STATE:
                return entry
        return self.base


def parse_records(content: bytes) -> Parsed:
    """Return all readable entries of a file, in order; numbers that do not go up are damage."""
    *lines, torn = content.split(b"\n")
    # A damaged file can be all line breaks: lines that are none of ours are counted, and not parsed.
    framed = [line for line in lines if len(line) > _HEAD and line[_SUM : _HEAD + 1] == b" {"]
    unpacker = _Unpacker()
    entries = tuple(unpacker.entries(framed))
    damaged = unpacker.damaged + len(lines) - len(framed)
    return Parsed(entries, unpacker.base, damaged, len(content) - len(torn))


class _Unpacker:
    def __init__(self) -> None:
        self.base: Entry | None = None
        self.damaged = 0
        self._last: Entry | None = None
        self._number = 0

    def entries(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        for line in lines:
            entry = self._entry(parse_record(line))
            if entry is not None:
                self._number = entry.number
                yield entry

    def _entry(self, data: dict[str, Any] | None) -> Entry | None:
        """Return the entry in a line; None if it is a base, or damaged."""
        if data is None:
            self.damaged += 1
            return None
        try:
            if _BASE in data and not self._number:
                self.base = self._last = entry_of({"number": data.pop(_BASE), "what": STATE, **data})
                self._number = self.base.number
                return None
            entry = entry_of(data)
        except ParseError:
            self.damaged += 1
            return None
        if entry.number <= self._number:
            self.damaged += 1
            return None
        return self._whole(entry) if entry.what == STATE else entry

    def _whole(self, entry: Entry) -> Entry:
        """Return the whole State, with the containers that have not moved."""
        moved = entry.fields.get(_MOVED)
        if isinstance(moved, dict) and _AFTER in entry.fields:
            fields = {name: value for name, value in entry.fields.items() if name not in {_MOVED, _AFTER}}
            before = self._before(entry.fields[_AFTER])
            if before is not None:
                fields[_EXCLUSIVE] = _after(before, moved)
            entry = entry._replace(fields=fields)
        self._last = entry
        return entry

    def _before(self, number: object) -> dict[str, Any] | None:
        last = self._last
        owners = None if last is None or last.number != number else last.fields.get(_EXCLUSIVE)
        return owners if isinstance(owners, dict) else None


def _after(before: dict[str, Any], moved: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Return the CPUs by container after some have moved; most have not, so all are copied at once."""
    owners = before.copy()
    for owner, cpus in moved.items():
        if cpus is None:
            owners.pop(owner, None)
        else:
            owners[owner] = cpus
    return owners


def _refuse(constant: str) -> None:
    raise ParseError(f"{constant} is not JSON")


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode: Final = json.JSONDecoder(parse_constant=_refuse).decode
