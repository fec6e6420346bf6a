"""A daemon that starts beside many pods: what it costs does not grow with their number more than it must."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.core.config import Config
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.node.processgroups.affinity.membership import Membership
from tests.contract.stands import HostStand

if TYPE_CHECKING:
    import pytest

HERE = from_shape("cores:1")


def sleeping(number: int) -> Pod:
    return Pod(PodUID(f"u{number}"), f"p{number}", containers=(Container("app", command=("sleep", "1000")),))


def test_a_start_lists_all_processes_as_often_with_many_pods_as_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[int] = []
    scan = Membership.scan

    def counted(membership: Membership, *, glance: bool = False) -> object:
        scans[-1] += 1
        return scan(membership, glance=glance)

    async def scenario() -> None:
        stand = HostStand(Config("none"), HERE, real=True)
        await stand.open()
        try:
            for count in (2, 8):
                for number in range(len(stand.supervisor.workbook.workloads), count):
                    await stand.run(sleeping(number))
                # Else the next daemon looks for those that were started in the last moment.
                await stand.supervisor.workbook.saves.write()
                await stand.kill_daemon()
                scans.append(0)
                monkeypatch.setattr(Membership, "scan", counted)
                await stand.open()
                monkeypatch.undo()
        finally:
            await stand.close()

    asyncio.run(scenario())
    assert scans[0] == scans[1]
