"""A CPU that comes or goes is tried again until that is saved and applied; a wrong configuration is not."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pinfold.core.machine.presets import from_shape
from pinfold.daemon.reload import Reloader
from pinfold.errors import ConfigError, StateError
from pinfold.manager.telling.bus import Bus
from pinfold.runtimes.roster import Roster
from pinfold.settings.settings import read_settings
from tests.unit.settings.test_settings import HOME, parse

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.settings.settings import Settings

BEFORE, NOW = from_shape("cores:2"), from_shape("cores:4")


class Host:
    """The machine and its configuration, which are read anew each time."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        self._is_wrong = self._is_new = is_wrong

    def machine(self) -> Topology:
        return NOW

    def online(self) -> CPUSet:
        return NOW.online

    def is_replaced(self) -> bool:
        return self._is_new

    def seen(self) -> None:
        self._is_new = False

    def other(self, _config: str | None) -> Host:
        return Host(is_wrong=self._is_wrong)

    def settings(self, topology: Topology) -> Settings:
        if self._is_wrong:
            raise ConfigError("reservedSystemCPUs: nonsense")
        return read_settings(parse("--reserved-cpus", "0"), topology, environment=HOME, uid=1000)


class Manager:
    """A Manager whose disk is full at first."""

    def __init__(self) -> None:
        self.rules: Any = SimpleNamespace(topology=BEFORE)
        self.shielding = SimpleNamespace(on=False)
        self.tries = 0

    async def reconfigure(self, rules: Any, _pods: object, _agree: object) -> None:  # noqa: ANN401 - stored only
        self.tries += 1
        if self.tries <= 2:
            raise StateError("No space left on device")
        self.rules = rules


def reloader(manager: Manager, bus: Bus, *, is_wrong: bool = False) -> Reloader:
    """Return a Reloader for a node without containers."""
    node: Any = SimpleNamespace(manager=manager, roster=Roster(), read_only=False, due_pods=dict, releases=None)
    parts: Any = SimpleNamespace(node=node, repacker=SimpleNamespace(wake=lambda: None, pace=None))
    basis: Any = SimpleNamespace(bus=bus, chosen=SimpleNamespace(values={}))
    loop: Any = SimpleNamespace(period=1.0)
    return Reloader(Host(is_wrong=is_wrong), loop, parts, basis, {})


def test_a_cpu_that_came_while_the_disk_was_full_is_tried_at_each_look_and_told_once() -> None:
    manager, bus = Manager(), Bus(time.time)
    again = reloader(manager, bus)

    async def scenario() -> None:
        for _ in range(4):
            await again.look()

    asyncio.run(scenario())
    assert manager.tries == 3
    assert manager.rules.topology.online == NOW.online
    whats = [entry.what for entry in bus.after(0)]
    assert (whats.count("hotplug"), whats.count("hotplug-refused")) == (1, 1)


def test_a_reload_takes_the_machine_as_it_is_now() -> None:
    manager, bus = Manager(), Bus(time.time)
    manager.tries = 2
    asyncio.run(reloader(manager, bus).reload())
    assert manager.rules.topology.online == NOW.online


def test_a_wrong_configuration_is_refused_once_until_it_is_replaced_again() -> None:
    manager, bus = Manager(), Bus(time.time)
    manager.rules = SimpleNamespace(topology=NOW)
    again = reloader(manager, bus, is_wrong=True)

    async def scenario() -> None:
        for _ in range(3):
            await again.look()

    asyncio.run(scenario())
    assert [entry.what for entry in bus.after(0)] == ["reload-refused"]
