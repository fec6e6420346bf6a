"""A daemon that leaves its node also removes what it has published about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pinfold.core.config import Config
from pinfold.daemon.leaving import Leaving
from pinfold.daemon.parts.common import Parts
from pinfold.manager.loop import Loop
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.contract.test_lifecycle import play

if TYPE_CHECKING:
    from pinfold.manager.moving.repacker import Repacker
    from tests.contract.stands import Stand


def test_what_was_published_is_withdrawn_before_the_cpus_are_given_back() -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        daemon, done = stand.daemon, []

        async def withdraw() -> None:
            await asyncio.sleep(0)
            done.append([entry.what for entry in daemon.bus.after(0) if entry.what == "widened"])

        parts = Parts(daemon.node, [], cast("Repacker", None), withdraw=withdraw)  # which nothing here asks
        await Leaving(Loop(daemon.node, [], daemon.bus, 10), parts, daemon.bus, stand.directory).leave()
        assert done == [[]]
        assert daemon.told("widened")

    play(PodStand(Config("static", reserved=FIRST), EIGHT, nri=True), scenario)
