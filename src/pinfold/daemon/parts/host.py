"""The parts of a daemon for plain processes, or for simulated ones; imported only there."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.core.events.daemon import SecondManager, Weaker
from pinfold.core.machine.cpuset import EMPTY
from pinfold.daemon.directory import check_ours
from pinfold.daemon.parts.common import (
    WORKLOADS_DISK,
    Basis,
    Parts,
    claim,
    limit_of,
    loaded_manager,
    notifier_of,
    repacker_of,
    scoring_of,
    set_shielding,
    with_caches,
)
from pinfold.errors import ConfigError, Problem
from pinfold.manager.nearby import near_devices
from pinfold.manager.node import Node
from pinfold.manager.repairing.noticing import Noticing
from pinfold.manager.sources.kept import KeptWorkloads
from pinfold.manager.sources.outputs import bound_outputs
from pinfold.manager.sources.resumption import Resumption
from pinfold.manager.sources.supervisor import Supervisor
from pinfold.manager.sources.workbook import Workbook
from pinfold.node.grouperrors import GroupError
from pinfold.node.groupwatch import GroupWatch
from pinfold.node.machine.devices import Devices
from pinfold.node.outputs.outputs import OutputLimits, Outputs
from pinfold.node.processgroups.errors import GroupInUseError
from pinfold.node.processgroups.groups import AFFINITY, choose
from pinfold.node.register import Register, Registered, directory_of
from pinfold.node.starting.unfinished import settle
from pinfold.node.unified import KIND as UNIFIED
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.roster import Roster
from pinfold.settings.table import CpusetPartition, OtherDaemons

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import PodUID
    from pinfold.manager.loop import Source
    from pinfold.manager.manager import Manager
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.node.processgroups.partitions import Partitions
    from pinfold.node.shield.host import Host
    from pinfold.runtimes.base import Applier, Launcher
    from pinfold.runtimes.simulated.launcher import SimulatedApplier


async def host_parts(basis: Basis) -> Parts:
    """Return the parts of a daemon for plain processes, or for simulated ones."""
    chosen = basis.chosen
    check_ours("log", chosen.outputs.directory)
    register = None if chosen.runtime == "simulated" else _registered(basis)
    applier, launcher, clean_up = _simulated() if chosen.runtime == "simulated" else await _processes(basis)
    limits = OutputLimits(chosen.outputs.each, chosen.outputs.total)
    outputs = Outputs(chosen.outputs.directory, limits, drained=chosen.runtime != "simulated")
    running: dict[PodUID, dict[str, CPUSet]] = {}
    for ref, cpus in applier.find().items():
        running.setdefault(ref.pod, {})[ref.name] = cpus
    roster = Roster(local_memory=chosen.local_memory)
    roster.limit_by(partial(limit_of, chosen))
    manager = loaded_manager(basis, with_caches(chosen, applier), roster, running)
    if register is not None and chosen.other_daemons is OtherDaemons.REFUSE:
        register.claim(manager.rules.admitter.policy.allocatable)
    claim(basis)
    notifier = notifier_of(basis, manager)
    applier.prepare(manager.wanted.shared)
    set_shielding(basis, manager, partial(_host_around, applier))
    scoring = None if chosen.runtime == "simulated" else scoring_of(manager)
    await manager.start()
    node = Node(manager, roster, basis.bus)
    node.link = ("connected", applier.kind)
    if scoring is not None:
        node.scores = scoring.scores
    repacker = repacker_of(basis, node, notifier)
    kept = KeptWorkloads(chosen.state_dir, disk=WORKLOADS_DISK)
    workbook = Workbook(roster, launcher, kept, basis.bus, outputs)
    workbook.near = partial(near_devices, Devices(Path("/nonexistent") if chosen.preset else chosen.sysroot))
    supervisor = Supervisor(node, launcher, workbook, basis.bus)
    await Resumption(supervisor, node, basis.bus).resume(*kept.load())
    bounding = partial(bound_outputs, outputs, workbook, chosen.state_dir)
    sources: list[Source] = [supervisor.follow, bounding, repacker.follow]
    if register is not None:
        sources.append(partial(_look_for_others, basis, manager, register))
    if isinstance(applier, ProcessApplier):
        sources += _noticing(manager, applier)
    return Parts(node, sources, repacker, supervisor, clean_up)


def _host_around(applier: Applier | None) -> Host:
    """Return this host, which knows the processes of the applier's containers, if it has some."""
    from pinfold.node.shield.host import Host  # noqa: PLC0415 - few daemons move the rest of the host

    if not isinstance(applier, ProcessApplier):
        return Host(Path("/"))
    by_affinity = applier.kind == AFFINITY

    def processes() -> dict[int, CPUSet]:
        found: dict[int, CPUSet] = {}
        for ref in applier.known:
            with suppress(GroupError):
                group = applier.groups.group(ref)
                found |= dict.fromkeys(group.members(), EMPTY if by_affinity else group.cpus())
        return found

    return Host(Path("/"), members=processes) if by_affinity else Host(Path("/"), joined=processes)


def _noticing(manager: Manager, applier: ProcessApplier) -> list[Source]:
    """Return what hears of changes by other programs, if there are cgroups and inotify."""
    places = applier.groups.places()
    if not places.flat:
        return []
    try:
        watch = GroupWatch(places)
    except OSError:  # no inotify, or no more of it for this user: the periodic check finds all
        return []
    applier.heed(watch)
    return [Noticing(manager, watch).follow]


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
        # Without a thread, which takes longer than the look: a runtime directory is in memory.
        others = {other for other in register.others() if other.cpus & mine}
        for name, pid, cpus in others - told:
            basis.bus.tell(SecondManager(name, pid, cpus & mine))
        told = others
        await asyncio.sleep(basis.chosen.reconcile_period)


def _simulated() -> tuple[SimulatedApplier, Launcher, Callable[[], None]]:
    from pinfold.runtimes.simulated.launcher import (  # noqa: PLC0415 - only for a simulation
        SimulatedApplier,
        SimulatedLauncher,
    )

    applier = SimulatedApplier()
    return applier, SimulatedLauncher(applier), lambda: None


async def _processes(basis: Basis) -> tuple[ProcessApplier, Launcher, Callable[[], None]]:
    chosen = basis.chosen
    groups = choose(None if chosen.groups == "auto" else chosen.groups, name=chosen.group_name)
    if chosen.local_memory and groups.kind == AFFINITY:
        raise ConfigError(Problem("--local-memory needs cgroups; this daemon sets the affinity of threads only"))
    if (partitions := _partitions(groups)) is not None:
        partitions.kind = chosen.cpuset_partition
        partitions.told = lambda why: basis.bus.tell(Weaker(why))
    elif chosen.cpuset_partition is not CpusetPartition.MEMBER:
        basis.bus.tell(Weaker(f"exclusive CPUs are no scheduler partitions: {groups.kind} has none; cgroup v2 has"))
    groups.hold()
    await settle(groups.name)
    applier = ProcessApplier(groups, chosen.state_dir)
    return applier, ProcessLauncher(applier), partial(_remove_all, groups)


def _partitions(groups: ProcessGroups) -> Partitions | None:
    """Return the scheduler partitions that exclusive CPUs can be: cgroup v2 has them."""
    if groups.kind != UNIFIED:
        return None
    from pinfold.node.processgroups.v2 import ProcessGroupsV2  # noqa: PLC0415 - a host needs one kind

    return groups.partitions if isinstance(groups, ProcessGroupsV2) else None


def _remove_all(groups: ProcessGroups) -> None:
    """Remove all groups; raise if processes are left that could not be ended."""
    if left := groups.remove_empty():
        raise GroupInUseError(groups.name, left)
