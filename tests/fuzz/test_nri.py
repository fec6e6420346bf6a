"""Changed NRI conversations never crash the codecs or the dispatcher; `python -m tests.fuzz.nri` tries for longer."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import islice

import pytest

from tests.fuzz.nri import Target, mutations, seeds, throw


def test_good_conversation_is_answered_whole() -> None:
    with asyncio.Runner() as runner:
        target = Target(runner)
        target.hit(seeds()[-1])
    assert target.answers == 9 + 1


def test_changed_conversations_give_answers_or_parse_errors() -> None:
    with asyncio.Runner() as runner:
        target = Target(runner)
        for data in islice(mutations(random.Random(1)), 500):  # noqa: S311 - repeatable, not secret
            target.hit(data)
    assert target.answers > 500


@pytest.mark.slow
@pytest.mark.long
def test_ten_minutes_of_changed_conversations_give_answers_or_parse_errors() -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    with asyncio.Runner() as runner:
        throw(Target(runner), seconds=600, seed=seed)
