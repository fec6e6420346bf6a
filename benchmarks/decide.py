"""Decisions: ns per operation beside the reference kubelet's figure (Go, same scenarios, in reference.json).

    python -m benchmarks decide [--json] [--only NAME]

A scenario's name says all of it, as in `default/cpus=128/half/req=8`. The machine M(n, sockets, NUMA nodes per socket,
cores per cache) has SMT2 with sibling c + n/2; core 0 is reserved. `half`: every odd core is held by a pod of its own.
A pair is one admission and the release of the same container. The State is immutable, so a pair leaves nothing behind.
Nothing is remembered between operations. The figure is the minimum of repetitions, in CPU time but for `checkpoint`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks._targets import Target, verdict
from pinfold.cli.output.progress import shown
from pinfold.core.admission import Admitter
from pinfold.core.allocators.order import Machine
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.policies.options import parse_options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.node.statefile import write_atomically
from tests.parity.node import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REFERENCE = Path(__file__).with_name("reference.json")
_BATCH = 2_000_000  # ns
_MEASURED = 400_000_000
_TIMES_FASTER = {1_000_000: 100.0, 100_000: 20.0, 20_000: 3.0, 0: 0.5}
"""The targets, by the least ns that the reference takes."""
_TIMES_FASTER_WITH_DISK = 1.0
_OPTIONS = {
    "default": (),
    "checkpoint": (),
    "admit": (),
    "hints": (),
    "full-pcpus-only": ("full-pcpus-only",),
    "distribute-cpus-across-cores": ("distribute-cpus-across-cores",),
    "distribute": ("distribute-cpus-across-numa",),
    "distribute+full-pcpus": ("distribute-cpus-across-numa", "full-pcpus-only"),
    "uncore": ("prefer-align-cpus-by-uncorecache",),
}


class Figure(NamedTuple):
    """What was measured for a scenario."""

    name: str
    ns: float
    reference: int

    @property
    def ratio(self) -> float:
        """How many times faster than the reference."""
        return self.reference / self.ns

    @property
    def target(self) -> Target:
        """How many times faster it is meant to be, by what the reference takes."""
        times = next(times for least, times in _TIMES_FASTER.items() if self.reference >= least)
        if self.name.startswith("checkpoint"):  # mostly the disk's time, which the reference's figure has less of
            times = _TIMES_FASTER_WITH_DISK
        return Target(f"{self.name}, times faster", self.ratio, times, at_least=True)

    def __str__(self) -> str:
        return f"{self.name:<52} {self.ns:>12,.0f} ns {self.reference:>16,} ns {self.ratio:>9,.1f}x"


def machine(cpus: int, sockets: int, nodes_per_socket: int, cores_per_cache: int) -> Topology:
    """Return M(cpus, sockets, NUMA nodes per socket, cores per cache)."""
    cores = cpus // 2
    rows = []
    for cpu in range(cpus):
        core = cpu % cores
        node = core // (cores // (sockets * nodes_per_socket))
        rows.append((cpu, core, core // (cores // sockets), node, core // cores_per_cache))
    return Topology.from_rows(rows)


class Scenario:
    """A node and a pod, as the name says."""

    def __init__(self, name: str) -> None:
        kind, *parts = name.split("/")
        given = dict(part.split("=") for part in parts if "=" in part)
        cpus = int(given["cpus"])
        nodes = int(given.get("numa", 2))
        cores_per_cache = 4 if cpus == 16 else 8  # noqa: PLR2004 - the smallest machine has smaller caches
        self.topology = machine(cpus, 2, nodes // 2, cores_per_cache)
        options = dict.fromkeys(_OPTIONS[kind], "true")
        parsed, problems = parse_options(options, {"CPUManagerPolicyAlphaOptions": True})
        assert not problems  # noqa: S101 - the table above is ours
        self.policy = StaticPolicy(Machine(self.topology), CPUSet.of(0, cpus // 2), parsed)
        self.state = half_full(self.topology, cpus // 2) if "half" in parts else State(self.topology.online)
        amounts = Amounts(int(given["req"]) * 1000, 64 << 20)
        self.container = Container("c", Resources(amounts, amounts))
        self.pod = Pod(PodUID("pod"), "pod", containers=(self.container,))

    def pair(self) -> Callable[[], object]:
        """Return the operation: admit, then release."""
        policy, state, pod, container, ref = (
            self.policy,
            self.state,
            self.pod,
            self.container,
            self.pod.ref(self.container),
        )
        return lambda: policy.release(policy.admit(state, pod, container).state, ref)

    def hints(self) -> Callable[[], object]:
        """Return the operation: all hints of the container, listed."""
        policy, state, pod, container = self.policy, self.state, self.pod, self.container
        return lambda: list(policy.hints(state, pod, container) or ())

    def admit(self) -> Callable[[], object]:
        """Return the operation: hints, merge, admit; then the pod is gone and stale state is collected."""
        manager = TopologyManager.for_machine("restricted", {}, self.topology)
        admitter = Admitter(self.policy, manager)
        policy, state, pod = self.policy, self.state, self.pod
        return lambda: collect(policy, admitter.admit(state, pod).state, ())

    def checkpoint(self, directory: Path) -> Callable[[], object]:
        """Return the operation: a pair, with the state file written durably after each change."""
        policy, state, pod, container, ref = (
            self.policy,
            self.state,
            self.pod,
            self.container,
            self.pod.ref(self.container),
        )
        path = directory / "cpu_manager_state"

        def save(state: State) -> None:
            write_atomically(path, format_checkpoint("static", state).encode())

        def operation() -> None:
            admitted = policy.admit(state, pod, container).state
            save(admitted)
            save(policy.release(admitted, ref).state)

        return operation


def half_full(topology: Topology, cores: int) -> State:
    """Return the State in which every odd core is held by a pod of its own."""
    held = {PodUID(f"frag-{core}"): {"c": CPUSet.of(core, core + cores)} for core in range(1, cores, 2)}
    taken = CPUSet.from_cpus(cpu for containers in held.values() for cpu in containers["c"])
    return State(topology.online - taken, held)


def merge(name: str) -> Callable[[], object]:
    """Return the operation: one merge of three providers over all masks of the NUMA nodes."""
    _, policy, *parts = name.split("/")
    nodes = int(dict(part.split("=") for part in parts)["numa"])
    masks = [
        sum(1 << node for node in chosen) for size in range(1, nodes + 1) for chosen in combinations(range(nodes), size)
    ]
    everything = [Hint(mask, mask.bit_count() == 1) for mask in masks]
    device = [hint for hint in everything if (hint.affinity or 0) >> nodes // 2 & 1]
    providers = [{"cpu": HintList(everything)}, {"memory": HintList(everything)}, {"example.com/dev": HintList(device)}]
    manager = TopologyManager.create(policy, {}, range(nodes), {})
    return lambda: manager.merge(providers)


def operations(names: Iterator[str], directory: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each scenario's operation."""
    for name in names:
        match name.split("/")[0]:
            case "merge":
                yield name, merge(name)
            case "hints":
                yield name, Scenario(name).hints()
            case "admit":
                yield name, Scenario(name.replace("restricted/", "")).admit()
            case "checkpoint":
                yield name, Scenario(name).checkpoint(directory)
            case _:
                yield name, Scenario(name).pair()


def fastest(operation: Callable[[], object], clock: Callable[[], int] = time.thread_time_ns) -> float:
    """Return the ns of one operation: the minimum over many short batches, so that other programs disturb only some.

    The clock counts CPU time; an operation that waits for a disk needs another.
    """
    count = 1
    while True:
        start = clock()
        for _ in range(count):
            operation()
        spent = clock() - start
        if spent >= _BATCH:
            break
        count = max(count + 1, min(count * 10, int(count * _BATCH * 1.2 / max(spent, 1))))
    best = spent / count
    end = clock() + _MEASURED
    while clock() < end:
        start = clock()
        for _ in range(count):
            operation()
        best = min(best, (clock() - start) / count)
    return best


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks decide", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    parser.add_argument("--only", default="", metavar="NAME", help="only scenarios whose name contains this")
    wanted = parser.parse_args(arguments)
    reference: dict[str, int] = json.loads(REFERENCE.read_text())
    names = [name for name in reference if wanted.only in name]
    if not names:
        print(f"no scenario has {wanted.only!r} in its name; see {REFERENCE.name}", file=sys.stderr)
        return 2
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        # As text, each line shows how far it is.
        steps = operations(iter(names), Path(directory))
        for name, operation in shown(steps, len(names), "measuring") if wanted.json else steps:
            clock = time.perf_counter_ns if name.startswith("checkpoint") else time.thread_time_ns
            figures.append(Figure(name, fastest(operation, clock), reference[name]))
            if not wanted.json:
                print(figures[-1], flush=True)
    if wanted.json:
        rows = [{"name": f.name, "ns": f.ns, "reference_ns": f.reference, "ratio": f.ratio} for f in figures]
        print(json.dumps(rows, indent=1))
    return verdict(figure.target for figure in figures)
