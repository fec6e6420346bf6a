"""What happened, in order: kept for a while for whoever asks, and passed on to whoever watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from itertools import takewhile
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.entries import STATE, Entry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pinfold.manager.manager import Note

_KEPT: Final = 2000
_TOLD: Final = ("namespace", "container")
"""What watchers are told besides: a line in the log does without."""
_GATHER: Final = 0.1
"""For how many seconds what happens is gathered for those who only watch."""
_AT_ONCE: Final = 4
"""How many of them are woken in one turn of the event loop."""


class Notes:
    """The last notes, and a log line for each."""

    def __init__(self, log: IO[str], *, as_json: bool = False) -> None:
        self._entries: deque[Entry] = deque(maxlen=_KEPT)
        self._log = log
        self._as_json = as_json
        self.number = 0
        """That of the last entry."""
        self.keepers: list[Callable[[Entry], None]] = []
        """Who else is told everything, in all detail."""
        self._more = asyncio.Event()
        self._watching: dict[asyncio.Future[int], None] = {}
        self._gathering = False

    def tell(self, note: Note) -> None:
        """Keep and log a note."""
        self.number += 1
        fields = {name: _plain(value) for name, value in note.fields.items()}
        entry = Entry(self.number, time.time(), note.what, fields)
        if note.what != STATE:  # everybody can see it; only the journal has to remember
            told = {name: note.detail[name] for name in _TOLD if name in note.detail}
            self._entries.append(entry._replace(fields={**told, **fields}))
            self._gather()
            with suppress(OSError, ValueError):  # a log that nobody reads must not undo what it tells of
                self._log.write(_line(entry, as_json=self._as_json))
                self._log.flush()
        for keep in self.keepers:
            keep(entry._replace(fields={**fields, **note.detail}))
        self._more.set()
        self._more = asyncio.Event()

    async def news(self) -> None:
        """Wait until something happens."""
        await self._more.wait()

    async def gathered(self, number: int) -> int:
        """Wait until something happens after the entry with this number, and a moment longer; return the last number.

        Everybody who waits gets the same one, so that what happened up to then need be written only once for all.
        """
        woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watching[woken] = None
        if self._entries and self._entries[-1].number > number:
            self._gather()
        try:
            return await woken
        finally:
            self._watching.pop(woken, None)

    def _gather(self) -> None:
        if self._watching and not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_later(_GATHER, self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        self._wake(list(self._watching), self.number)

    def _wake(self, watching: Sequence[asyncio.Future[int]], last: int) -> None:
        """Wake a few, and the others in later turns of the loop: whoever asks for CPUs waits for a few at most."""
        for woken in watching[:_AT_ONCE]:
            if not woken.done():
                woken.set_result(last)
        if watching[_AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._wake, watching[_AT_ONCE:], last)

    @property
    def first(self) -> int:
        """The number of the first entry that is still kept; that of the next one if there is none."""
        return self._entries[0].number if self._entries else self.number + 1

    def after(self, number: int) -> list[Entry]:
        """Return what happened after the entry with this number, as far as it is still kept."""
        newest = takewhile(lambda entry: entry.number > number, reversed(self._entries))
        return list(newest)[::-1]

    async def follow(self, number: int) -> AsyncGenerator[Entry]:
        """Yield what happened after the entry with this number, and go on as more happens."""
        while True:
            more = self._more
            for entry in self.after(number):
                number = entry.number
                yield entry
            await more.wait()


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _line(entry: Entry, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(entry.data()) + "\n"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.time))
    fields = "".join(f" {name}={_value(value)}" for name, value in entry.fields.items())
    return f"time={stamp} event={entry.what}{fields}\n"


def _value(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
