"""Saves: States made durable, measured and reported; what could not be saved is known until it is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pinfold.core.events.daemon import NotSaved
from pinfold.core.events.measures import Saved
from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from pinfold.core.state import State
    from pinfold.manager.telling.telling import Telling


class Store(Protocol):
    """Where the State is kept."""

    async def save(self, state: State) -> None:
        """Make the State durable, or raise; the last one stays if this one cannot be saved."""
        ...


class Saves:
    """The saves of one node's State."""

    def __init__(self, telling: Telling) -> None:
        self.unsaved = ""
        """Why the last save failed, empty if it did not."""
        self._telling = telling

    async def save(self, state: State, store: Store) -> None:
        """Make the State durable, or raise."""
        start, clock = self._telling.clock(), self._telling.clock
        try:
            await store.save(state)
        except PinfoldError as error:
            self.unsaved = str(error)
            self._telling.tell(Saved(clock() - start, ok=False))
            raise
        self.unsaved = ""
        self._telling.tell(Saved(clock() - start))

    async def try_to_save(self, state: State, store: Store) -> None:
        """Make the State durable if that is possible now; a failure is reported once, and `unsaved` says why."""
        told = self.unsaved
        with suppress(PinfoldError):
            await self.save(state, store)
        if self.unsaved not in {"", told}:
            self._telling.tell(NotSaved(self.unsaved))
