"""The journal of a daemon is synced again after a sync has failed."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pinfold.core.events.about import Audience
from pinfold.core.events.daemon import Warned
from pinfold.daemon import views
from pinfold.daemon.views import EventRecord
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.journaling import Journaling
from pinfold.node.journal.journal import Journal
from pinfold.serve.metrics.counters import Counters
from tests.unit.manager.test_manager import ADMITTER

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Stubborn(Journaling):
    """A journal for whose first sync no thread can be started."""

    syncs = 0

    async def sync(self) -> None:
        self.syncs += 1
        if self.syncs == 1:
            raise RuntimeError("can't start new thread")
        await super().sync()


def test_a_thread_that_cannot_be_started_does_not_end_the_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_SYNC_AFTER", 0.0)
    monkeypatch.setattr(views, "_SYNC_AGAIN", 0.0)
    bus = Bus(time.time)
    journal = Journal(tmp_path, clock=time.time, tell=print)
    disk = ThreadPoolExecutor(1)
    journaling = Stubborn(journal, disk, print)
    bus.keep(journaling.keep, Audience.JOURNAL)

    async def scenario() -> None:
        syncing = asyncio.create_task(EventRecord(journal, Counters(ADMITTER, now=0.0), journaling).sync(bus))
        async with asyncio.timeout(10):
            while journaling.syncs < 3:
                bus.tell(Warned("x"))
                await asyncio.sleep(0.01)
        syncing.cancel()

    with disk:
        asyncio.run(scenario())
    assert "not synced to the disk: can't start new thread" in [entry.fields.get("why") for entry in bus.after(0)]
