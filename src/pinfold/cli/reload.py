"""Goes on under another configuration, or with other CPUs online, while the daemon runs."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from pinfold.cli import machine
from pinfold.core.events.daemon import ReloadRefused
from pinfold.core.events.repairs import Hotplugged, HotplugRefused
from pinfold.core.machine.layout import summary
from pinfold.daemon.parts import limit_of, store_of
from pinfold.errors import PinfoldError
from pinfold.manager.manager import Rules
from pinfold.settings import settings

if TYPE_CHECKING:
    import argparse

    from pinfold.core.machine.topology import Topology
    from pinfold.daemon.parts import Parts
    from pinfold.manager.loop import Loop
    from pinfold.manager.manager import Manager
    from pinfold.manager.telling.bus import Bus
    from pinfold.settings.settings import Settings


class Reloader:
    """Reads again what a daemon was started with: its options and files, and the machine; *about* tells of both."""

    def __init__(self, args: argparse.Namespace, loop: Loop, parts: Parts, bus: Bus, about: dict[str, object]) -> None:
        self._args = args
        self._loop = loop
        self._node = parts.node
        self._bus = bus
        self._about = about
        self._online = parts.node.manager.rules.topology.online

    def reload(self) -> None:
        """Read the configuration again and go on under it; if it is wrong, or cannot be applied, under the old one."""
        try:
            self._go_on(self._node.manager.rules.topology)
        except (PinfoldError, OSError) as error:
            self._bus.tell(ReloadRefused(str(error)))

    def look(self) -> None:
        """Go on with the CPUs that are online now: those that have gone are replaced, those that came are used."""
        online = machine.online_now(self._args)
        if online is None or online == self._online:
            return
        self._bus.tell(Hotplugged(self._online - online, online - self._online))
        self._online = online  # told once, whether or not it can be
        try:
            self._go_on(machine.read_machine(self._args))
        except (PinfoldError, OSError) as error:
            self._bus.tell(HotplugRefused(str(error)))

    def _go_on(self, topology: Topology) -> None:
        chosen = settings.read_settings(self._args, topology, environment=os.environ, uid=os.geteuid())
        admitter = chosen.config.build(topology)
        node, roster = self._node, self._node.roster
        if roster.limits is not None:
            roster.limits = partial(limit_of, chosen)
        node.manager.reconfigure(Rules(admitter, topology, store_of(chosen, admitter)), node.due_pods())
        self._loop.period = chosen.reconcile_period
        self._about.update(rules(chosen, node.manager))


def rules(chosen: Settings, manager: Manager) -> dict[str, object]:
    """Return under which configuration a daemon goes on, and on what."""
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
