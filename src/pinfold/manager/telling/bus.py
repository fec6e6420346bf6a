"""Bus: passes every event on to all subscribers, in order, with a number and a time.

Answers come first: events that take long to make, such as why a pod was refused, are passed as a function. The bus
calls it after the container runtime or the client has its answer, and later events wait behind it, so that numbers and
entries keep the order in which things happened. `flush` is called before counters are read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.core.events import Measured
from pinfold.core.events.about import Audience
from pinfold.core.events.daemon import Failed
from pinfold.core.events.entries import Entry
from pinfold.core.events.fields import entry_fields, is_for
from pinfold.core.events.measures import InTurn
from pinfold.manager.telling.watchers import Watchers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pinfold.core.events import Event, Told

    Make = Callable[[], Told | Sequence[Event]]
    """Makes one or more events later."""

_KEPT: Final = 2000
_ANSWER_FIRST: Final = 0.01
"""After how many seconds the first deferred event is made: clients that ask one after the other wait for none."""
_MOST_WAITING: Final = 1000
"""If more events wait, each further one has the first of them delivered at once."""

_T = TypeVar("_T")


class Bus:
    """Sends every event to every subscriber; keeps the last entries for the event stream."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* returns the seconds since the epoch."""
        self.number = 0
        """That of the last entry."""
        self._clock = clock
        self._hearers: list[Callable[[Event], None]] = []
        self._keepers: list[tuple[Callable[[Entry], None], Audience]] = [(self._remember, Audience.STREAM)]
        self._broken: set[object] = set()
        self._waiting: deque[tuple[float, Event | Make]] = deque()
        self._turn: asyncio.Handle | None = None
        """The turn of the event loop in which the first event that waits is delivered; None if none waits."""
        self._delivering = False
        self._entries: deque[Entry] = deque(maxlen=_KEPT)
        self._more = asyncio.Event()
        self._watchers = Watchers(lambda: self.number)

    # -- subscribers

    def subscribe(self, hear: Callable[[Event], None]) -> None:
        """Call *hear* with every event from now on, also with those that are only counted."""
        self._hearers.append(hear)

    def keep(self, keep: Callable[[Entry], None], audience: Audience) -> None:
        """Call *keep* with an entry of every event from now on, with the fields for *audience*."""
        self._keepers.append((keep, audience))

    # -- telling

    def tell(self, event: Event | Make) -> None:
        """Send an event, or make and send it as soon as waiting clients have their answer."""
        if isinstance(event, Measured) and not (self._waiting and isinstance(event, InTurn)):
            self._hear(event)
            return
        self._waiting.append((self._clock(), event))
        if self._delivering:
            return  # the running delivery comes to it
        if self._turn is None and not (callable(event) and self._defer()):
            self.flush()
        elif len(self._waiting) > _MOST_WAITING:
            self._deliver_some()

    def flush(self) -> None:
        """Deliver all that waits, now; a subscriber that asks for it gets the rest when it has returned."""
        if self._delivering:
            return
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        while self._waiting:
            self._deliver_some()

    def _defer(self) -> bool:
        """Schedule delivery of waiting events; return whether an event loop runs, which this needs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._turn = loop.call_later(_ANSWER_FIRST, self._take_turn)
        return True

    def _take_turn(self) -> None:
        """Make one deferred event; other clients get their answers before the next one is made."""
        self._turn = None
        self._deliver_some()
        if self._waiting:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _deliver_some(self) -> None:
        """Deliver the first event that waits, and those behind it that need not be made."""
        self._deliver(*self._waiting.popleft())
        while self._waiting and not callable(self._waiting[0][1]):
            self._deliver(*self._waiting.popleft())

    def _deliver(self, time: float, event: Event | Make) -> None:
        self._delivering = True
        try:
            for one in _made(event) if callable(event) else (event,):
                if isinstance(one, Measured):
                    self._hear(one)
                else:
                    self._publish(time, one)
        finally:
            self._delivering = False

    def _publish(self, time: float, event: Told) -> None:
        self.number += 1
        self._hear(event)
        entries: dict[Audience, Entry] = {}
        for keep, audience in self._keepers:
            if is_for(event, audience):
                if audience not in entries:
                    entries[audience] = Entry(self.number, time, event.what, entry_fields(event, audience))
                self._give(keep, entries[audience])
        self._more.set()
        self._more = asyncio.Event()

    def _hear(self, event: Event) -> None:
        for hear in self._hearers:
            self._give(hear, event)

    def _give(self, take: Callable[[_T], None], value: _T) -> None:
        try:
            take(value)
        except Exception as error:  # noqa: BLE001 - a fault in one subscriber must not undo what the event tells of
            if take not in self._broken:
                self._broken.add(take)
                self.tell(_failed(take, error))

    # -- the entries so far

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._watchers.gather()

    @property
    def first(self) -> int:
        """The number of the first entry that is still kept; that of the next one if there is none."""
        return self._entries[0].number if self._entries else self.number + 1

    def after(self, number: int) -> list[Entry]:
        """Return the entries after the one with this number, as far as they are still kept."""
        self.flush()
        newest = takewhile(lambda entry: entry.number > number, reversed(self._entries))
        return list(newest)[::-1]

    async def news(self) -> None:
        """Wait until something happens."""
        await self._more.wait()

    async def gathered(self, number: int) -> int:
        """Wait until something happens after the entry with this number, and a moment longer; return the last number.

        All waiting clients get the same number.
        """
        return await self._watchers.wait(is_due=bool(self._entries) and self._entries[-1].number > number)

    async def follow(self, number: int) -> AsyncGenerator[Entry]:
        """Yield the entries after the one with this number, and go on as more happens."""
        while True:
            more = self._more
            for entry in self.after(number):
                number = entry.number
                yield entry
            await more.wait()


def _made(make: Make) -> Sequence[Event]:
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 - the others who wait are told all the same
        return (_failed(make, error),)
    return made if isinstance(made, (list, tuple)) else (made,)


def _failed(where: Callable[..., object], error: Exception) -> Failed:
    return Failed(where=getattr(where, "__qualname__", repr(where)), why=f"{type(error).__name__}: {error}")
