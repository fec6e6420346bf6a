"""Loop: signals, the periodic check, and sources that fail."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.manager.loop import Loop
from tests.unit.manager.sources.test_supervisor import Clock, Host, on_a_clock
from tests.unit.manager.test_manager import MACHINE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PERIOD = 10.0


class Basis:
    """Counts how often it was asked to look."""

    def __init__(self) -> None:
        self.reloads = 0
        self.looks = 0

    async def reload(self) -> None:
        self.reloads += 1

    async def look(self) -> None:
        self.looks += 1


def looping(
    directory: Path,
    scenario: Callable[[Host, Clock, Basis], Awaitable[None]],
    *sources: Callable[[], Awaitable[None]],
    end: signal.Signals = signal.SIGTERM,
) -> None:
    """Play a scenario while a loop runs, and end the loop by a signal."""

    async def play(host: Host, clock: Clock) -> None:
        basis, ready = Basis(), asyncio.Event()
        loop = Loop(host.here, sources, host.bus, PERIOD)
        running = asyncio.create_task(loop.run(basis, ready.set))
        await ready.wait()
        await scenario(host, clock, basis)
        os.kill(os.getpid(), end)
        async with asyncio.timeout(30):
            await running

    on_a_clock(directory, play)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_loop_ends_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario(_host: Host, _clock: Clock, basis: Basis) -> None:
        assert basis.reloads == 0

    looping(tmp_path, scenario, end=number)


def test_sighup_has_the_configuration_read_again(tmp_path: Path) -> None:
    async def scenario(_host: Host, clock: Clock, basis: Basis) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await clock.leap(0)
        assert basis.reloads == 1

    looping(tmp_path, scenario)


def test_after_each_period_cpus_are_looked_at_and_differences_repaired(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock, basis: Basis) -> None:
        for looks in (1, 2):
            host.node.applier.shared = CPUSet.of(0)
            await clock.leap(PERIOD + 1)
            assert basis.looks == looks
            assert host.node.applier.shared == MACHINE.online

    looping(tmp_path, scenario)


def test_a_repair_that_is_undone_again_and_again_is_reported_and_becomes_less_frequent(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock, _basis: Basis) -> None:
        repaired = []
        for look in range(1, 22):
            host.node.applier.shared = CPUSet.of(0)
            await clock.leap(PERIOD + 1)
            if host.node.applier.shared == MACHINE.online:
                repaired.append(look)
        assert repaired == [1, 2, 3, 4, 5, 7, 9, 13, 21]
        (told,) = host.node.told("fight")
        assert (told.fields["pool"], told.fields["cause"]) == ("shared", "cpus")
        await clock.leap(PERIOD + 1)
        host.node.applier.shared = CPUSet.of(0)
        await clock.leap(PERIOD + 1)
        assert host.node.applier.shared == MACHINE.online

    looping(tmp_path, scenario)


def test_the_same_trouble_is_told_once_until_it_is_over(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock, _basis: Basis) -> None:
        for told in (1, 2):
            host.node.applier.shared = CPUSet.of(0)
            host.node.applier.fail = "the kernel says no"
            for _ in range(3):
                await clock.leap(PERIOD + 1)
            assert host.told().count("reconcile-failed") == told
            host.node.applier.fail = None
            await clock.leap(PERIOD + 1)
            assert host.node.applier.shared == MACHINE.online

    looping(tmp_path, scenario)


def test_a_source_that_fails_is_told_and_begun_anew(tmp_path: Path) -> None:
    begun = []

    async def source() -> None:
        begun.append(1)
        raise ValueError("unheard of")

    async def scenario(host: Host, clock: Clock, _basis: Basis) -> None:
        await clock.leap(0)
        await clock.leap(1.1)
        assert len(begun) == 2
        assert [entry.fields["why"] for entry in host.node.told("failed")] == ["ValueError: unheard of"] * 2

    looping(tmp_path, scenario, source)
