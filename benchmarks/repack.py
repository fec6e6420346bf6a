"""Repacking: how scattered containers are after long churn on 2 x EPYC 9654, and how long a plan takes.

    python -m benchmarks repack [--events N] [--seed N] [--plot docs/images/repack.svg]

The same random events happen under each policy: containers of 1 to 48 CPUs come and go, and up to 95 % of the CPUs are
in use. Under `dynamic` up to two containers move after each release. Topology Manager: single-numa-node.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks._targets import Target, verdict
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape, preset
from pinfold.core.moving.repack import Movable, Packer
from pinfold.core.moving.repacking import Consent
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.core.state import State

if TYPE_CHECKING:
    from pinfold.core.admission import Admitter
    from pinfold.core.machine.topology import Topology
    from pinfold.core.moving.cost import Cost

_SIZES: Final = (1, 2, 2, 4, 4, 4, 6, 8, 8, 12, 16, 24, 48)
_FULL: Final = 0.95
_MOVES: Final = 2
_UNCORE: Final = {"prefer-align-cpus-by-uncorecache": "true"}
_POLICIES: Final = {
    "static": ("static", {}),
    "static, uncore": ("static", _UNCORE),
    "dynamic": ("dynamic", {}),
    "dynamic, uncore": ("dynamic", _UNCORE),
}
_PLAN_MS: Final = 20.0
_LARGE: Final = "sockets:2,l3:16,cores:8,threads:2"


class Churn(NamedTuple):
    """What came of all events under one policy."""

    caches: float
    """The mean of caches per container, over all events."""
    nodes: float
    split: float
    scattered: float
    """The share of containers with more caches than necessary."""
    refusals: int
    moves: int
    admit_us: float
    plan_ms: float


class Node:
    """A node that lives through the events."""

    def __init__(self, admitter: Admitter) -> None:
        self.admitter = admitter
        self.state = admitter.policy.start(State.new())
        self.refusals = self.moves = self.born = 0
        self.admissions: list[float] = []
        self.plans: list[float] = []

    def come(self, size: int) -> None:
        """Admit a container of so many CPUs, or count its refusal."""
        self.born += 1
        amounts = Amounts(size * 1000, 1 << 30)
        pod = Pod(PodUID(str(self.born)), "pod", containers=(Container("app", Resources(amounts, amounts)),))
        start = time.perf_counter()
        admission = self.admitter.admit(self.state, pod)
        self.admissions.append(time.perf_counter() - start)
        self.refusals += admission.refusal is not None
        if admission.refusal is None:
            self.state = admission.state

    def go(self, place: float) -> None:
        """Release the container at this place of all, and repack if the policy does."""
        refs = [ref for ref, _ in self.state.flat()]
        self.state = self.admitter.policy.release(self.state, refs[int(place * len(refs))]).state
        repacking = self.admitter.policy.repacking
        if repacking is None:
            return
        start = time.perf_counter()
        plan = repacking.plan(self.state, dict.fromkeys((ref for ref, _ in self.state.flat()), Consent()), _MOVES)
        self.plans.append(time.perf_counter() - start)
        for move in plan.moves:
            self.state = repacking.moved(self.state, move)
            self.moves += 1


def churn(policy: str, events: int, seed: int) -> Churn:
    """Return what comes of so many random events."""
    topology = preset("epyc-9654-2s")
    name, options = _POLICIES[policy]
    reserved = Reservation.of(CPUSet.of(0, 192))
    node = Node(Config(name, options, reserved, topology_policy="single-numa-node").build(topology))
    meter, dice = Packer(topology).meter, random.Random(seed)  # noqa: S311 - no secrets here
    room = len(node.admitter.policy.allocatable)
    seen: list[tuple[float, float, float, float]] = []
    for _ in range(events):
        size, place, coin = dice.choice(_SIZES), dice.random(), dice.random()
        used = len(node.state.exclusive)
        if used and (used >= _FULL * room or coin < used / room / 3):
            node.go(place)
        else:
            node.come(size)
        costs = [(meter.cost(cpus.mask), -(-len(cpus) // 16)) for _, cpus in node.state.flat()]
        seen += [_means(costs)] if costs else []
    caches, nodes, split, scattered = map(mean, zip(*seen, strict=True))
    plan = median(node.plans) * 1e3 if node.plans else 0.0
    return Churn(caches, nodes, split, scattered, node.refusals, node.moves, median(node.admissions) * 1e6, plan)


def _means(costs: list[tuple[Cost, int]]) -> tuple[float, float, float, float]:
    count = len(costs)
    caches = sum(cost.uncore_caches for cost, _ in costs) / count
    nodes = sum(cost.numa_nodes for cost, _ in costs) / count
    split = sum(cost.split_cores for cost, _ in costs) / count
    return caches, nodes, split, sum(cost.uncore_caches > fewest for cost, fewest in costs) / count


def plan_time(seed: int) -> float:
    """Return the milliseconds for a plan of 10 moves for 512 CPUs, 100 scattered containers: the median of 9 nodes."""
    topology = from_shape(_LARGE)
    times = []
    for number in range(9):
        dice = random.Random(seed + number)  # noqa: S311 - no secrets here
        cpus = list(topology.online - CPUSet.of(0, 256))
        dice.shuffle(cpus)
        movable = []
        for container in range(100):
            size = dice.choice((1, 2, 2, 4, 4, 4, 8))
            own, cpus = CPUSet.from_cpus(cpus[:size]), cpus[size:]
            area = CPUSet(sum(node.mask for node in topology.numa_nodes if node.cpus & own))
            movable.append(Movable(ContainerRef(PodUID(str(container)), "app"), own, area))
        times.append(min(_timed(topology, CPUSet.from_cpus(cpus), movable) for _ in range(3)))
    return median(times)


def _timed(topology: Topology, free: CPUSet, movable: list[Movable]) -> float:
    start = time.perf_counter()
    Packer(topology).plan(free, movable, 10)
    return (time.perf_counter() - start) * 1e3


_STYLE = "<style>text{fill:#1f2933}@media(prefers-color-scheme:dark){svg{background:#0d1216}text{fill:#e6edf3}}</style>"


def plot(shares: dict[str, float]) -> str:
    """Return bars for the share of scattered containers under each policy, as SVG."""
    rows = []
    for number, (policy, share) in enumerate(shares.items()):
        y, width = 40 + 36 * number, max(round(share * 600), 1)
        rows.append(f'<text x="150" y="{y + 17}" text-anchor="end">{policy}</text>')
        rows.append(f'<rect x="160" y="{y}" width="{width}" height="24" fill="#3b7dd8"/>')
        rows.append(f'<text x="{170 + width}" y="{y + 17}">{share:.1%}</text>')
    title = '<text x="10" y="22">Containers with more L3 caches than necessary, mean over all events</text>'
    size = f'width="640" height="{50 + 36 * len(shares)}"'
    font = 'font-family="sans-serif" font-size="14"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>', _STYLE, title, *rows, "</svg>", ""])


def main(arguments: list[str]) -> int:
    """Print a row for each policy, and the time of a large plan."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks repack")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the share of scattered containers")
    wanted = parser.parse_args(arguments)
    shares: dict[str, float] = {}
    print("| policy | L3 per container | NUMA nodes | split cores | scattered | refusals | moves | admit | plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    for policy in _POLICIES:
        row = churn(policy, wanted.events, wanted.seed)
        shares[policy] = row.scattered
        figures = f"{row.caches:.3f} | {row.nodes:.3f} | {row.split:.3f} | {row.scattered:.1%}"
        times = f"{row.admit_us:.0f} µs | {row.plan_ms:.1f} ms" if row.plan_ms else f"{row.admit_us:.0f} µs | "
        print(f"| {policy} | {figures} | {row.refusals} | {row.moves} | {times} |", flush=True)
    if wanted.plot is not None:
        wanted.plot.write_text(plot(shares))
    large = plan_time(wanted.seed)
    print(f"a plan for 512 CPUs and 100 containers: {large:.1f} ms")
    return verdict([Target("repack plan, 512 CPUs, ms", large, _PLAN_MS)])
