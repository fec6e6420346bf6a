"""What is counted, and what the gauges show, as pods come and go; semantics as the kubelet's unless said otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from pinfold.core.caching import CacheUsage
from pinfold.core.config import Config, Reservation
from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import RuntimeLinked
from pinfold.core.events.decisions import Released
from pinfold.core.events.measures import Applied, Configured, Decided, Judged, Left, Looked, Saved
from pinfold.core.events.repairs import LostUpdate
from pinfold.core.events.running import RanUnpinned, Started
from pinfold.core.exclusivity import Score
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
from pinfold.core.reconcile import Drift, wanted
from pinfold.core.snapshot import Snapshot
from pinfold.core.state import State
from pinfold.errors import AdmissionError, ConfigError
from pinfold.formats.openmetrics import MetricKind, Sample, choose
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.counters import Counters
from pinfold.serve.metrics.gauges import cache_values, process_values, score_values
from pinfold.serve.metrics.metrics import Metrics
from pinfold.serve.metrics.table import TABLE, Metric, check_prefix
from tests.property.strategies import guaranteed, pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.admission import Admission
    from pinfold.core.machine.topology import Topology

ROOT = Path(__file__).resolve().parents[4]
# 2 NUMA nodes of 2 caches of 4 CPUs: caches 0-1,8-9 · 2-3,10-11 · 4-5,12-13 · 6-7,14-15
MACHINE = preset("sockets:1,numa:2,l3:2,cores:2,threads:2")
RESERVED = CPUSet.of(0, 8)


class Node:
    """Admits pods, and tells Counters of it as a Manager does."""

    def __init__(self, config: Config | None = None, machine: Topology = MACHINE) -> None:
        config = config or Config("static", reserved=Reservation.of(RESERVED))
        self.machine = machine
        self.admitter = config.build(machine)
        self.state = self.admitter.policy.start(State.new())
        self.refused: set[str] = set()
        self.counters = Counters(self.admitter, now=100.0)
        self.metrics = Metrics(self.snapshot, self.counters, process=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.machine, self.admitter.policy, self.state)

    def admit(self, pod: Pod, *, ok: bool = True) -> Admission:
        before = self.state
        admission = self.admitter.admit(before, pod)
        again = pod.uid in self.refused
        self.counters.hear(Judged(pod=pod, before=before, admission=admission, seconds=0.003, ok=ok, again=again))
        if admission.refusal is not None:
            self.refused.add(pod.uid)
        elif ok:
            self.refused.discard(pod.uid)
            self.state = admission.state
        return admission

    def release(self, pod: Pod) -> None:
        refs = [pod.ref(container) for container in pod.all_containers]
        for ref in refs:
            self.state = self.admitter.policy.release(self.state, ref).state
        self.refused.discard(pod.uid)
        self.counters.hear(Left(refs))

    def count(self, metric: Metric, *values: str) -> float:
        return self.counters.tally.value(metric, *values)

    def seen(self) -> Mapping[str, float]:
        """Return all series of a scrape, as they are written."""
        return written(self.metrics.scrape()[1].decode())


def written(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def config(*, options: Mapping[str, str] | None = None, topology: str = "none", scope: str = "container") -> Config:
    return Config(
        "static",
        reserved=Reservation.of(RESERVED),
        options=options or {},
        topology_policy=topology,
        topology_scope=scope,
    )


# -- before anything has happened


def test_every_series_is_there_from_the_start_and_every_counter_at_zero() -> None:
    node = Node()
    found = node.seen()
    names = {re.split(r"[{ ]", name)[0] for name in found}
    process = {rows.RSS, rows.CPU_SECONDS, rows.OPEN_FDS}
    owners = {metric for metric in TABLE if metric.labels == rows.OWNER}
    without = {metric.full_name() for metric in process | owners}
    assert names == rows.names() - without | {"pinfold_process_cpu_seconds_total"}
    for metric in set(TABLE) - owners:
        if metric.kind is not MetricKind.GAUGE:
            mine = [value for name, value in found.items() if name.startswith(metric.full_name())]
            assert mine
            assert not any(mine)


def test_names_types_labels_and_buckets_are_those_of_the_reference() -> None:
    reference = {
        "cpu_manager_pinning_requests_total": ("counter", ()),
        "cpu_manager_pinning_errors_total": ("counter", ()),
        "cpu_manager_shared_pool_size_millicores": ("gauge", ()),
        "cpu_manager_exclusive_cpu_allocation_count": ("gauge", ()),
        "cpu_manager_allocation_per_numa": ("gauge", ("numa_node",)),
        "container_aligned_compute_resources_count": ("counter", ("scope", "boundary")),
        "container_aligned_compute_resources_failure_count": ("counter", ("scope", "boundary")),
        "topology_manager_admission_requests_total": ("counter", ()),
        "topology_manager_admission_errors_total": ("counter", ()),
        "topology_manager_admission_duration_ms": ("histogram", ()),
        "resource_manager_allocations_total": ("counter", ("resource_name", "source")),
        "resource_manager_allocation_errors_total": ("counter", ("resource_name", "source")),
        "resource_manager_container_assignments_total": ("counter", ("resource_name", "assignment_type")),
    }
    mine = {
        metric.name: (str(metric.kind), tuple(label.name for label in metric.labels))
        for metric in TABLE
        if not metric.ours
    }
    assert mine == reference
    assert rows.ADMISSION_MS.buckets == pytest.approx([0.05 * 2**n for n in range(15)])


def test_no_name_is_there_twice() -> None:
    assert len({metric.full_name() for metric in TABLE}) == len(TABLE)


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_parser_of_prometheus_reads_a_scrape(accept: str) -> None:
    node = Node(config(topology="single-numa-node"))
    pod = pod_of(pinned(2))
    node.admit(pod)
    used = CacheUsage(pod.ref(pod.containers[0]), 4096, 8192)
    scored = Score(pod.ref(pod.containers[0]), CPUSet.of(1), 9.0, 0.5, 7, 3, 0.25)
    read_node = partial(node.snapshot()._replace, pods=(pod,), cache_usage=(used,), scores=lambda: [scored])
    kind, body = Metrics(read_node, node.counters).scrape(accept)
    parse = parse_openmetrics if "openmetrics" in kind else parse_prometheus
    families = list(parse(body.decode()))
    assert len(families) == len(TABLE)
    # The parser for Prometheus text, not the format, gives counters the ending that they lack.
    read = {sample.name.replace("_count_total", "_count") for family in families for sample in family.samples}
    assert read == rows.names()


def test_prefix_changes_the_names_that_the_kubelet_has_too_and_no_others() -> None:
    node = Node()
    found = written(Metrics(node.snapshot, node.counters, prefix="node_", process=dict).scrape()[1].decode())
    assert found["node_cpu_manager_pinning_requests_total"] == 0
    assert "pinfold_overlap_seconds_total" in found
    assert not any(name.startswith("kubelet_") for name in found)


@pytest.mark.parametrize("prefix", ["1x_", "a b", 'x{y="z"}', "é", "x\n", "x" * 65])
def test_prefix_that_cannot_begin_a_name_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics prefix .* allowed are"):
        check_prefix(prefix)


# -- gauges


def test_what_a_container_uses_of_the_cache_is_shown_under_its_name() -> None:
    pod = pod_of(pinned(1), uid="web")
    used = CacheUsage(pod.ref(pod.containers[0]), 4096, None)
    gone = CacheUsage(ContainerRef(PodUID("gone"), "app"), 1, 1)
    policy = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE).policy
    node = Snapshot(MACHINE, policy, policy.start(State.new()), (pod,), cache_usage=(used, gone))
    labels = (("namespace", "default"), ("pod", "web"), ("container", "app"))
    assert cache_values(node) == {"cache_occupancy_bytes": [Sample(labels, 4096)]}


def test_what_others_use_of_a_containers_cpus_is_shown_under_its_name() -> None:
    pod = pod_of(pinned(1), uid="web")
    scores = [
        Score(ref, CPUSet.of(1), 9.0, 0.5, 7, 3, 0.25)
        for ref in (pod.ref(pod.containers[0]), ContainerRef(PodUID("gone"), "app"))
    ]
    policy = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE).policy
    node = Snapshot(MACHINE, policy, policy.start(State.new()), (pod,), scores=lambda: scores)
    labels = (("namespace", "default"), ("pod", "web"), ("container", "app"))
    assert score_values(node) == {
        "foreign_run_seconds": [Sample(labels, 0.5)],
        "exclusive_interrupts_total": [Sample(labels, 7)],
        "exclusive_preemptions_total": [Sample(labels, 3)],
        "exclusive_throttled_seconds_total": [Sample(labels, 0.25)],
    }


def test_gauges_follow_the_state_and_numa_nodes_go_back_to_zero() -> None:
    node = Node()
    pod = pod_of(pinned(6))
    idle = node.seen()
    assert idle["kubelet_cpu_manager_shared_pool_size_millicores"] == 14_000
    assert idle['pinfold_pool_cpus{pool="online"}'] == 16
    node.admit(pod)
    found = node.seen()
    assert found["kubelet_cpu_manager_shared_pool_size_millicores"] == 8_000
    assert found["kubelet_cpu_manager_exclusive_cpu_allocation_count"] == 6
    per_node = [found[f'kubelet_cpu_manager_allocation_per_numa{{numa_node="{n}"}}'] for n in (0, 1)]
    assert sum(per_node) == 6
    assert max(per_node) == 6
    pools = {name: found[f'pinfold_pool_cpus{{pool="{name}"}}'] for name in rows.POOLS}
    assert pools == {
        "online": 16,
        "shared": 10,
        "reserved": 2,
        "assignable": 8,
        "exclusive": 6,
        "idle": 0,
        "allocatable": 14,
        "offline": 0,
        "isolated": 0,
    }
    node.release(pod)
    after = node.seen()
    assert {name: value for name, value in after.items() if "_numa" in name or "pool" in name} == {
        name: value for name, value in idle.items() if "_numa" in name or "pool" in name
    }
    assert node.count(rows.RELEASES) == 1


def test_policy_none_gives_nothing_and_shares_everything() -> None:
    node = Node(Config("none"))
    node.admit(pod_of(pinned(2)))
    found = node.seen()
    assert found["kubelet_cpu_manager_shared_pool_size_millicores"] == 0
    assert found["kubelet_cpu_manager_pinning_requests_total"] == 0
    assert found["kubelet_topology_manager_admission_requests_total"] == 1
    assert found['pinfold_pool_cpus{pool="shared"}'] == 16


@pytest.mark.parametrize(
    ("cpus", "spread"),
    [
        ("1,9", ()),
        ("1", ()),
        ("1-2", ("physical_cpu", "uncore_cache")),
        ("1-3,9-11", ()),
        ("1,4", ("physical_cpu", "uncore_cache", "numa_node")),
        ("1-7,9-15", ()),
        ("3-4,11-12", ("uncore_cache", "numa_node")),
    ],
)
def test_containers_are_spread_if_fewer_groups_could_hold_them(cpus: str, spread: tuple[str, ...]) -> None:
    node = Node()
    mine = CPUSet.parse(cpus)
    node.state = State(MACHINE.online - mine, {PodUID("p"): {"app": mine}})
    found = node.seen()
    assert {name for name in rows.SPANS if found[f'pinfold_spread_containers{{boundary="{name}"}}']} == set(spread)


def test_what_is_left_is_described_by_its_largest_piece_and_by_how_broken_it_is() -> None:
    node = Node()
    mine = CPUSet.parse("2,4")  # of two of the three caches of which nothing is reserved
    node.state = State(MACHINE.online - mine, {PodUID("p"): {"app": mine}})
    found = node.seen()
    largest = [found[f'pinfold_largest_free_cpus{{boundary="{name}"}}'] for name in rows.SPANS]
    broken = [found[f'pinfold_free_fragmentation_ratio{{boundary="{name}"}}'] for name in rows.SPANS]
    assert largest == [2, 4, 7, 12]
    assert broken == pytest.approx([2 / 12, 6 / 12, 1, 1])


@pytest.mark.parametrize(("about", "expected"), [({}, 0), ({"read_only": False}, 0), ({"read_only": True}, 1)])
def test_a_daemon_that_only_watches_says_so(about: dict[str, object], expected: int) -> None:
    node = Node()
    metrics = Metrics(lambda: node.snapshot()._replace(about=about), node.counters, process=dict)
    (family,) = [family for family in metrics.families() if family.name == "pinfold_watch_only"]
    assert [sample.value for sample in family.samples if isinstance(sample, Sample)] == [expected]


def test_names_in_labels_cannot_break_the_format() -> None:
    node = Node()
    hostile = 'x"} 1\nkubelet_evil_total 7\n# EOF\\'
    metrics = Metrics(lambda: node.snapshot()._replace(runtime=hostile), node.counters, process=dict)
    for accept in ("", "application/openmetrics-text"):
        body = metrics.scrape(accept)[1].decode()
        parse = parse_openmetrics if accept else parse_prometheus
        (found,) = [family for family in parse(body) if family.name == "pinfold_runtime_connected"]
        assert found.samples[0].labels == {"runtime": hostile}


def test_number_of_series_does_not_depend_on_what_runs() -> None:
    node = Node()
    idle = node.seen().keys()
    for number in range(6):
        node.admit(pod_of(pinned(1), uid=f"p{number}"))
    node.admit(pod_of(pinned(99), uid="big"))
    assert node.seen().keys() == idle


def test_process_values_are_those_of_this_process() -> None:
    values = process_values()
    assert values[rows.RSS.name] > 1 << 20
    assert values[rows.CPU_SECONDS.name] > 0
    assert values[rows.OPEN_FDS.name] >= 1


# -- counters of admissions


def test_container_with_own_cpus_is_one_request_and_one_assignment() -> None:
    node = Node()
    node.admit(pod_of(pinned(2), pinned(1, "two"), Container("idle", guaranteed(500))))
    assert node.count(rows.PINNING_REQUESTS) == 2
    assert node.count(rows.PINNING_ERRORS) == 0
    assert node.count(rows.ALLOCATIONS, "cpu", "node") == 2
    assert node.count(rows.CONTAINER_ASSIGNMENTS, "cpu", "node_exclusive") == 2
    assert node.count(rows.ADMISSIONS) == 1


def test_pod_in_the_shared_pool_is_an_admission_and_no_request() -> None:
    node = Node()
    node.admit(Pod(PodUID("b"), "b", containers=(Container("idle"),)))
    assert (node.count(rows.ADMISSIONS), node.count(rows.PINNING_REQUESTS)) == (1, 0)


def test_refused_container_is_a_request_and_an_error() -> None:
    node = Node()
    assert node.admit(pod_of(pinned(2), pinned(99, "big"), pinned(1, "never asked"))).refusal is not None
    assert (node.count(rows.PINNING_REQUESTS), node.count(rows.PINNING_ERRORS)) == (2, 1)
    assert node.count(rows.ALLOCATION_ERRORS, "cpu", "node") == 1
    assert node.count(rows.REFUSALS, "UnexpectedAdmissionError") == 1


def test_errors_of_admission_are_counted_only_where_the_topology_manager_is_asked() -> None:
    for topology, errors in (("none", 0), ("best-effort", 1)):
        node = Node(config(topology=topology))
        node.admit(pod_of(pinned(99)))
        assert (node.count(rows.ADMISSIONS), node.count(rows.ADMISSION_ERRORS)) == (1, errors)


def test_what_cannot_be_applied_is_an_error_and_nothing_was_assigned() -> None:
    node = Node(config(options={"full-pcpus-only": "true"}, topology="single-numa-node"))
    node.admit(pod_of(pinned(2)), ok=False)
    assert (node.count(rows.PINNING_REQUESTS), node.count(rows.PINNING_ERRORS)) == (1, 1)
    assert node.count(rows.ADMISSION_ERRORS) == 1
    assert not any(value for name, value in node.seen().items() if "aligned_compute_resources_count" in name)
    assert not any(value for name, value in node.seen().items() if "allocations_total" in name)


def test_whole_cores_count_only_with_full_pcpus_only() -> None:
    for options, counted in (({}, 0), ({"full-pcpus-only": "true"}, 1)):
        node = Node(config(options=options))
        node.admit(pod_of(pinned(2)))
        node.admit(pod_of(pinned(3), uid="odd"))
        assert node.count(rows.ALIGNED, "container", "physical_cpu") == counted
        assert node.count(rows.NOT_ALIGNED, "container", "physical_cpu") == counted
        assert node.count(rows.REFUSALS, "SMTAlignmentError") == counted


PREFER = {"prefer-align-cpus-by-uncorecache": "true"}


@pytest.mark.parametrize(
    ("options", "cpus", "aligned"), [({}, 1, 1), ({}, 2, 1), (PREFER, 3, 1), (PREFER, 4, 1), (PREFER, 5, 0)]
)
def test_assignments_within_one_uncore_cache_are_counted_under_all_options(
    options: Mapping[str, str], cpus: int, aligned: int
) -> None:
    node = Node(config(options=options))
    node.admit(pod_of(pinned(cpus)))
    assert node.count(rows.ALIGNED, "container", "uncore_cache") == aligned


def test_numa_alignment_counts_only_where_it_is_guaranteed_and_by_scope() -> None:
    for topology, scope, found in (
        ("best-effort", "container", (0, 0)),
        ("single-numa-node", "container", (2, 0)),
        ("single-numa-node", "pod", (0, 1)),
    ):
        node = Node(config(topology=topology, scope=scope))
        node.admit(pod_of(pinned(2), pinned(2, "two")))
        assert (
            node.count(rows.ALIGNED, "container", "numa_node"),
            node.count(rows.ALIGNED, "pod", "numa_node"),
        ) == found


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_refusal_of_the_topology_manager_is_no_request_for_cpus(scope: str) -> None:
    node = Node(config(topology="single-numa-node", scope=scope))
    node.admit(pod_of(pinned(9)))
    assert node.count(rows.NOT_ALIGNED, scope, "numa_node") == 1
    assert node.count(rows.ADMISSION_ERRORS) == 1
    assert node.count(rows.PINNING_REQUESTS) == 0
    assert node.count(rows.REFUSALS, "TopologyAffinityError") == 1


def test_duration_is_in_milliseconds() -> None:
    node = Node()
    node.admit(pod_of(pinned(1)))
    found = node.seen()
    assert found["kubelet_topology_manager_admission_duration_ms_sum"] == pytest.approx(3)
    assert found['kubelet_topology_manager_admission_duration_ms_bucket{le="1.6"}'] == 0
    assert found['kubelet_topology_manager_admission_duration_ms_bucket{le="3.2"}'] == 1


def test_pod_whose_containers_come_one_by_one_is_counted_as_if_it_came_at_once() -> None:
    whole = pod_of(pinned(2), pinned(1, "two"), Container("idle", guaranteed(500)))
    for topology, scope in (("none", "container"), ("single-numa-node", "container"), ("single-numa-node", "pod")):
        at_once, bit_by_bit = Node(config(topology=topology, scope=scope)), Node(config(topology=topology, scope=scope))
        at_once.admit(whole)
        for end in (1, 2, 3, 3):  # the last one is restarted
            bit_by_bit.admit(pod_of(*whole.containers[:end], uid=whole.uid))
        same = [metric for metric in TABLE if metric.kind is MetricKind.COUNTER]
        for metric in same:
            assert list(at_once.counters.tally.samples(metric)) == list(bit_by_bit.counters.tally.samples(metric)), (
                metric.name
            )


def test_pod_that_is_refused_again_and_again_counts_once_until_it_leaves() -> None:
    node = Node(config(topology="best-effort"))
    for turn in (1, 2):
        for _ in range(3):
            greedy = pod_of(pinned(99))
            assert node.admit(greedy).refusal is not None
        counted = [rows.ADMISSIONS, rows.ADMISSION_ERRORS, rows.PINNING_REQUESTS, rows.PINNING_ERRORS]
        assert [node.count(metric) for metric in counted] == [turn] * 4
        assert node.count(rows.REFUSALS, "UnexpectedAdmissionError") == turn
        node.release(greedy)


def test_refused_pod_that_gets_in_later_is_one_admission_and_one_refusal() -> None:
    node = Node(config(topology="best-effort"))
    all_of_it = pinned(len(MACHINE.online - RESERVED))
    first, second = pod_of(all_of_it, uid="u1"), pod_of(all_of_it, uid="u2")
    node.admit(first)
    node.admit(second)
    node.release(first)
    node.admit(second)
    assert (node.count(rows.ADMISSIONS), node.count(rows.ADMISSION_ERRORS)) == (2, 1)
    assert node.count(rows.CONTAINER_ASSIGNMENTS, "cpu", "node_exclusive") == 2


def test_refused_pod_whose_admission_cannot_be_applied_later_is_one_error() -> None:
    node = Node(config(topology="best-effort"))
    all_of_it = pinned(len(MACHINE.online - RESERVED))
    first, second = pod_of(all_of_it, uid="u1"), pod_of(all_of_it, uid="u2")
    node.admit(first)
    node.admit(second)
    node.release(first)
    node.admit(second, ok=False)
    assert (node.count(rows.ADMISSIONS), node.count(rows.ADMISSION_ERRORS)) == (2, 1)


def test_pod_that_comes_back_under_its_name_is_another_request() -> None:
    node = Node()
    for _ in range(3):
        node.admit(pod_of(pinned(1), uid="run-x"))
        node.release(pod_of(pinned(1), uid="run-x"))
    assert (node.count(rows.ADMISSIONS), node.count(rows.PINNING_REQUESTS)) == (3, 3)


def test_pod_with_cpus_as_a_whole_is_counted_as_the_references() -> None:
    settings = replace(
        config(options=PREFER, topology="best-effort", scope="pod"), gates={"PodLevelResourceManagers": True}
    )
    node = Node(settings)
    pod = Pod(PodUID("w"), "w", containers=(pinned(2, "own"), Container("idle")), resources=guaranteed(3000))
    assert node.admit(pod).refusal is None
    assert node.count(rows.PINNING_REQUESTS) == 1
    assert node.count(rows.ALLOCATIONS, "cpu", "pod") == 2
    assert node.count(rows.CONTAINER_ASSIGNMENTS, "cpu", "pod_exclusive") == 1
    assert node.count(rows.CONTAINER_ASSIGNMENTS, "cpu", "pod_shared") == 1
    assert node.count(rows.ALIGNED, "container", "uncore_cache") == 1
    assert node.seen()["kubelet_cpu_manager_exclusive_cpu_allocation_count"] == 3
    full = Pod(PodUID("f"), "f", containers=(pinned(2, "own"), Container("idle")), resources=guaranteed(2000))
    assert node.admit(full).refusal is not None
    assert node.count(rows.ALLOCATION_ERRORS, "cpu", "pod") == 1
    assert node.count(rows.PINNING_ERRORS) == 1


def test_another_configuration_counts_by_its_own_rules() -> None:
    node = Node()
    node.counters.hear(Configured(config(options={"full-pcpus-only": "true"}).build(MACHINE)))
    node.admit(pod_of(pinned(2)))
    assert node.count(rows.ALIGNED, "container", "physical_cpu") == 1


# -- counters of what happens otherwise

APP, OTHER = ContainerRef(PodUID("p1"), "app"), ContainerRef(PodUID("p2"), "app")
STATE = State(CPUSet.parse("0-3,6-15"), {APP.pod: {"app": CPUSet.of(4)}, OTHER.pod: {"app": CPUSet.of(5)}})
WANT = wanted(STATE, STATE.shared)
POOL = Drift(None, STATE.shared, CPUSet.parse("0-4,6-15"))
WEB = PodName("default", "web", "1a2b")


def test_look_that_finds_nothing_counts_nothing() -> None:
    node = Node()
    node.counters.hear(Looked(WANT, [], [], 110.0))
    assert not any(
        sample.value for sample in node.counters.tally.samples(rows.DRIFT_REPAIRS) if isinstance(sample, Sample)
    )
    assert node.count(rows.OVERLAP) == 0


@pytest.mark.parametrize(
    ("drift", "cause", "seconds"),
    [
        (POOL, "pool", 10),
        (Drift(None, STATE.shared, CPUSet.parse("0-2,6-15")), "pool", 0),
        (Drift(APP, CPUSet.of(4), CPUSet.of(4, 5)), "exclusive", 10),
        (Drift(APP, CPUSet.of(4), CPUSet.of(4, 6)), "exclusive", 0),
        (Drift(ContainerRef(PodUID("s"), "x"), STATE.shared, CPUSet.of(4)), "shared", 10),
        (Drift(ContainerRef(APP.pod, "x"), STATE.shared, CPUSet.of(4)), "shared", 0),
    ],
    ids=["pool on theirs", "pool too small", "on a neighbour's", "on shared", "stranger", "of the same pod"],
)
def test_repaired_drift_is_counted_by_cause_and_overlap_from_the_look_before(
    drift: Drift, cause: str, seconds: float
) -> None:
    node = Node()
    node.counters.hear(Looked(WANT, [], [], 110.0))
    node.counters.hear(Looked(WANT, [drift], [], 120.0))
    node.counters.hear(Looked(WANT, [], [], 130.0))
    assert node.count(rows.DRIFT_REPAIRS, cause) == 1
    assert node.count(rows.OVERLAP) == seconds
    assert node.counters.drift_left == 0


def test_overlap_that_cannot_be_repaired_goes_on_being_counted() -> None:
    node = Node()
    drift = Drift(None, STATE.shared, CPUSet.parse("0-15"))
    for now in (105.0, 110.0, 115.0):
        node.counters.hear(Looked(WANT, [drift], [drift], now))
    assert node.count(rows.OVERLAP) == 15
    assert node.count(rows.DRIFT_REPAIRS, "pool") == 0
    assert node.seen()["pinfold_drift_unrepaired"] == 1


def test_a_reason_that_is_not_in_the_table_makes_no_series_of_its_own() -> None:
    class OddError(AdmissionError):
        reason = "x" * 1000

    node = Node()
    before = node.seen().keys()
    pod = pod_of(pinned(2))
    admission = node.admitter.admit(node.state, pod)._replace(refusal=OddError("no"))
    node.counters.hear(Judged(pod=pod, before=node.state, admission=admission, seconds=0.003))
    assert node.count(rows.REFUSALS, "other") == 1
    assert node.seen().keys() == before


def test_saves_applies_and_the_rest_are_counted() -> None:
    node = Node()
    events = (
        Decided(0.0002),
        Saved(0.004),
        Saved(0.004, ok=False),
        Applied(0.02),
        Applied(20.0, ok=False),
        RanUnpinned(WEB, "app", 1.5),
        LostUpdate(WEB, "app", EMPTY, EMPTY),
    )
    for event in events:
        node.counters.hear(event)
    found = node.seen()
    assert found["pinfold_state_saves_total"] == 1
    assert found["pinfold_state_save_failures_total"] == 1
    assert found['pinfold_decision_duration_seconds_bucket{le="0.00025"}'] == 1
    assert found['pinfold_apply_duration_seconds_bucket{outcome="ok",le="0.025"}'] == 1
    assert found['pinfold_apply_duration_seconds_bucket{outcome="failed",le="10.0"}'] == 0
    assert found['pinfold_apply_duration_seconds_count{outcome="failed"}'] == 1
    assert found["pinfold_unpinned_seconds_total"] == 1.5
    assert found["pinfold_unpinned_containers_total"] == 1
    assert found['pinfold_drift_repairs_total{cause="lost_update"}'] == 1


def test_events_that_are_not_counted_change_no_number() -> None:
    node = Node()
    before = node.seen()
    node.counters.hear(Started(WEB, "app", 7))
    node.counters.hear(Released(WEB, "app"))
    assert node.seen() == before


def test_lost_connection_is_counted_once_however_often_it_is_tried_again() -> None:
    node = Node()
    for link in ("closed", "closed", "connected", "closed", "closed", "connected", "closed"):
        node.counters.hear(RuntimeLinked(link, ""))
    assert node.count(rows.DISCONNECTS) == 2


def test_connection_that_has_not_come_to_its_end_cannot_be_lost() -> None:
    counters = Counters(Node().admitter, now=0.0, links={"synchronized"})
    for link in ("closed", "connected", "registered", "closed", "connected", "registered", "synchronized", "closed"):
        counters.hear(RuntimeLinked(link, ""))
    assert counters.tally.value(rows.DISCONNECTS) == 1


@given(st.lists(st.sampled_from(["admit", "refuse", "release", "save", "scrape", "drift"]), max_size=12))
def test_what_is_kept_between_scrapes_is_what_would_be_written_anew(steps: list[str]) -> None:
    node = Node()
    pods = [pod_of(pinned(1), uid=f"p{number}") for number in range(12)]
    for step, pod in zip(steps, pods, strict=False):
        match step:
            case "admit":
                node.admit(pod)
            case "refuse":
                node.admit(pod, ok=False)
            case "release":
                node.release(pod)
            case "save":
                node.counters.hear(Saved(0.001))
            case "drift":
                node.counters.hear(Looked(WANT, [POOL], [], 1.0))
        for accept in ("text/plain", "application/openmetrics-text"):
            anew = Metrics(node.snapshot, node.counters, process=dict)
            assert node.metrics.scrape(accept) == anew.scrape(accept)
            assert anew.scrape(accept)[1].decode() == choose(accept)[1](anew.families())
