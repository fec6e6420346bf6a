"""Real machines and a real kubelet, recorded outside of this repository; skipped where that is not at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pinfold.errors import ParseError
from pinfold.formats.machine.cadvisor import parse_cadvisor_as_kubelet
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.lscpu import format_lscpu, parse_lscpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.machine.topology import Topology

SHARED = Path(__file__).parents[4] / "shared"
TOPOLOGIES = SHARED / "topologies"
VECTORS = SHARED / "vectors/discover.jsonl.gz"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings next to the repository")

Facts = dict[str, Any]  # JSON of the recordings, which are trusted


def facts_of(path: Path) -> Facts:
    name = path.name.split(".")[0]
    found: Facts = json.loads(next(TOPOLOGIES.glob(f"**/{name}.json")).read_text())
    return found


def grouping(labels: Iterable[tuple[int, object]]) -> set[frozenset[int]]:
    groups: dict[object, set[int]] = {}
    for cpu, label in labels:
        groups.setdefault(label, set()).add(cpu)
    return {frozenset(group) for group in groups.values()}


def check_rows(topology: Topology, facts: Facts) -> None:
    assert str(topology.online) == facts["online"]
    rows = {row.cpu: row for row in topology.cpus}
    for column, name in ((1, "core"), (2, "socket"), (4, "uncore")):
        stated = [(row[0], row[column]) for row in facts["cpus"] if row[column] is not None]
        found = [(cpu, getattr(rows[cpu], name)) for cpu, _ in stated]
        assert grouping(found) == grouping(stated), name
    for row in facts["cpus"]:
        assert row[3] is None or rows[row[0]].numa == row[3]


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("lscpu/*.txt")), ids=lambda path: path.name)
def test_lscpu_output_matches_the_recorded_facts(path: Path) -> None:
    topology = parse_lscpu(path.read_text())
    check_rows(topology, facts_of(path))
    assert parse_lscpu(format_lscpu(topology)).cpus == topology.cpus


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("xml/*.xml")), ids=lambda path: path.name)
def test_hwloc_document_matches_the_recorded_facts(path: Path) -> None:
    topology, facts = parse_hwloc(path.read_text()), facts_of(path)
    check_rows(topology, facts)
    assert str(topology.offline) == facts["offline"]
    assert topology.warnings == ()
    if facts["nodes"]:
        assert topology.memory_only == tuple(sorted(int(node) for node, cpus in facts["nodes"].items() if not cpus))
    if len(facts["distances"]) > 1:  # hwloc does not mention the distance of a single node to itself
        distances = {int(a): {int(b): far for b, far in row.items()} for a, row in facts["distances"].items()}
        assert topology.distances == distances


def vectors() -> list[Facts]:
    if not VECTORS.exists():
        return []
    with gzip.open(VECTORS, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", vectors(), ids=lambda case: case["id"])
def test_kubelet_view_of_cadvisor_json_is_what_the_kubelet_computes(case: Facts) -> None:
    text, expect = json.dumps(case["machine_info"]), case["expect"]
    if "error" in expect:
        with pytest.raises(ParseError) as caught:
            parse_cadvisor_as_kubelet(text)
        assert str(caught.value) == expect["error"]
    else:
        assert [list(row) for row in parse_cadvisor_as_kubelet(text).cpus] == expect["cpus"]
