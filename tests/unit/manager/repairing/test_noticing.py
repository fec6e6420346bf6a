"""Noticing: a look soon after an event, none without one."""

from __future__ import annotations

import asyncio
import os
import selectors
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from pinfold.manager.repairing.noticing import Noticing
from pinfold.node.groupwatch import Heard

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watch:
    """Events that a test makes, instead of the kernel."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._reader

    def event(self) -> None:
        os.write(self._writer, b"!")

    def heard(self) -> Heard:
        with suppress(BlockingIOError):
            if os.read(self._reader, 100):
                return Heard.CPUS | Heard.OTHERS
        return Heard.NOTHING

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class Manager:
    """Counts the looks; each one fails as long as *error* is set."""

    def __init__(self) -> None:
        self.looks = 0
        self.looked = asyncio.Event()
        self.error: PinfoldError | None = None

    def reconcile(self, *, spaced: bool, quick: bool) -> list[str]:
        assert (spaced, quick) == (True, True)
        self.looks += 1
        self.looked.set()
        if self.error is not None:
            raise self.error
        return []


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


@pytest.mark.parametrize("error", [None, PinfoldError("the group is gone")], ids=["all well", "a look fails"])
def test_each_event_is_followed_by_a_look_also_after_one_that_failed(watch: Watch, error: PinfoldError | None) -> None:
    async def scenario() -> int:
        manager = Manager()
        manager.error = error
        following = asyncio.create_task(Noticing(manager, watch).follow())  # type: ignore[arg-type]  # stand-ins
        for _ in range(2):
            manager.looked.clear()
            watch.event()
            await asyncio.wait_for(manager.looked.wait(), 10)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        return manager.looks

    assert asyncio.run(scenario()) == 2


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of the loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def test_the_loop_sleeps_from_an_event_to_the_look(watch: Watch) -> None:
    async def scenario() -> None:
        manager = Manager()
        following = asyncio.create_task(Noticing(manager, watch).follow())  # type: ignore[arg-type]  # stand-ins
        for _ in range(3):
            manager.looked.clear()
            watch.event()
            await asyncio.wait_for(manager.looked.wait(), 10)
            watch.event()  # while it waits after a look
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    counting = CountingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(counting)) as runner:
        runner.run(scenario())
    assert counting.turns < 50
