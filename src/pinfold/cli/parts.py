"""The parts of a daemon, put together for each runtime; `serve` keeps them going."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.policies.options import POD_LEVEL
from pinfold.manager.kept import KeptWorkloads
from pinfold.manager.manager import Manager, Note
from pinfold.manager.store import StateStore
from pinfold.manager.supervisor import Host
from pinfold.manager.workloads import Common
from pinfold.node.groups import choose
from pinfold.runtimes.processes.applier import ProcessesRuntime
from pinfold.runtimes.simulated import SimulatedRuntime

if TYPE_CHECKING:
    from pinfold.cli.settings import Settings
    from pinfold.core.admission import Admitter
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import PodUID
    from pinfold.core.topology import Topology
    from pinfold.manager.loop import Node
    from pinfold.manager.manager import Watch
    from pinfold.manager.notes import Notes
    from pinfold.runtimes.base import Launcher, Runtime


_PATIENCE: Final = 1.5
"""Seconds: a container runtime waits 2 for an answer over NRI, and then goes on without."""


class Parts(NamedTuple):
    """What a daemon is made of."""

    manager: Manager
    node: Node
    runtime: Runtime
    kind: str
    host: Host | None = None
    """Where commands can be run."""


class Basis(NamedTuple):
    """What every runtime needs to be put together."""

    chosen: Settings
    topology: Topology
    admitter: Admitter
    notes: Notes
    watch: Watch


def store_of(chosen: Settings, admitter: Admitter) -> StateStore:
    """Return where the State is kept."""
    pod_level, patience = POD_LEVEL.is_on(chosen.config.gates), _PATIENCE if chosen.runtime == "nri" else None
    return StateStore(chosen.state_dir, admitter.policy, pod_level=pod_level, patience=patience)


def loaded_manager(basis: Basis, runtime: Runtime, running: dict[PodUID, dict[str, CPUSet]]) -> Manager:
    """Return the Manager with what an earlier daemon has left: its State, and whoever runs."""
    store = store_of(basis.chosen, basis.admitter)
    loaded = store.load(running)
    if loaded.problem is not None:
        basis.notes.tell(Note("state-not-usable", {"why": loaded.problem, "aside": loaded.aside}))
    for ref, cpus in loaded.lost.items():
        basis.notes.tell(Note("not-kept", {"pod": ref.pod, "container": ref.name, "cpus": str(cpus)}))
    return Manager(basis.admitter, runtime, store, loaded.state, basis.notes.tell, basis.topology, basis.watch)


def host_parts(basis: Basis) -> Parts:
    """Return the parts of a daemon for plain processes, or for simulated ones."""
    runtime = _launcher(basis.chosen)
    runtime.hold()
    running: dict[PodUID, dict[str, CPUSet]] = {}
    for ref, cpus in runtime.find().items():
        running.setdefault(ref.pod, {})[ref.name] = cpus
    manager = loaded_manager(basis, runtime, running)
    runtime.prepare(manager.wanted.shared)
    manager.start()
    chosen = basis.chosen
    common = Common(chosen.state_dir / "logs", chosen.cfs_quota, chosen.cfs_period)
    host = Host(manager, runtime, basis.notes, KeptWorkloads(chosen.state_dir), common)
    host.resume()
    return Parts(manager, host, runtime, runtime.kind, host)


def _launcher(chosen: Settings) -> Launcher:
    if chosen.runtime == "simulated":
        return SimulatedRuntime()
    groups = choose(None if chosen.groups == "auto" else chosen.groups, name=chosen.group_name)
    return ProcessesRuntime(groups, chosen.state_dir)
