"""Commits: changes that wait together are decided one after the other, and saved and applied as one.

The first change that comes leads: it takes all that come in the same round of the event loop and commits them, and
those that come meanwhile are the next ones. So many admissions at once cost one write to the disk, not one each. It
knows neither disk nor kernel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError, StateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pinfold.core.state import State

    NextState = Callable[[State], State]
    Go = Callable[[State], Awaitable[None]]
    """Saves and applies a State, or raises and leaves the one before; a StateError: the disk has not taken it."""

_AT_ONCE: Final = 16
"""So many decisions are made before others have their turn."""


class _Change:
    """One change: the State that it was decided on and the one that it leads to, or why it was not made."""

    def __init__(self, next_state: NextState) -> None:
        self._next_state = next_state
        self.states: tuple[State, State] | None = None
        """The State before and after; None: not decided, or refused."""
        self.error: PinfoldError | None = None
        self.committed = False
        """Whether it is known what became of it."""
        self.is_left = False
        """Whether its caller has gone."""
        self.woken: asyncio.Future[None] | None = None
        """Done when it was committed, or is to lead; None while nothing waits for that."""

    def decide(self, state: State) -> State:
        """Decide on a State, and return the one after it: the same if the change is refused."""
        self.states = self.error = None
        try:
            after = self._next_state(state)
        except PinfoldError as error:
            self.error = error
            return state
        self.states = state, after
        return after

    def fail(self, error: PinfoldError) -> None:
        """Record why the change was not made."""
        self.states, self.error = None, error

    def result(self) -> tuple[State, State]:
        """Return the State before and after, or raise why the change was not made."""
        if self.error is not None:
            raise self.error
        assert self.states is not None  # noqa: S101 - for mypy: a change without error was decided
        return self.states

    def wake(self) -> None:
        """Let the caller that waits for the change go on."""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Commits:
    """The changes of one node that wait, and the one that leads."""

    def __init__(self, turn: asyncio.Lock, state: Callable[[], State], go: Go) -> None:
        """Hold *turn* while *go* saves and applies the next State; *state* returns the one that is."""
        self._turn = turn
        self._state = state
        self._go = go
        self._waiting: list[_Change] = []
        self._leader: _Change | None = None

    async def make(self, next_state: NextState) -> tuple[State, State]:
        """Change to the State that *next_state* returns, and return the one before and that one; or raise.

        *next_state* can be called again on another State if the first attempt was in vain.
        """
        mine = _Change(next_state)
        self._waiting.append(mine)
        try:
            if self._leader is None:
                self._leader = mine
            else:
                mine.woken = asyncio.get_running_loop().create_future()
                await mine.woken
            if not mine.committed:
                await self._lead(mine)
        finally:
            mine.is_left = True
            if mine in self._waiting:  # it was cancelled before its turn
                self._waiting.remove(mine)
            if self._leader is mine:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.wake()
        return mine.result()

    async def _lead(self, mine: _Change) -> None:
        """Commit all changes that wait when it is their turn, with those that come in the same round of the loop."""
        await asyncio.sleep(0)
        async with self._turn:
            changes, self._waiting = self._waiting, []
            try:
                await self._commit(changes)
            except BaseException:  # the leader was cancelled: the others have not been made
                self._waiting[:0] = [one for one in changes if one is not mine and not one.is_left]
                raise
        for one in changes:
            one.committed = True
            one.wake()

    async def _commit(self, changes: Sequence[_Change]) -> None:
        """Decide all changes, one on the State of the other, and make them as one; if that fails, one by one."""
        state = self._state()
        for number, change in enumerate(changes, start=1):
            state = change.decide(state)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)  # others have their turn
        if len(changes) == 1:
            await self._commit_one(changes[0], state)
            return
        try:
            await self._go(state)
        except PinfoldError as error:
            await self._one_by_one(changes, error if isinstance(error, StateError) else None)

    async def _one_by_one(self, changes: Sequence[_Change], unsaved: StateError | None) -> None:
        """Make each change that can be made; *unsaved*: why the disk takes no State now, so it is not tried again."""
        for change in changes:
            state = change.decide(self._state())
            if unsaved is not None and state != self._state():
                change.fail(unsaved)
                continue
            await self._commit_one(change, state)
            unsaved = change.error if isinstance(change.error, StateError) else unsaved

    async def _commit_one(self, change: _Change, state: State) -> None:
        if change.error is None:
            try:
                await self._go(state)
            except PinfoldError as error:
                change.fail(error)
