"""The catalogue's machines, a case's policy, and its steps, as `pinfold.core` takes them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pinfold.core.allocators.order import Fidelity, Machine
from pinfold.core.config import check_machine
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.policies.none import NonePolicy
from pinfold.core.policies.options import POD_LEVEL, parse_options
from pinfold.core.policies.reserving import arrangement_of, reserve
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.trace import Defect, Recorder, Trace
from pinfold.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pinfold.core.policies.base import Policy

Case = dict[str, Any]  # Any: recorded JSON, read field by field


class Outcome(NamedTuple):
    """What a replay found: the difference in words, None if there is none, and the reference's defects on the way."""

    difference: str | None
    defects: frozenset[Defect] = frozenset()


class Node:
    """A machine with a policy on it; notes the defects of everything it is shown."""

    def __init__(self, case: Case, machine: Machine) -> None:
        self.topology = machine.topology
        self.defects: set[Defect] = set()
        self.policy: Policy = NonePolicy()
        self.reserved = EMPTY
        self.kept_apart = EMPTY
        if case.get("policy", "static") != "none":
            self._make_static(case, machine)

    def _make_static(self, case: Case, machine: Machine) -> None:
        gates = case.get("gates", {})
        options, problems = parse_options(case["options"], gates)
        problems += check_machine(options, case.get("tm", {}).get("policy", "none"), machine.topology)
        if problems:
            raise ConfigError(*problems)
        given = case["reserved"]
        cpus = CPUSet.parse(given["cpus"]) if "cpus" in given else None
        count = given.get("count", 0 if cpus is None else len(cpus))
        recorder = Recorder()
        self.reserved = reserve(machine, arrangement_of(options, machine), count, cpus, recorder)
        self.defects |= {defect for defect, _ in recorder.trace().defects}
        dynamic = case.get("policy") == "dynamic"
        self.policy = StaticPolicy(machine, self.reserved, options, pod_level=POD_LEVEL.is_on(gates), dynamic=dynamic)
        self.defects |= {defect for defect, _ in self.policy.defects}
        if options.strict_cpu_reservation:
            self.kept_apart = self.reserved
        if not self.topology.online - self.kept_apart:
            self.defects.add(Defect.EMPTY_SHARED_POOL)

    def note(self, trace: Trace) -> None:
        """Remember the defects in the Trace of a decision or refusal."""
        self.defects |= {defect for defect, _ in trace.defects}

    def broken(self, state: State) -> list[str]:
        """Return the laws that *state* breaks."""
        if isinstance(self.policy, NonePolicy) or not self.topology.online - self.kept_apart:
            return []
        broken = state.check(self.topology.online, kept_apart=self.kept_apart)
        if taken := state.exclusive & self.reserved:
            broken.append(f"reserved CPUs {taken} are assigned")
        return broken


class Machines:
    """The machines of a catalogue, prepared once for each fidelity."""

    def __init__(self, catalogue: Mapping[str, Any]) -> None:  # Any: recorded JSON
        self.topologies = {name: Topology.from_rows(entry["cpus"]) for name, entry in catalogue.items()}
        self._prepared: dict[tuple[str, Fidelity], Machine] = {}

    def prepared(self, name: str, fidelity: Fidelity) -> Machine:
        """Return the machine *name* for allocators."""
        key = (name, fidelity)
        if key not in self._prepared:
            self._prepared[key] = Machine(self.topologies[name], fidelity)
        return self._prepared[key]


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the cases of a file, a line each, compressed or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in data.splitlines():
        yield json.loads(line)


def state_from(data: Case) -> State:
    """Return the State that a case writes as default and assignments."""
    assignments = {
        PodUID(pod): {name: CPUSet.parse(cpus) for name, cpus in containers.items()}
        for pod, containers in data["assignments"].items()
    }
    return State(CPUSet.parse(data["default"]), assignments)


def state_data(state: State) -> Case:
    """Return a State as cases write it."""
    assignments = {
        pod: {name: str(cpus) for name, cpus in containers.items()} for pod, containers in state.assignments.items()
    }
    return {"assignments": assignments, "default": str(state.shared)}


def collect(policy: Policy, state: State, active: Collection[str]) -> State:
    """Return the State without the Assignments of pods that are not active, as the kubelet collects stale state."""
    for pod, containers in state.assignments.items():
        if pod not in active:
            for name in containers:
                state = policy.release(state, ContainerRef(pod, name)).state
    return state


def node_mask(data: Case | None) -> int | None:
    """Return the NUMA mask that a case writes as an affinity."""
    if data is None or data["numa"] is None:
        return None
    nodes: list[int] = data["numa"]
    return sum(1 << node for node in nodes)


def differences(found: Mapping[str, object], expected: Mapping[str, object]) -> str | None:
    """Return the fields that differ, in words; None if none does."""
    keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
    return "; ".join(f"{key}: expected {expected.get(key)!r}, found {found.get(key)!r}" for key in keys) or None
