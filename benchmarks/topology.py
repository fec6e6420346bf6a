"""How long it takes to discover a large machine from its sysfs tree, and how many files that opens.

The file cache is warm: each machine is discovered once before it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tarfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from benchmarks._targets import Target, verdict
from pinfold.core.machine.presets import preset
from pinfold.node.machine.sysfs import discover
from tests.machines.builder import write_sysfs
from tests.machines.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pinfold.core.machine.topology import Group, Topology

SHAPE: Final = "sockets:2,numa:4,l3:8,cores:4,threads:2"
RECORDED: Final = Path(__file__).parents[2] / "shared/topologies/ia64-altix-256-64nodes.tar.gz"
TARGET_MS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured of one machine."""

    machine: str
    cpus: int
    repetitions: int
    minimum_ms: float
    median_ms: float
    target_ms: float
    files_opened: int
    """Also those that turned out to be missing."""
    files_missing: int
    directories_listed: int

    def __str__(self) -> str:
        return (
            f"{self.machine}: {self.cpus} CPUs in {self.minimum_ms:.1f} ms (minimum), {self.median_ms:.1f} ms (median "
            f"of {self.repetitions}); {self.files_opened:,} files opened, {self.files_missing:,} of them missing, "
            f"{self.directories_listed:,} directories listed"
        )

    @property
    def target(self) -> Target:
        """What its median is meant to be."""
        return Target(f"{self.machine}, median in ms", self.median_ms, self.target_ms)


def main(arguments: list[str]) -> int:
    """Print the figures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks topology", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--repetitions", type=int, default=20, metavar="N", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    figures = []
    for name, write in _machines().items():
        with TemporaryDirectory() as directory:
            root = Path(directory)
            write(root)
            figures.append(_measure(name, root, options.repetitions))
    if options.json:
        print(json.dumps({"benchmark": "topology", "figures": [asdict(figure) for figure in figures]}))
    else:
        print(*figures, sep="\n")
    return verdict(figure.target for figure in figures)


def _machines() -> dict[str, Callable[[Path], None]]:
    machines: dict[str, Callable[[Path], None]] = {SHAPE: _write_shape}
    if RECORDED.exists():
        machines[RECORDED.name.removesuffix(".tar.gz")] = _unpack_recorded
    return machines


def _write_shape(root: Path) -> None:
    topology = preset(SHAPE)
    write_sysfs(_described(topology), root)
    if discover(root) != topology:
        raise SystemExit(f"{SHAPE}: what is discovered is not what was written")


def _unpack_recorded(root: Path) -> None:
    with tarfile.open(RECORDED) as files:
        files.extractall(root, filter="data")


class _Precomputed(Machine):
    """A Machine that reads its own description once, and not for each file: writing it takes 5 s in place of 30 s."""

    @cached_property
    def core_masks(self) -> list[int]:
        return super().core_masks

    @cached_property
    def present(self) -> int:
        return super().present

    @cached_property
    def online(self) -> int:
        return super().online


def _described(topology: Topology) -> Machine:
    def texts(groups: tuple[Group, ...]) -> dict[int, str]:
        return {group.id: str(group.cpus) for group in groups}

    return _Precomputed(
        name=SHAPE,
        cores=" ".join(str(core.cpus) for core in topology.cores),
        sockets=texts(topology.sockets),
        nodes=texts(topology.numa_nodes),
        uncore=texts(topology.uncore_caches),
        distances=tuple(tuple(row.values()) for row in topology.distances.values()),
    )


def _measure(name: str, root: Path, repetitions: int) -> Figure:
    with _counted() as counts:
        topology = discover(root)
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        discover(root)
        times.append((time.perf_counter() - start) * 1000)
    return Figure(
        machine=name,
        cpus=len(topology.cpus),
        repetitions=repetitions,
        minimum_ms=round(min(times), 3),
        median_ms=round(statistics.median(times), 3),
        target_ms=TARGET_MS,
        files_opened=counts["open"],
        files_missing=counts["missing"],
        directories_listed=counts["listdir"],
    )


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """Count the files that are opened and the directories that are listed meanwhile."""
    counts = {"open": 0, "missing": 0, "listdir": 0}
    real_open, real_listdir = os.open, os.listdir

    def counting_open(path: str, flags: int) -> int:
        counts["open"] += 1
        try:
            return real_open(path, flags)
        except FileNotFoundError:
            counts["missing"] += 1
            raise

    def counting_listdir(path: str) -> list[str]:
        counts["listdir"] += 1
        return real_listdir(path)

    with patch.object(os, "open", counting_open), patch.object(os, "listdir", counting_listdir):
        yield counts
