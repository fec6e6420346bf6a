"""Bus: every event reaches every subscriber, in order, and answers come first."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.events.about import Audience, PodName
from pinfold.core.events.daemon import Failed, Warned
from pinfold.core.events.decisions import Gone, StateChanged
from pinfold.core.events.measures import Decided, Left
from pinfold.core.machine.cpuset import EMPTY
from pinfold.manager.telling.bus import Bus
from tests.unit.serve.http_site import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pinfold.core.events import Event, Told
    from pinfold.core.events.entries import Entry
    from pinfold.manager.telling.bus import Make

WITHIN = 60.0
STATE = StateChanged(EMPTY, EMPTY, EMPTY, {})


def warned(text: str) -> Warned:
    return Warned(text)


def later(text: str) -> Callable[[], Told]:
    return lambda: Warned(text)


def said(entries: list[Entry]) -> list[str]:
    return [entry.text("text") or entry.what for entry in entries]


class Ear:
    """A bus, and all that it was heard to tell."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        ticks = count(1)
        self.bus = Bus(lambda: float(next(ticks)))
        self.bus.subscribe(self.heard.append)

    def tell(self, *events: Event | Make) -> None:
        for event in events:
            self.bus.tell(event)


def play(scenario: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(asyncio.wait_for(scenario, WITHIN))


async def pass_time() -> None:
    """Let come what was to come within the next half second."""
    clock = asyncio.get_running_loop()
    assert isinstance(clock, Clock)
    clock.ahead += 0.5
    for _ in range(10):
        await asyncio.sleep(0)


async def watching(bus: Bus, number: int) -> list[asyncio.Task[int]]:
    """Return so many clients that wait for what happens from now on."""
    tasks = [asyncio.create_task(bus.gathered(bus.number)) for _ in range(number)]
    await asyncio.sleep(0)  # they begin to
    return tasks


# -- who is told what


def test_each_audience_gets_entries_with_its_own_fields_and_one_number_and_time() -> None:
    ear = Ear()
    kept: dict[Audience, list[Entry]] = {audience: [] for audience in Audience}
    for audience, entries in kept.items():
        ear.bus.keep(entries.append, audience)
    ear.tell(Gone(PodName("shop", "web", "1a2b")))
    found = [(entry.number, entry.time, dict(entry.fields)) for (entry,) in kept.values()]
    assert found == [
        (1, 1.0, {"pod": "web"}),
        (1, 1.0, {"namespace": "shop", "pod": "web"}),
        (1, 1.0, {"namespace": "shop", "pod": "web", "uid": "1a2b"}),
    ]


def test_a_state_has_a_number_and_only_the_journal_gets_it() -> None:
    ear = Ear()
    kept: dict[Audience, list[Entry]] = {audience: [] for audience in Audience}
    for audience, entries in kept.items():
        ear.bus.keep(entries.append, audience)
    ear.tell(STATE, warned("one"))
    assert [[entry.number for entry in entries] for entries in kept.values()] == [[2], [2], [1, 2]]
    assert ear.heard == [STATE, warned("one")]


def test_numbers_go_on_where_the_journal_ends() -> None:
    ear = Ear()
    ear.bus.number = 41
    ear.tell(warned("one"))
    assert [entry.number for entry in ear.bus.after(0)] == [42]


def test_what_is_only_counted_is_heard_and_has_no_entry() -> None:
    ear = Ear()
    ear.tell(Decided(0.5))
    assert (ear.heard, ear.bus.number, ear.bus.after(0)) == ([Decided(0.5)], 0, [])


def test_a_subscriber_that_fails_is_told_of_once_and_the_others_hear_everything() -> None:
    def broken(_: object) -> None:
        raise KeyError(1)

    ear = Ear()
    ear.bus.keep(broken, Audience.LOG)
    kept: list[Entry] = []
    ear.bus.keep(kept.append, Audience.LOG)
    ear.tell(warned("one"), warned("two"))
    assert [entry.what for entry in kept] == ["warning", "failed", "warning"]
    assert kept[1].text("why") == "KeyError: 1"
    assert "broken" in kept[1].text("where")


def test_what_a_subscriber_tells_comes_after_what_it_hears() -> None:
    ear = Ear()
    kept: list[Entry] = []

    def answer(entry: Entry) -> None:
        if entry.number == 1:
            ear.tell(warned("answer"))

    ear.bus.keep(answer, Audience.LOG)
    ear.bus.keep(kept.append, Audience.LOG)
    ear.tell(warned("one"), warned("two"))
    assert said(kept) == ["one", "answer", "two"]
    assert [entry.number for entry in kept] == [1, 2, 3]


# -- answers come first


def test_without_an_event_loop_everything_is_told_at_once() -> None:
    ear = Ear()
    ear.tell(later("one"), warned("two"))
    assert ear.heard == [warned("one"), warned("two")]


def test_a_deferred_event_is_made_later_and_all_that_follows_waits_behind_it() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(warned("one"), later("two"), warned("three"), later("four"))
        assert ear.heard == [warned("one")]
        await pass_time()
        assert ear.heard == [warned(text) for text in ("one", "two", "three", "four")]
        ear.tell(warned("five"))
        assert ear.heard[-1] == warned("five")

    play(scenario())


def test_a_deferred_event_has_the_time_at_which_it_was_told() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(later("one"), warned("two"))
        await pass_time()
        assert [entry.time for entry in ear.bus.after(0)] == [1.0, 2.0]

    play(scenario())


def test_what_is_only_counted_does_not_wait_behind_a_deferred_event() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(later("one"), Decided(0.5))
        assert ear.heard == [Decided(0.5)]
        ear.bus.flush()
        assert ear.heard == [Decided(0.5), warned("one")]

    play(scenario())


def test_a_function_can_make_several_events_also_some_that_are_only_counted() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(lambda: [Decided(0.5), warned("one"), warned("two")], warned("three"))
        assert ear.heard == []
        ear.bus.flush()
        assert ear.heard == [Decided(0.5), warned("one"), warned("two"), warned("three")]
        assert [(entry.number, entry.time) for entry in ear.bus.after(0)] == [(1, 1.0), (2, 1.0), (3, 2.0)]

    play(scenario())


def test_who_has_left_is_counted_after_who_came_before() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(lambda: [Decided(0.5)], Left(()))
        ear.bus.flush()
        ear.tell(Left(()))
        assert ear.heard == [Decided(0.5), Left(()), Left(())]

    play(scenario())


def test_one_deferred_event_is_made_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(*(later(str(number)) for number in range(3)))
        seen = set()
        while len(ear.heard) < 3:
            await asyncio.sleep(0)
            seen.add(len(ear.heard))
        assert seen == {0, 1, 2, 3}

    play(scenario())


def test_no_more_than_a_thousand_wait() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(*(later(str(number)) for number in range(1500)))
        assert ear.heard == [warned(str(number)) for number in range(500)]
        ear.bus.flush()
        assert len(ear.heard) == 1500

    play(scenario())


def test_a_client_that_asks_is_told_also_what_was_deferred() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(later("one"), warned("two"))
        assert said(ear.bus.after(0)) == ["one", "two"]

    play(scenario())


def test_a_subscriber_that_asks_for_entries_does_not_stop_those_that_wait() -> None:
    async def scenario() -> None:
        ear, asked = Ear(), deque[object](maxlen=1)
        ear.bus.subscribe(lambda _: asked.append(ear.bus.after(0)))
        ear.tell(*(later(str(number)) for number in range(1001)))
        await pass_time()
        for _ in range(1001):  # one event in each round of the event loop
            await asyncio.sleep(0)
        assert len(ear.heard) == 1001

    play(scenario())


def test_an_event_that_cannot_be_made_is_told_as_failed_in_its_place() -> None:
    def fails() -> Told:
        raise ZeroDivisionError("of nothing")

    async def scenario() -> None:
        ear = Ear()
        ear.tell(fails, warned("two"))
        await pass_time()
        first, second = ear.heard
        assert isinstance(first, Failed)
        assert (first.why, second) == ("ZeroDivisionError: of nothing", warned("two"))

    play(scenario())


@given(st.lists(st.sampled_from(["event", "deferred", "counted", "turn", "flush"]), max_size=30))
def test_order_is_kept_however_events_are_told(steps: list[str]) -> None:
    async def scenario() -> None:
        ear, told = Ear(), []
        for number, step in enumerate(steps):
            match step:
                case "event" | "deferred":
                    told.append(str(number))
                    ear.tell(warned(told[-1]) if step == "event" else later(told[-1]))
                case "counted":
                    ear.tell(Decided(number))
                case "turn":
                    await pass_time()
                case "flush":
                    ear.bus.flush()
        await pass_time()
        ear.bus.flush()
        entries = ear.bus.after(0)
        assert said(entries) == told
        assert [entry.number for entry in entries] == list(range(1, len(told) + 1))
        assert [event.text for event in ear.heard if isinstance(event, Warned)] == told
        times = [entry.time for entry in entries]
        assert times == sorted(times)

    play(scenario())


# -- what was told


@given(st.lists(st.booleans(), max_size=30), st.integers(-1, 40))
def test_after_a_number_is_all_that_has_a_higher_one(kinds: list[bool], number: int) -> None:
    ear = Ear()
    ear.tell(*(STATE if is_state else warned("one") for is_state in kinds))
    numbers = [index for index, is_state in enumerate(kinds, 1) if not is_state and index > number]
    assert [entry.number for entry in ear.bus.after(number)] == numbers


def test_only_the_last_entries_are_kept() -> None:
    ear = Ear()
    assert ear.bus.first == 1
    ear.tell(*[warned("one")] * 3000)
    assert (ear.bus.first, len(ear.bus.after(0)), ear.bus.after(0)[-1].number) == (1001, 2000, 3000)


def test_a_client_that_follows_gets_what_was_and_what_comes() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(warned("one"), warned("two"))
        async with aclosing(ear.bus.follow(1)) as entries:
            assert (await anext(entries)).number == 2
            ear.tell(later("three"))
            assert (await anext(entries)).text("text") == "three"

    play(scenario())


def test_news_are_also_of_what_only_the_journal_keeps() -> None:
    async def scenario() -> None:
        ear = Ear()
        news = asyncio.create_task(ear.bus.news())
        await asyncio.sleep(0)
        assert not news.done()
        ear.tell(STATE)
        await news

    play(scenario())


def test_what_happens_shortly_after_is_told_together() -> None:
    async def scenario() -> None:
        ear = Ear()
        tasks = await watching(ear.bus, 3)
        ear.tell(warned("one"))
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        ear.tell(warned("two"), warned("three"))
        assert await asyncio.gather(*tasks) == [3, 3, 3]

    play(scenario())


def test_all_get_the_same_number_though_more_happens_while_they_are_woken() -> None:
    async def scenario() -> None:
        ear = Ear()
        tasks = await watching(ear.bus, 50)
        tasks[0].add_done_callback(lambda _: ear.tell(warned("two")))
        ear.tell(warned("one"))
        assert await asyncio.gather(*tasks) == [1] * 50
        assert await ear.bus.gathered(1) == 2

    play(scenario())


def test_others_get_their_turn_while_very_many_are_woken() -> None:
    async def scenario() -> None:
        ear = Ear()
        tasks = await watching(ear.bus, 50)
        ear.tell(warned("one"))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert not all(task.done() for task in tasks)
        await asyncio.gather(*tasks)

    play(scenario())


def test_what_has_happened_already_is_not_waited_for() -> None:
    async def scenario() -> None:
        ear = Ear()
        ear.tell(warned("one"), warned("two"))
        assert await ear.bus.gathered(1) == 2

    play(scenario())


def test_a_state_alone_wakes_no_client_that_watches() -> None:
    async def scenario() -> None:
        ear = Ear()
        (task,) = await watching(ear.bus, 1)
        ear.tell(STATE)
        await pass_time()
        assert not task.done()
        ear.tell(warned("one"))
        assert await task == 2

    play(scenario())


def test_a_client_that_stops_watching_is_forgotten_and_the_others_are_woken() -> None:
    async def scenario() -> None:
        ear = Ear()
        first, second = await watching(ear.bus, 2)
        ear.tell(warned("one"))
        first.cancel()
        assert await second == 1
        assert first.cancelled()

    play(scenario())


def test_a_fault_that_is_no_error_of_a_subscriber_is_not_hidden() -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    ear = Ear()
    ear.bus.subscribe(stop)
    with pytest.raises(KeyboardInterrupt):
        ear.tell(warned("one"))
