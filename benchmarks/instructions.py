"""Instructions: how many the processor executes for five fixed scenarios, compared with committed figures.

    python -m benchmarks instructions [--write] [--json]

Time depends on what else the machine does; the number of instructions hardly does. Valgrind's callgrind counts them, in
a process with and in one without the work; the difference is the figure. It fails if a scenario needs more than 10 %
more than is committed in benchmarks/instructions.json for this version of Python. Without a figure for it, or without
valgrind, it only says so. --write stores what was measured: for a change that is meant.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.formats.pods.manifest import parse_pods
from pinfold.planning.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIGURES: Final = Path(__file__).with_suffix(".json")
TOLERANCE: Final = 1.10
_COLLECTED: Final = re.compile(r"Collected : (\d+)")
_LARGE: Final = "sockets:2,numa:4,l3:4,cores:8,threads:2"
_MANIFEST: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: pod-NUMBER}
spec: {containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
"""


def _pod(number: int, cpus: int) -> Pod:
    amounts = Amounts(cpus * 1000, 1 << 30)
    return Pod(PodUID(f"pod-{number}"), f"pod-{number}", containers=(Container("c", Resources(amounts, amounts)),))


def _manifests(pods: int) -> str:
    return "---\n".join(_MANIFEST.replace("NUMBER", str(number)) for number in range(pods))


def _plan(machine: str, options: Mapping[str, str], manager: str) -> Callable[[int], object]:
    """Return a function that fills a machine so many times."""
    topology = preset(machine)
    config = Config("static", dict(options), Reservation.of(topology.siblings(CPUSet.of(0))), manager)
    pods = [_pod(number, 2) for number in range(len(topology.online) // 2)]
    return lambda times: [make_plan(pods, topology, config) for _ in range(times)]


SCENARIOS: Final[Mapping[str, Callable[[], Callable[[int], object]]]] = {
    "fill 64 CPUs": lambda: _plan("epyc-7303-2s", {}, "none"),
    "fill 512 CPUs": lambda: _plan(_LARGE, {}, "none"),
    "fill 512 CPUs by uncore caches": lambda: _plan(_LARGE, {"prefer-align-cpus-by-uncorecache": "true"}, "none"),
    "fill 512 CPUs, restricted": lambda: _plan(_LARGE, {"full-pcpus-only": "true"}, "restricted"),
    "parse 20 pods": lambda: lambda times: [parse_pods(_manifests(20)) for _ in range(times)],
}


def count(name: str) -> int:
    """Return how many instructions a scenario takes, in a process of its own."""
    first, second = (_collected(name, times) for times in (1, 2))
    return second - first


def _collected(name: str, times: int) -> int:
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command = [*valgrind, sys.executable, "-m", "benchmarks.instructions", name, str(times)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        sys.exit(done.stderr)
    return int(found[1])


def compare(measured: Mapping[str, int], committed: Mapping[str, int]) -> list[str]:
    """Return what is wrong: scenarios that need more than 10 % more than is committed."""
    return [
        f"{name}: {figure:,} instructions, committed {committed[name]:,}: {figure / committed[name] - 1:+.0%}"
        for name, figure in measured.items()
        if name in committed and figure > committed[name] * TOLERANCE
    ]


def main(arguments: list[str]) -> int:
    """Count and compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks instructions", description=(__doc__ or "")[:80])
    parser.add_argument("--write", action="store_true", help="commit what is measured as this Python's figures")
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    wanted = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        print("instructions: valgrind is not installed; nothing is counted", file=sys.stderr)
        return 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    committed: dict[str, dict[str, int]] = json.loads(FIGURES.read_text())
    known = committed.get(version, {})
    measured = {}
    for name in SCENARIOS:
        measured[name] = count(name)
        if not wanted.json:
            change = f" {measured[name] / known[name] - 1:+.1%}" if name in known else " no figure for this Python"
            print(f"{name:<32} {measured[name]:>14,} instructions{change}", flush=True)
    if wanted.json:
        print(json.dumps(measured, indent=1))
    if wanted.write:
        FIGURES.write_text(json.dumps({**committed, version: measured}, indent=1, sort_keys=True) + "\n")
        return 0
    worse = compare(measured, known)
    print(*worse, sep="\n", file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()(int(sys.argv[2]))
