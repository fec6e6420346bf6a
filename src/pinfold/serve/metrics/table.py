"""Every metric as a row of one table: what is exposed, and docs/reference/metrics.md, come from it.

Knows nothing of where the numbers come from: `counters` and `gauges` do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.reconcile import Cause
from pinfold.errors import ConfigError, Problem, excerpt
from pinfold.formats.openmetrics import MetricKind, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KUBELET: Final = "kubelet_"
OURS: Final = "pinfold_"
_PREFIX: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,63})?")

SCOPES: Final = ("container", "pod")
BOUNDARIES: Final = ("physical_cpu", "numa_node", "uncore_cache")
SOURCES: Final = ("node", "pod")
ASSIGNMENTS: Final = ("node_exclusive", "pod_exclusive", "pod_shared")
POOLS: Final = ("online", "shared", "reserved", "assignable", "exclusive", "idle", "allocatable", "offline", "isolated")
SPANS: Final = ("physical_cpu", "uncore_cache", "numa_node", "socket")
CAUSES: Final = ("pool", "exclusive", "shared", "lost_update", "members", "strangers", "limit", "shield", "other")
REASONS: Final = (
    "SMTAlignmentError",
    "TopologyAffinityError",
    "EmptySharedPoolError",
    "EmptyPodSharedPoolError",
    "MinSharedCPUsError",
    "UncoreAlignmentError",
    "IsolatedCPUsError",
    "SMTIsolationError",
    "UnexpectedAdmissionError",
    "other",
)
OUTCOMES: Final = ("ok", "failed")

_ADMISSION_MS: Final = tuple(round(0.05 * 2**n, 2) for n in range(15))
_DECISION_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_APPLY_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Label(NamedTuple):
    """A label, and the values that it can have; none where they depend on the machine."""

    name: str
    values: tuple[str, ...] = ()


class Metric(NamedTuple):
    """A row: one metric."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    ours: bool = True
    note: str = ""
    """Where it differs from the kubelet's."""

    def full_name(self, prefix: str = KUBELET) -> str:
        """Return the name as it is exposed, with *prefix* before those that the kubelet has too."""
        return f"{OURS if self.ours else prefix}{self.name}"

    @property
    def series(self) -> tuple[str, ...]:
        """The endings of the names under which its numbers are found."""
        return ("_bucket", "_sum", "_count") if self.kind is MetricKind.HISTOGRAM else ("",)


def _kubelet(
    name: str,
    kind: MetricKind,
    help_: str,
    *labels: Label,
    buckets: tuple[float, ...] = (),
    note: str = "",
) -> Metric:
    return Metric(name, kind, help_, labels, buckets, ours=False, note=note)


_RESOURCE: Final = Label("resource_name", ("cpu",))
_SOURCE: Final = Label("source", SOURCES)
_ALIGNED: Final = (Label("scope", SCOPES), Label("boundary", BOUNDARIES))

# -- what the kubelet exposes

PINNING_REQUESTS: Final = _kubelet(
    "cpu_manager_pinning_requests_total",
    MetricKind.COUNTER,
    "Containers that asked for CPUs of their own.",
    note="a container that comes again and still has its CPUs is not counted again",
)
PINNING_ERRORS: Final = _kubelet(
    "cpu_manager_pinning_errors_total",
    MetricKind.COUNTER,
    "Containers that asked for CPUs of their own and did not get them.",
    note="also counts CPUs that were decided on and could not be applied",
)
SHARED_MILLICORES: Final = _kubelet(
    "cpu_manager_shared_pool_size_millicores",
    MetricKind.GAUGE,
    "CPUs that can still be given: the shared pool without the reserved CPUs, in thousandths of a CPU.",
)
EXCLUSIVE_CPUS: Final = _kubelet(
    "cpu_manager_exclusive_cpu_allocation_count", MetricKind.GAUGE, "CPUs that belong to a container or pod."
)
PER_NUMA: Final = _kubelet(
    "cpu_manager_allocation_per_numa",
    MetricKind.GAUGE,
    "CPUs that belong to a container or pod, by NUMA node.",
    Label("numa_node"),
    note="every NUMA node has a series, which goes back to 0; the kubelet's stays at its last value",
)
ALIGNED: Final = _kubelet(
    "container_aligned_compute_resources_count",
    MetricKind.COUNTER,
    "Assignments within one boundary: whole cores (full-pcpus-only), one NUMA node (single-numa-node), one uncore "
    "cache.",
    *_ALIGNED,
)
NOT_ALIGNED: Final = _kubelet(
    "container_aligned_compute_resources_failure_count",
    MetricKind.COUNTER,
    "Refusals because a boundary that was demanded could not be kept.",
    *_ALIGNED,
)
ADMISSIONS: Final = _kubelet(
    "topology_manager_admission_requests_total",
    MetricKind.COUNTER,
    "Pods that asked for admission.",
    note="a pod whose containers come one by one is counted once",
)
ADMISSION_ERRORS: Final = _kubelet(
    "topology_manager_admission_errors_total", MetricKind.COUNTER, "Pods that were refused."
)
ADMISSION_MS: Final = _kubelet(
    "topology_manager_admission_duration_ms",
    MetricKind.HISTOGRAM,
    "Milliseconds from a request to its answer: decided, saved, applied and verified.",
    buckets=_ADMISSION_MS,
    note="the kubelet applies later, and counts whole milliseconds",
)
ALLOCATIONS: Final = _kubelet(
    "resource_manager_allocations_total",
    MetricKind.COUNTER,
    "Containers that were given CPUs, out of the node's or out of their pod's.",
    _RESOURCE,
    _SOURCE,
)
ALLOCATION_ERRORS: Final = _kubelet(
    "resource_manager_allocation_errors_total",
    MetricKind.COUNTER,
    "Containers or pods that could not be given CPUs.",
    _RESOURCE,
    _SOURCE,
)
CONTAINER_ASSIGNMENTS: Final = _kubelet(
    "resource_manager_container_assignments_total",
    MetricKind.COUNTER,
    "Containers by the kind of CPUs that they were given.",
    _RESOURCE,
    Label("assignment_type", ASSIGNMENTS),
)

# -- what only we do

OVERLAP: Final = Metric(
    "overlap_seconds_total",
    MetricKind.COUNTER,
    "Seconds for which others may have run on exclusive CPUs, counted from the last check that found none there.",
)
UNPINNED: Final = Metric(
    "unpinned_seconds_total", MetricKind.COUNTER, "Seconds for which containers ran before they had their own CPUs."
)
UNPINNED_CONTAINERS: Final = Metric(
    "unpinned_containers_total", MetricKind.COUNTER, "Containers that ran before they had their own CPUs."
)
WAITING: Final = Metric(
    "waiting_containers",
    MetricKind.GAUGE,
    "Containers that run without the CPUs they should have, until there are some.",
)
DRIFT_REPAIRS: Final = Metric(
    "drift_repairs_total",
    MetricKind.COUNTER,
    "Containers or pools found on other CPUs than decided, or changed otherwise, and repaired.",
    (Label("cause", CAUSES),),
)
FIGHTS: Final = Metric(
    "drift_fights_total",
    MetricKind.COUNTER,
    "Times that another program has undone the same repair again and again.",
    (Label("cause", tuple(map(str, Cause))),),
)
DRIFT_LEFT: Final = Metric(
    "drift_unrepaired", MetricKind.GAUGE, "Containers or pools that the last check left on other CPUs than decided."
)
REFUSALS: Final = Metric(
    "refusals_total", MetricKind.COUNTER, "Pods that were refused, by reason.", (Label("reason", REASONS),)
)
DECISION_SECONDS: Final = Metric(
    "decision_duration_seconds", MetricKind.HISTOGRAM, "Time to decide about a pod.", buckets=_DECISION_S
)
APPLY_SECONDS: Final = Metric(
    "apply_duration_seconds",
    MetricKind.HISTOGRAM,
    "Time to apply a State and to read it back.",
    (Label("outcome", OUTCOMES),),
    _APPLY_S,
)
SAVE_SECONDS: Final = Metric(
    "state_save_duration_seconds", MetricKind.HISTOGRAM, "Time to make a State durable.", buckets=_APPLY_S
)
SAVES: Final = Metric("state_saves_total", MetricKind.COUNTER, "States that were made durable.")
SAVE_FAILURES: Final = Metric(
    "state_save_failures_total", MetricKind.COUNTER, "States that could not be made durable; nothing was applied then."
)
RELEASES: Final = Metric("releases_total", MetricKind.COUNTER, "Containers that are gone.")
POOL_CPUS: Final = Metric("pool_cpus", MetricKind.GAUGE, "CPUs of each pool.", (Label("pool", POOLS),))
OWNERS: Final = Metric("exclusive_containers", MetricKind.GAUGE, "Containers that have CPUs of their own.")
OWNER: Final = (Label("namespace"), Label("pod"), Label("container"))
CACHE_OCCUPANCY: Final = Metric(
    "cache_occupancy_bytes", MetricKind.GAUGE, "Bytes of the L3 cache that a container with a cache class uses.", OWNER
)
MEMORY_TRAFFIC: Final = Metric(
    "memory_traffic_bytes_total",
    MetricKind.COUNTER,
    "Bytes that a container with a cache class has moved from and to memory.",
    OWNER,
)
FOREIGN: Final = Metric(
    "foreign_run_seconds",
    MetricKind.GAUGE,
    "Seconds for which others, the kernel included, have run on a container's exclusive CPUs since it got them.",
    OWNER,
)
INTERRUPTS: Final = Metric(
    "exclusive_interrupts_total",
    MetricKind.COUNTER,
    "Interrupts, the timer's included, that a container's exclusive CPUs have served since it got them.",
    OWNER,
)
PREEMPTED: Final = Metric(
    "exclusive_preemptions_total",
    MetricKind.COUNTER,
    "How often threads of a container with exclusive CPUs had to leave their CPU for another thread.",
    OWNER,
)
THROTTLED: Final = Metric(
    "exclusive_throttled_seconds_total",
    MetricKind.COUNTER,
    "Seconds for which a quota has stopped a container with exclusive CPUs; it should be 0.",
    OWNER,
)
SPREAD: Final = Metric(
    "spread_containers",
    MetricKind.GAUGE,
    "Containers whose exclusive CPUs are spread over more groups than necessary.",
    (Label("boundary", SPANS),),
)
LARGEST_FREE: Final = Metric(
    "largest_free_cpus",
    MetricKind.GAUGE,
    "The most assignable CPUs in one group: the largest request that it could still hold.",
    (Label("boundary", SPANS),),
)
BROKEN_FREE: Final = Metric(
    "free_fragmentation_ratio",
    MetricKind.GAUGE,
    "Share of the assignable CPUs in partly used groups; 0 to 1.",
    (Label("boundary", SPANS),),
)
CONNECTED: Final = Metric(
    "runtime_connected", MetricKind.GAUGE, "Whether the container runtime can be reached; 1 or 0.", (Label("runtime"),)
)
WATCH_ONLY: Final = Metric(
    "watch_only",
    MetricKind.GAUGE,
    "Whether a kubelet with a policy of its own manages the CPUs here, so that pinfold only watches; 1 or 0.",
)
DISCONNECTS: Final = Metric(
    "runtime_disconnects_total", MetricKind.COUNTER, "How often the connection to the runtime was lost."
)
JOURNAL_DROPS: Final = Metric("journal_dropped_total", MetricKind.COUNTER, "Entries that the journal could not keep.")
BUILD: Final = Metric(
    "build_info", MetricKind.GAUGE, "Always 1; its labels say what runs.", (Label("version"), Label("policy"))
)
RSS: Final = Metric("process_resident_memory_bytes", MetricKind.GAUGE, "Memory of the daemon.")
CPU_SECONDS: Final = Metric("process_cpu_seconds_total", MetricKind.COUNTER, "CPU time that the daemon has used.")
OPEN_FDS: Final = Metric("process_open_fds", MetricKind.GAUGE, "File descriptors that the daemon has open.")

TABLE: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def check_prefix(prefix: str) -> str:
    """Return the prefix for the kubelet's names, or raise why it cannot be one."""
    if _PREFIX.fullmatch(prefix) is None:
        said = f"metrics prefix {excerpt(prefix)} cannot begin the name of a metric"
        raise ConfigError(Problem(said, "allowed are up to 64 letters, digits, _ and :, not beginning with a digit"))
    return prefix


def names(prefix: str = KUBELET) -> frozenset[str]:
    """Return the names of all series that are exposed."""
    return frozenset(f"{metric.full_name(prefix)}{end}" for metric in TABLE for end in metric.series)


def document() -> str:
    """Return the reference of all metrics."""
    return "\n".join([*_HEAD, *_section(False), "", *_OWN, *_section(True), "", *_FOOT, ""])  # noqa: FBT003 - ours or not


def _section(ours: bool) -> Iterator[str]:  # noqa: FBT001 - ours or not
    rows = [metric for metric in TABLE if metric.ours is ours]
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in rows:
        yield f"| `{metric.full_name()}` | {metric.kind} | {_labels(metric.labels)} | {_meaning(metric)} |"
    for metric in rows:
        if metric.buckets:
            yield ""
            yield f"Buckets of `{metric.full_name()}`: {', '.join(map(number, metric.buckets))}."


def _labels(labels: Iterable[Label]) -> str:
    return "; ".join(f"`{label.name}`" + (f": {', '.join(label.values)}" if label.values else "") for label in labels)


def _meaning(metric: Metric) -> str:
    return f"{metric.help} Differs: {metric.note}." if metric.note else metric.help


_HEAD: Final = (
    "# Metrics",
    "",
    "`/metrics` answers in the Prometheus text format, or in OpenMetrics if the client accepts it.",
    "Series have the same names in both; counters that do not end in `_total` are of unknown type in OpenMetrics.",
    "Every series exists from the start, at 0.",
    "Labels hold names of pods and containers only in series about exclusive containers.",
    "",
    "## As the kubelet's",
    "",
    "Names, types, labels and buckets are the kubelet's; the prefix `kubelet_` can be set to another one.",
    "",
)
_OWN: Final = ("## Our own", "")
_FOOT: Final = (
    "## Dashboard and alerts",
    "",
    "`deploy/grafana/pinfold.json` is a dashboard for Grafana.",
    "`deploy/prometheus/alerts.yaml` has alert rules for Prometheus.",
    "Both use these names; with another prefix, replace `kubelet_` in them.",
)
