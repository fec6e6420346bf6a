"""The parts that the daemons of all runtimes have; `serve` keeps them going."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.daemon import NotKept, NotSaved, StateNotUsable
from pinfold.core.reconcile import Limit
from pinfold.daemon.claim import Claim
from pinfold.errors import PinfoldError
from pinfold.manager.localmemory import LocalMemory
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.moving.notifier import Notifier
from pinfold.manager.moving.repacker import Repacker
from pinfold.manager.saving.store import StateStore
from pinfold.manager.scoring import Scoring
from pinfold.manager.shielding import Shielding
from pinfold.manager.telling.names import PodNames, recalled
from pinfold.manager.telling.telling import Telling
from pinfold.node.exclusivity import Meter
from pinfold.node.journal.files import DIRECTORY, Archive
from pinfold.node.machine.memory import memory_resources, nodes_with_memory
from pinfold.node.notices import Notices
from pinfold.node.shield.shield import Shield
from pinfold.runtimes.caching import CachingApplier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, ContainerRef, PodUID
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.loop import Source
    from pinfold.manager.node import Node
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.shield.host import Host
    from pinfold.runtimes.base import Applier
    from pinfold.runtimes.roster import Roster
    from pinfold.settings.settings import Settings


STATE_DISK: Final = ThreadPoolExecutor(1, "state")
"""Writes the State, one after the other …"""
WORKLOADS_DISK: Final = ThreadPoolExecutor(1, "workloads")
"""… and this the workloads, at the same time: an admission waits for both."""
_PATIENCE: Final = 1.5
"""Seconds: a container runtime waits 2 for an answer over NRI, and then goes on without."""


class Parts(NamedTuple):
    """The parts of a daemon."""

    node: Node
    sources: Sequence[Source]
    """The sources that report containers to the node, each for ever."""
    repacker: Repacker
    supervisor: Supervisor | None = None
    """Where commands can be run."""
    clean_up: Callable[[], None] = lambda: None
    """Leaves nothing behind when all workloads have ended."""
    withdraw: Callable[[], Awaitable[None]] | None = None
    """Removes the node's object from the API server."""


class Basis(NamedTuple):
    """The inputs that every runtime's parts need."""

    chosen: Settings
    topology: Topology
    admitter: Admitter
    bus: Bus


def store_of(chosen: Settings, admitter: Admitter) -> StateStore:
    """Return the store of the State."""
    patience = _PATIENCE if chosen.runtime == "nri" else None
    return StateStore(chosen.state_dir, admitter.policy, chosen.config.gates, STATE_DISK, patience)


def memory_of(chosen: Settings) -> CPUSet | None:
    """Return the NUMA nodes that have memory; None if that is not known."""
    return None if chosen.preset else nodes_with_memory(chosen.sysroot)


def with_caches(chosen: Settings, applier: Applier, only_watches: Callable[[], bool] = lambda: False) -> Applier:
    """Return an Applier that also divides the cache, if there is a table for it."""
    table = chosen.cache_classes
    if not table:
        return applier
    from pinfold.node.resctrl.files import RealFiles  # noqa: PLC0415 - few hosts divide their caches
    from pinfold.node.resctrl.groups import Resctrl  # noqa: PLC0415

    return CachingApplier(applier, Resctrl(RealFiles(chosen.sysroot), table), table, only_watches)


def set_shielding(basis: Basis, manager: Manager, host: Callable[[], Host], *, read_only: bool = False) -> None:
    """Let the Manager move the rest of the *host*, if the user wants that; what an earlier daemon moved comes back.

    Only this host can be moved, no recorded one.
    """
    chosen = basis.chosen
    if chosen.runtime == "simulated" or chosen.sysroot != Path("/"):
        return
    shield = Shield(host, chosen.state_dir)
    manager.shielding = Shielding(manager.telling, shield, on=chosen.shield and not read_only)


def loaded_manager(basis: Basis, applier: Applier, roster: Roster, running: dict[PodUID, dict[str, CPUSet]]) -> Manager:
    """Return the Manager with what an earlier daemon has left: its State, and the containers that run."""
    store = store_of(basis.chosen, basis.admitter)
    loaded = store.load(running)
    if loaded.problem is not None:
        aside = None if loaded.aside is None else str(loaded.aside)
        basis.bus.tell(StateNotUsable(loaded.problem, aside))
    assigned = {**loaded.lost, **dict(loaded.state.flat())}
    telling = Telling(basis.bus, names=PodNames(lambda: _earlier_names(basis.chosen, assigned)))
    for ref, cpus in loaded.lost.items():
        telling.tell(NotKept(telling.name(ref.pod), ref.name, cpus))
    rules = Rules(basis.admitter, basis.topology, store, memory_of(basis.chosen))
    manager = Manager(rules, loaded.state, applier, roster, telling)
    if not basis.chosen.preset:
        manager.memory = LocalMemory(roster, partial(memory_resources, basis.chosen.sysroot))
    return manager


def _earlier_names(chosen: Settings, assigned: Mapping[ContainerRef, CPUSet]) -> Mapping[PodUID, PodName]:
    """Return the names of pods in the State, from the last State in the journal."""
    try:
        return recalled(Archive(chosen.state_dir / DIRECTORY).state_at(math.inf).exclusive, assigned)
    except (PinfoldError, OSError):
        return {}


def claim(basis: Basis) -> None:
    """Record which groups are about to be changed, for `pinfold leave` after a crash; a full disk is only reported."""
    try:
        Claim.of(basis.chosen).keep(basis.chosen.state_dir)
    except PinfoldError as error:
        basis.bus.tell(NotSaved(str(error)))


def notifier_of(basis: Basis, manager: Manager) -> Notifier:
    """Return what tells containers of their CPUs, from now on."""
    notifier = Notifier(manager, Notices(basis.chosen.state_dir / "notices"), basis.bus)
    manager.show, manager.shown = notifier.show, notifier.shown
    return notifier


def scoring_of(manager: Manager) -> Scoring:
    """Return what scores the containers that have CPUs of their own, from now on."""
    scoring, before = Scoring(Meter(), manager.applier), manager.show

    def show(want: Wanted) -> None:
        before(want)
        scoring.show(want)

    manager.show = show
    return scoring


def repacker_of(basis: Basis, node: Node, notifier: Notifier) -> Repacker:
    """Return what moves the node's containers when CPUs become free."""
    repacker = Repacker(node, notifier, basis.chosen.pace)
    node.notice_of = notifier.path_of
    node.releases.freed = repacker.wake
    return repacker


def limit_of(chosen: Settings, container: Container) -> Limit:
    """Return the weight and quota that a container has in the shared pool."""
    amounts = container.resources
    return Limit(amounts.requests.cpu or 0, amounts.limits.cpu if chosen.cfs_quota else None, chosen.cfs_period)
