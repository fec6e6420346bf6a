"""Notes: what is kept, and how those who watch are woken."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.entries import STATE
from pinfold.manager.manager import Note
from pinfold.manager.notes import Notes
from tests.unit.serve.http_site import Clock

if TYPE_CHECKING:
    from collections.abc import Coroutine


WITHIN = 20.0


def play(scenario: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(asyncio.wait_for(scenario, WITHIN))


def tell(notes: Notes, *kinds: str) -> None:
    for kind in kinds:
        notes.tell(Note(kind, {}))


async def watching(notes: Notes, count: int) -> list[asyncio.Task[int]]:
    """Return as many who wait for what happens from now on."""
    tasks = [asyncio.create_task(notes.gathered(notes.number)) for _ in range(count)]
    await asyncio.sleep(0)  # they begin to
    return tasks


@given(st.lists(st.sampled_from(["happened", STATE]), max_size=30), st.integers(-1, 40))
def test_after_a_number_is_all_that_has_a_higher_one(kinds: list[str], number: int) -> None:
    notes = Notes(io.StringIO())
    tell(notes, *kinds)
    numbers = [index + 1 for index, kind in enumerate(kinds) if kind != STATE and index + 1 > number]
    assert [entry.number for entry in notes.after(number)] == numbers


def test_only_the_last_notes_are_kept() -> None:
    notes = Notes(io.StringIO())
    tell(notes, *["happened"] * 3000)
    assert (notes.first, len(notes.after(0)), notes.after(0)[-1].number) == (1001, 2000, 3000)


def test_what_happens_shortly_after_is_told_together() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        tasks = await watching(notes, 3)
        tell(notes, "one")
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        tell(notes, "two", "three")
        assert await asyncio.gather(*tasks) == [3, 3, 3]

    play(scenario())


def test_all_get_the_same_number_though_more_happens_while_they_are_woken() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        tasks = await watching(notes, 50)
        tasks[0].add_done_callback(lambda _: tell(notes, "two"))
        tell(notes, "one")
        assert await asyncio.gather(*tasks) == [1] * 50
        assert await notes.gathered(1) == 2

    play(scenario())


def test_others_get_their_turn_while_very_many_are_woken() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        tasks = await watching(notes, 50)
        tell(notes, "one")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert not all(task.done() for task in tasks)
        await asyncio.gather(*tasks)

    play(scenario())


def test_what_has_happened_already_is_not_waited_for() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        tell(notes, "one", "two")
        assert await notes.gathered(1) == 2

    play(scenario())


def test_a_state_alone_wakes_nobody_who_watches() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        (task,) = await watching(notes, 1)
        tell(notes, STATE)
        clock = asyncio.get_running_loop()
        assert isinstance(clock, Clock)
        clock.ahead += 5  # whatever was to come later comes now
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        tell(notes, "one")
        assert await task == 2

    play(scenario())


def test_whoever_stops_watching_is_forgotten_and_the_others_are_told() -> None:
    async def scenario() -> None:
        notes = Notes(io.StringIO())
        first, second = await watching(notes, 2)
        tell(notes, "one")
        first.cancel()
        assert await second == 1
        assert first.cancelled()

    play(scenario())
