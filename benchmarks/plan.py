"""Plans: containers admitted per second through the planner, on one core; time and memory of a fleet's plan.

    python -m benchmarks plan [--json] [--only NAME]

`fill`: a plan of pods that fill an empty machine and a tenth more, which are refused. `churn`: a trace in which pods of
2 to 8 CPUs come and go on a machine that stays four fifths full. `orders`: random orders of coming and going, four
fifths full too, and where all pods are in the end. The figure is the best of repetitions, in CPU time so that other
programs disturb it less, with all that a plan does (building the node included) but without any Trace, which costs
nothing until it is read. `fleet`: one plan of the fleet that `benchmarks fleet` has, on all cores, with the time it
takes from start to end and the memory of its largest process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import fleet
from benchmarks._targets import Target, verdict
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.planning.dice import Dice
from pinfold.planning.orders import sample
from pinfold.planning.plan import make_plan
from pinfold.planning.replay import Event, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pinfold.core.machine.topology import Topology

TARGETS: Final = {"fill/cpus=64": 50_000, "fill/cpus=512": 30_000}
"""Containers a second that are meant, by the start of a name."""
TARGET: Final = 10_000
"""For all others, in which containers leave too."""
_MACHINES: Final = {"cpus=64": "epyc-7303-2s", "cpus=512": "sockets:2,numa:4,l3:4,cores:8,threads:2"}
_SETTINGS: Final = {
    "default": ({}, "none"),
    "uncore": ({"prefer-align-cpus-by-uncorecache": "true"}, "none"),
    "restricted": ({"full-pcpus-only": "true"}, "restricted"),
}
_EVENTS: Final = 2_000
_ORDERS: Final = 20
_REPETITIONS: Final = 5


class Figure(NamedTuple):
    """What was measured for a scenario."""

    name: str
    containers: int
    per_second: float

    @property
    def target(self) -> Target:
        """What it is meant to be."""
        meant = next((value for start, value in TARGETS.items() if self.name.startswith(start)), TARGET)
        return Target(f"{self.name}, containers a second", self.per_second, meant, at_least=True)

    def __str__(self) -> str:
        return f"{self.name:<32} {self.containers:>6,} containers {self.per_second:>9,.0f}/s"


def pod(number: int, cpus: int) -> Pod:
    """Return a pod with one container of so many CPUs."""
    amounts = Amounts(cpus * 1000, 1 << 30)
    return Pod(PodUID(f"pod-{number}"), f"pod-{number}", containers=(Container("c", Resources(amounts, amounts)),))


def fill(topology: Topology, config: Config) -> tuple[int, Callable[[], object]]:
    """Return how many containers come, and the plan of them."""
    pods = [pod(i, 2) for i in range(len(topology.online) * 11 // 20)]
    return len(pods), lambda: make_plan(pods, topology, config)


def churn(topology: Topology, config: Config) -> tuple[int, Callable[[], object]]:
    """Return how many containers come, and the replay in which they also go."""
    dice = Dice(1)
    most = len(topology.online) * 4 // 5
    there: list[tuple[int, Pod]] = []
    events: list[Event] = []
    for number in range(_EVENTS):
        cpus = 2 * dice.below(4) + 2
        while there and sum(held for held, _ in there) + cpus > most:
            _, leaving = there.pop(dice.below(len(there)))
            events.append(Event(number, leaving.uid))
        there.append((cpus, pod(number, cpus)))
        events.append(Event(number, there[-1][1]))
    return _EVENTS, lambda: replay(events, topology, config)


def orders(topology: Topology, config: Config) -> tuple[int, Callable[[], object]]:
    """Return how many containers come at least, and the sampling of orders."""
    pods = [pod(i, 4) for i in range(len(topology.online) // 5)]

    def operation() -> None:
        plan = make_plan((), topology, config)
        for _ in islice(sample(plan.admitter, plan.ruler, plan.before, pods, seed=1), _ORDERS):
            pass

    return len(pods) * _ORDERS, operation


_KINDS: Final = {"fill": fill, "churn": churn, "orders": orders}


def scenarios() -> Iterator[tuple[str, Callable[[], tuple[int, Callable[[], object]]]]]:
    """Yield the name of each scenario and what makes it."""
    for kind, make in _KINDS.items():
        for size, shape in _MACHINES.items():
            for setting, (options, topology_policy) in _SETTINGS.items():
                topology = preset(shape)
                reserved = Reservation.of(topology.siblings(CPUSet.of(0)))
                config = Config("static", options, reserved, topology_policy)
                yield f"{kind}/{size}/{setting}", lambda t=topology, c=config, m=make: m(t, c)  # type: ignore[misc]  # mypy knows no types of lambda defaults


def measure(name: str, containers: int, operation: Callable[[], object]) -> Figure:
    """Return the best of some repetitions."""
    best = float("inf")
    for _ in range(_REPETITIONS):
        start = time.process_time()
        operation()
        best = min(best, time.process_time() - start)
    return Figure(name, containers, containers / best)


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plan", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    parser.add_argument("--only", default="", metavar="NAME", help="only scenarios whose name contains this")
    wanted = parser.parse_args(arguments)
    figures = []
    for name, make in scenarios():
        if wanted.only in name:
            figures.append(measure(name, *make()))
            if not wanted.json:
                print(figures[-1], flush=True)
    fleets = [fleet.measure(fleet.all_cpus(), seed=0)] if wanted.only in "fleet" else []
    if not figures and not fleets:
        print(f"no scenario has {wanted.only!r} in its name", file=sys.stderr)
        return 2
    if wanted.json:
        print(json.dumps([*(figure._asdict() for figure in figures), *fleets], indent=1))
    elif fleets:
        print(f"fleet: {fleet.line(fleets[0])}")
    meant = [figure.target for figure in figures]
    return verdict([*meant, *(target for each in fleets for target in fleet.targets(each))])
