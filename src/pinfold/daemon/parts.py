"""The parts of a daemon, put together for each runtime; `serve` keeps them going."""

from __future__ import annotations

import asyncio
import math
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.daemon import NotKept, NotSaved, SecondManager, StateNotUsable, Weaker
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Limit
from pinfold.daemon.claim import Claim
from pinfold.errors import ConfigError, PinfoldError, Problem
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.moving.repacker import Notifier, Repacker
from pinfold.manager.nearby import near_devices
from pinfold.manager.node import Node
from pinfold.manager.saving.store import StateStore
from pinfold.manager.scoring import Scoring
from pinfold.manager.shielding import Shielding
from pinfold.manager.sources.kept import KeptWorkloads
from pinfold.manager.sources.outputs import bound_outputs
from pinfold.manager.sources.resumption import Resumption
from pinfold.manager.sources.supervisor import Supervisor
from pinfold.manager.sources.workbook import Workbook
from pinfold.manager.telling.names import PodNames, recalled
from pinfold.manager.telling.telling import Telling
from pinfold.node.exclusivity import Meter
from pinfold.node.grouperrors import GroupError
from pinfold.node.journal.files import DIRECTORY, Archive
from pinfold.node.machine.devices import Devices
from pinfold.node.machine.memory import nodes_with_memory
from pinfold.node.notices import Notices
from pinfold.node.outputs.outputs import OutputLimits, Outputs
from pinfold.node.processgroups.affinity import groups as affinity
from pinfold.node.processgroups.errors import GroupInUseError
from pinfold.node.processgroups.groups import choose
from pinfold.node.register import Register, Registered, directory_of
from pinfold.node.resctrl.files import RealFiles
from pinfold.node.resctrl.groups import Resctrl
from pinfold.node.shield.shield import Host, Shield
from pinfold.runtimes.caching import CachingApplier
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, ContainerRef, PodUID
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.loop import Source
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.runtimes.base import Applier, Launcher
    from pinfold.settings.settings import Settings


_DISK: Final = ThreadPoolExecutor(1, "disk")
"""Writes the files of the state directory, one after the other."""
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
    """Removes what was published about the node."""


class Basis(NamedTuple):
    """The inputs that every runtime's parts need."""

    chosen: Settings
    topology: Topology
    admitter: Admitter
    bus: Bus


def store_of(chosen: Settings, admitter: Admitter) -> StateStore:
    """Return the store of the State."""
    patience = _PATIENCE if chosen.runtime == "nri" else None
    return StateStore(chosen.state_dir, admitter.policy, chosen.config.gates, _DISK, patience)


def memory_of(chosen: Settings) -> CPUSet | None:
    """Return the NUMA nodes that have memory; None if that is not known."""
    return None if chosen.preset else nodes_with_memory(chosen.sysroot)


def with_caches(chosen: Settings, applier: Applier, only_watches: Callable[[], bool] = lambda: False) -> Applier:
    """Return an Applier that also divides the cache, if there is a table for it."""
    table = chosen.cache_classes
    if not table:
        return applier
    return CachingApplier(applier, Resctrl(RealFiles(chosen.sysroot), table), table, only_watches)


def set_shielding(basis: Basis, manager: Manager, applier: Applier | None = None, *, read_only: bool = False) -> None:
    """Let the Manager move the rest of this host, if the user wants that; what an earlier daemon moved comes back.

    *applier* knows the processes of containers, if they are not those of a runtime. Only this host can be moved, no
    recorded one.
    """
    chosen = basis.chosen
    if chosen.runtime == "simulated" or chosen.sysroot != Path("/"):
        return
    shield = Shield(_host_around(applier), chosen.state_dir)
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
    return Manager(rules, loaded.state, applier, roster, telling)


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
    manager.show = notifier.show
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


async def host_parts(basis: Basis) -> Parts:
    """Return the parts of a daemon for plain processes, or for simulated ones."""
    chosen = basis.chosen
    register = None if chosen.runtime == "simulated" else _registered(basis)
    applier, launcher, clean_up = _simulated() if chosen.runtime == "simulated" else _processes(chosen)
    limits = OutputLimits(chosen.outputs.each, chosen.outputs.total)
    outputs = Outputs(chosen.outputs.directory, limits, drained=chosen.runtime != "simulated")
    running: dict[PodUID, dict[str, CPUSet]] = {}
    for ref, cpus in applier.find().items():
        running.setdefault(ref.pod, {})[ref.name] = cpus
    roster = Roster(local_memory=chosen.local_memory)
    roster.limits = partial(limit_of, chosen)
    manager = loaded_manager(basis, with_caches(chosen, applier), roster, running)
    claim(basis)
    notifier = notifier_of(basis, manager)
    applier.prepare(manager.wanted.shared)
    set_shielding(basis, manager, applier)
    scoring = scoring_of(manager)
    await manager.start()
    node = Node(manager, roster, basis.bus)
    node.link = ("connected", applier.kind)
    if chosen.runtime != "simulated":
        node.scores = scoring.scores
    repacker = repacker_of(basis, node, notifier)
    kept = KeptWorkloads(chosen.state_dir, disk=_DISK)
    workbook = Workbook(roster, launcher, kept, basis.bus, outputs)
    workbook.near = partial(near_devices, Devices(Path("/nonexistent") if chosen.preset else chosen.sysroot))
    supervisor = Supervisor(node, launcher, workbook, basis.bus)
    await Resumption(supervisor, node, basis.bus).resume(*kept.load())
    bounding = partial(bound_outputs, outputs, workbook, chosen.state_dir)
    sources: list[Source] = [supervisor.follow, bounding, repacker.follow]
    if register is not None:
        sources.append(partial(_look_for_others, basis, manager, register))
    return Parts(node, sources, repacker, supervisor, clean_up)


def _host_around(applier: Applier | None) -> Host:
    """Return this host, which knows the processes of the applier's containers, if it has some."""
    if not isinstance(applier, ProcessApplier):
        return Host(Path("/"))
    by_affinity = applier.kind == affinity.KIND

    def processes() -> dict[int, CPUSet]:
        found: dict[int, CPUSet] = {}
        for ref in applier.known:
            with suppress(GroupError):
                group = applier.groups.group(ref)
                found |= dict.fromkeys(group.members(), EMPTY if by_affinity else group.cpus())
        return found

    return Host(Path("/"), members=processes) if by_affinity else Host(Path("/"), joined=processes)


def _registered(basis: Basis) -> Register:
    """Return the register of this user's daemons, with ours in it; raise if one has the same groups."""
    register = Register(directory_of(os.environ, os.geteuid()))
    if not register.enter(basis.chosen.group_name):
        basis.bus.tell(Weaker("other daemons that give the same CPUs away are not noticed: no runtime directory"))
    return register


async def _look_for_others(basis: Basis, manager: Manager, register: Register) -> None:
    """Report each daemon that can give the same CPUs away, for ever."""
    told = set[Registered]()
    while True:
        mine = manager.rules.admitter.policy.allocatable
        register.tell(mine)
        others = {other for other in await asyncio.to_thread(register.others) if other.cpus & mine}
        for name, pid, cpus in others - told:
            basis.bus.tell(SecondManager(name, pid, cpus & mine))
        told = others
        await asyncio.sleep(basis.chosen.reconcile_period)


def limit_of(chosen: Settings, container: Container) -> Limit:
    """Return the weight and quota that a container has in the shared pool."""
    amounts = container.resources
    return Limit(amounts.requests.cpu or 0, amounts.limits.cpu if chosen.cfs_quota else None, chosen.cfs_period)


def _simulated() -> tuple[SimulatedApplier, Launcher, Callable[[], None]]:
    applier = SimulatedApplier()
    return applier, SimulatedLauncher(applier), lambda: None


def _processes(chosen: Settings) -> tuple[ProcessApplier, Launcher, Callable[[], None]]:
    groups = choose(None if chosen.groups == "auto" else chosen.groups, name=chosen.group_name)
    if chosen.local_memory and groups.kind == affinity.KIND:
        raise ConfigError(Problem("--local-memory needs cgroups; this daemon sets the affinity of threads only"))
    groups.hold()
    applier = ProcessApplier(groups, chosen.state_dir)
    return applier, ProcessLauncher(applier), partial(_remove_all, groups)


def _remove_all(groups: ProcessGroups) -> None:
    """Remove all groups; raise if processes are left that could not be ended."""
    if left := groups.remove_empty():
        raise GroupInUseError(groups.name, left)
