"""The control socket while the daemon leaves: it answers when all is given back, and takes no more changes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from pinfold.core.moving.repacking import Pace
from pinfold.manager.moving.notifier import Notifier
from pinfold.manager.moving.repacker import Repacker
from pinfold.node.notices import Notices
from pinfold.serve.asked import read_files
from pinfold.serve.control import Control, DaemonChanges
from pinfold.serve.http.messages import HTTPError, Peer, Request
from tests.unit.serve.test_api import MACHINE, Stand

if TYPE_CHECKING:
    from pathlib import Path


def post(path: str, body: dict[str, object]) -> Request:
    segments = tuple(part for part in path.split("/") if part)
    return Request("POST", path, {}, json.dumps(body).encode(), Peer(1, 0, 0), {}, segments)


def test_a_daemon_that_leaves_answers_when_all_is_given_back_and_admits_nothing_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        stand, given_back, asked = Stand(tmp_path), asyncio.Event(), []

        async def leave(*, keep_owners: bool) -> None:
            asked.append(keep_owners)
            await given_back.wait()

        async def reconfigure(config: str | None, *, dry_run: bool, allow_moves: bool) -> dict[str, object]:
            return {"config": config, "dry_run": dry_run, "allow_moves": allow_moves}

        notifier = Notifier(stand.manager, Notices(tmp_path / "notices"), stand.bus)
        control = Control(
            stand.host, stand.views, Repacker(stand.node, notifier, Pace()), DaemonChanges(leave, reconfigure)
        )
        leaving = asyncio.create_task(control.handle(post("/v1/leave", {"keep_owners": True})))
        await asyncio.sleep(0)
        with pytest.raises(HTTPError, match="gives all CPUs back and ends"):
            await control.handle(post("/v1/run", {"name": "late", "milli": 1000}))
        assert not leaving.done()
        given_back.set()
        assert (await leaving).data == {"cpus": str(MACHINE.online)}
        assert asked == [True]

    asyncio.run(scenario())


def test_a_request_has_a_thousand_files_at_most() -> None:
    files: list[object] = [{"source": "a", "text": ""}] * 1000
    assert len(read_files({"files": files})) == 1000
    with pytest.raises(HTTPError, match=r"files: 1,001 in one request; at most 1,000 are read"):
        read_files({"files": [*files, {}]})
