"""Pods, and a scripted node with plugins that record, for the tests of the scripted runtimes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.node.podgroups.settings import CPUS
from pinfold.node.podgroups.simulated import Simulated
from pinfold.runtimes.nri.plugin import Plugin
from pinfold.runtimes.simulated.runtime import ScriptedRuntime
from pinfold.runtimes.simulated.settings import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pinfold.runtimes.nri.plugin import PluginIdentity
    from pinfold.runtimes.nri.requests import Handler
    from pinfold.runtimes.simulated.record import ContainerRecord, SandboxRecord

GIB = 1 << 30
NOW = 1_700_000_000_000_000_000
PATIENT = RuntimeSettings(registration_timeout=20.0, request_timeout=20.0)
"""For tests that are not about time, on a machine that may be busy."""


def exactly(name: str, milli: int) -> Container:
    """Return a container whose requests are its limits."""
    both = Amounts(milli, GIB)
    return Container(name, Resources(both, both))


def guaranteed(name: str = "db", milli: int = 2000) -> Pod:
    return Pod(PodUID(f"u-{name}"), name, containers=(exactly("app", milli),))


def burstable(name: str = "web", milli: int = 500) -> Pod:
    resources = Resources(Amounts(cpu=milli), Amounts(cpu=2 * milli))
    return Pod(PodUID(f"u-{name}"), name, containers=(Container("app", resources),))


class Node:
    """A scripted runtime over cgroups in memory on a machine with 8 CPUs."""

    def __init__(self, settings: RuntimeSettings = PATIENT, *, nested: bool = False) -> None:
        """Let it have *nested* groups as on cgroup v1, or those of v2."""
        self.groups = Simulated(CPUSet.parse("0-7"), nested=nested)
        self.runtime = ScriptedRuntime(self.groups, settings=settings, now=lambda: NOW)
        self._plugins: list[asyncio.Task[None]] = []

    async def plug(self, handler: Handler, identity: PluginIdentity | None = None) -> asyncio.Task[None]:
        """Start a plugin, and return when it is synchronized."""
        before = len(self.runtime.nri.plugins)
        streams = await asyncio.open_unix_connection(sock=await self.runtime.nri.attach())
        plugin = asyncio.create_task(Plugin(handler, identity).run(*streams))
        self._plugins.append(plugin)
        await self.runtime.nri.until(before + 1)
        return plugin

    async def unplug(self, plugin: asyncio.Task[None]) -> None:
        """End a plugin, and return when the runtime has seen that."""
        before = len(self.runtime.nri.plugins)
        await _ended(plugin)
        await self.runtime.nri.until(before - 1)

    async def close(self) -> None:
        await self.runtime.close()
        for plugin in self._plugins:
            await _ended(plugin)

    def group(self, found: ContainerRecord | SandboxRecord) -> Path:
        return self.groups.root / found.cgroups_path.lstrip("/")

    def cpus(self, container: ContainerRecord) -> str:
        """Return the CPUs that were set for the container's cgroup."""
        return str(self.groups.own(self.group(container), CPUS))

    def quota(self, group: Path) -> int | None:
        return self.groups.quota(group).quota


async def _ended(plugin: asyncio.Task[None]) -> None:
    plugin.cancel()
    with suppress(asyncio.CancelledError):
        await plugin


def play(
    script: Callable[[Node], Awaitable[None]], settings: RuntimeSettings = PATIENT, *, nested: bool = False
) -> None:
    """Run a script on a new node."""

    async def hold() -> None:
        node = Node(settings, nested=nested)
        try:
            async with asyncio.timeout(30):
                await script(node)
        finally:
            await node.close()

    asyncio.run(hold())
