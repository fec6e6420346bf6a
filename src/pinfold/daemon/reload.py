"""Applies another configuration, or a change of the online CPUs, while the daemon runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from pinfold.core.events.daemon import ReloadRefused, Warned
from pinfold.core.events.repairs import Hotplugged, HotplugRefused
from pinfold.core.machine.layout import summary
from pinfold.daemon.parts import limit_of, store_of
from pinfold.errors import PinfoldError
from pinfold.manager.manager import Rules
from pinfold.settings.table import RELOADED, SETTINGS

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.daemon.parts import Basis, Parts
    from pinfold.manager.loop import Loop
    from pinfold.manager.manager import Manager
    from pinfold.settings.settings import Settings


class Again(Protocol):
    """Reads the daemon's configuration and machine again."""

    def machine(self) -> Topology:
        """Return the machine as it is now."""
        ...

    def online(self) -> CPUSet | None:
        """Return the CPUs that are online now; None for a simulated machine."""
        ...

    def settings(self, topology: Topology) -> Settings:
        """Return the settings for a machine."""
        ...

    def is_replaced(self) -> bool:
        """Whether the configuration file is watched, and is another one than when it was last read."""
        ...


class Reloader:
    """Applies what is read again: options, files and the machine; *about* describes them."""

    def __init__(self, again: Again, loop: Loop, parts: Parts, basis: Basis, about: dict[str, object]) -> None:
        self._again = again
        self._loop = loop
        self._node = parts.node
        self._repacker = parts.repacker
        self._bus = basis.bus
        self._about = about
        self._told = parts.node.manager.rules.topology.online
        """The online CPUs in the last event."""
        self._trouble = ""
        self._values = basis.chosen.values
        """The settings when they were last read."""

    async def reload(self) -> None:
        """Read the configuration again and apply it; keep the old one if the new one is wrong or cannot be applied."""
        try:
            await self._go_on(self._again.machine())
        except (PinfoldError, OSError) as error:
            self._bus.tell(ReloadRefused(str(error)))

    async def look(self) -> None:
        """Go on with the CPUs that are online now: those that have gone are replaced, those that came are used.

        A watched configuration file that was replaced is read again first.
        """
        if self._again.is_replaced():
            await self.reload()
        online = self._again.online()
        if online is None or online == self._node.manager.rules.topology.online:
            return
        if online != self._told:
            self._bus.tell(Hotplugged(self._told - online, online - self._told))
            self._told, self._trouble = online, ""
        try:
            await self._go_on(self._again.machine())
        except (PinfoldError, OSError) as error:  # the next check tries again
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._bus.tell(HotplugRefused(self._trouble))

    async def _go_on(self, topology: Topology) -> None:
        chosen = self._again.settings(topology)
        admitter = chosen.config.build(topology)
        node, roster = self._node, self._node.roster
        if roster.limits is not None:
            roster.limits = partial(limit_of, chosen)
        node.manager.shielding.on = chosen.shield and not node.read_only
        await node.manager.reconfigure(Rules(admitter, topology, store_of(chosen, admitter)), node.due_pods)
        self._loop.period = chosen.reconcile_period
        self._repacker.pace = chosen.pace
        self._repacker.wake()
        self._about.update(rules(chosen, node.manager))
        self._warn_of_later(chosen)

    def _warn_of_later(self, chosen: Settings) -> None:
        """Name the settings that have changed in a file, but are in force only after a restart."""
        before, self._values = self._values, chosen.values
        later = [name for name, value in chosen.values.items() if name not in RELOADED and before.get(name) != value]
        if later:
            keys = ", ".join(sorted(SETTINGS[name].key for name in later))
            self._bus.tell(Warned(f"restart the daemon to change {keys}"))


def rules(chosen: Settings, manager: Manager) -> dict[str, object]:
    """Return the configuration and the machine with which a daemon goes on."""
    config, policy = chosen.config, manager.rules.admitter.policy
    return {
        "machine": summary(manager.rules.topology),
        "options": dict(config.options),
        "reserved": str(policy.reserved),
        "topology_policy": config.topology_policy,
        "topology_scope": config.topology_scope,
        "topology_options": dict(config.topology_options),
        "feature_gates": dict(config.gates),
        "fidelity": str(config.fidelity),
    }
