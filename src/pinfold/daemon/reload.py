"""Applies another configuration, or a change of the online CPUs, while the daemon runs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.core.events.daemon import ReloadRefused, Warned
from pinfold.core.events.repairs import Hotplugged, HotplugRefused
from pinfold.core.machine.summary import summary
from pinfold.daemon.parts.common import limit_of, memory_of, store_of
from pinfold.errors import ConfigError, PinfoldError
from pinfold.manager.manager import Rules, agree_to_all
from pinfold.manager.watching import watch_under
from pinfold.settings.table import RELOADED, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.recover import Fate
    from pinfold.daemon.parts.common import Basis, Parts
    from pinfold.manager.loop import Loop
    from pinfold.manager.manager import Agree, Manager
    from pinfold.settings.settings import Settings

_SHOWN: Final = 5
"""How many containers an error names."""


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

    def other(self, config: str | None) -> Again:
        """Return the same, or the same with another configuration file."""
        ...

    def is_replaced(self) -> bool:
        """Whether the configuration file is watched, and is another one than when it was last read or seen."""
        ...

    def seen(self) -> None:
        """Do not take the files as they are now for replaced ones: they are read, and may be wrong."""
        ...


class MovesRefused(ConfigError):  # noqa: N818 - the fact
    """A new configuration would change the CPUs of running containers, which have them for life."""

    def __init__(self, policy: str, moved: Sequence[tuple[str, Fate]]) -> None:
        shown = ", ".join(f"{name} {fate.before} -> {fate.after or 'shared'}" for name, fate in moved[:_SHOWN])
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        super().__init__(
            f"policy {policy} gives CPUs for life, and this would change those of {len(moved)} running "
            f"{'container' if len(moved) == 1 else 'containers'}: {shown}{more}; "
            "to do it anyway: pinfold reconfigure --allow-moves"
        )
        self.moved = moved


class Foreseen(Exception):  # noqa: N818 - no error: ends a dry run
    """What a configuration would do; nothing was changed."""


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
            await self.reconfigure()
        except (PinfoldError, OSError) as error:
            self._bus.tell(ReloadRefused(str(error)))

    async def reconfigure(
        self, config: str | None = None, *, dry_run: bool = False, allow_moves: bool = False
    ) -> dict[str, object]:
        """Apply the configuration file, or another one, as a whole; or raise, and leave all as it was.

        Without *allow_moves* no running container may lose CPUs that it has for life; *dry_run*: only say what would
        be. Return the policy, and what becomes of each container with CPUs of its own.
        """
        again = self._again.other(config)
        if config is None and not dry_run:
            self._again.seen()
        found: list[tuple[str, Fate]] = []

        def agree(fates: Sequence[Fate]) -> None:
            found.extend((self._name(fate.container), fate) for fate in fates)
            if dry_run:
                raise Foreseen
            if not allow_moves:
                self._check_moves(found)

        topology = again.machine()
        chosen = again.settings(topology)
        with suppress(Foreseen):
            await self._go_on(topology, chosen, agree)
            self._again = again
        rows = [{"container": name, "before": str(fate.before), **_after(fate)} for name, fate in found]
        return {"policy": str(chosen.config.policy), "containers": rows}

    def _name(self, ref: ContainerRef) -> str:
        pod = self._node.manager.name(ref.pod)
        return "/".join(filter(None, (pod.namespace, pod.name, ref.name)))

    def _check_moves(self, found: Sequence[tuple[str, Fate]]) -> None:
        """Raise if containers that have their CPUs for life would lose some, which are still online."""
        policy, online = self._node.manager.rules.admitter.policy, self._again.online()
        moved = [(name, fate) for name, fate in found if not fate.stays and (online is None or fate.before <= online)]
        if moved and policy.repacking is None:
            raise MovesRefused(policy.name, moved)

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
            topology = self._again.machine()
            await self._go_on(topology, self._again.settings(topology))
        except (PinfoldError, OSError) as error:  # the next check tries again
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._bus.tell(HotplugRefused(self._trouble))

    async def _go_on(self, topology: Topology, chosen: Settings, agree: Agree = agree_to_all) -> None:
        admitter = chosen.config.build(topology)
        node, roster, shielding = self._node, self._node.roster, self._node.manager.shielding
        limits, shielded = roster.limits, shielding.on
        if limits is not None:
            roster.limit_by(partial(limit_of, chosen))
        shielding.on = chosen.shield and not node.read_only
        try:
            rules_ = Rules(admitter, topology, store_of(chosen, admitter), memory_of(chosen))
            if node.read_only:
                watch_under(node.manager, rules_)
            else:
                await node.manager.reconfigure(rules_, node.due_pods, agree)
        except BaseException:
            roster.limit_by(limits)
            shielding.on = shielded
            raise
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


def _after(fate: Fate) -> dict[str, object]:
    return {"after": None if fate.after is None else str(fate.after), "why": fate.why}


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
