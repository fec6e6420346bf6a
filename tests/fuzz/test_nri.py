"""A short throw at what reads NRI; `python -m tests.fuzz.nri` throws for longer."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

from tests.fuzz.nri import Target, mutations, seeds


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
