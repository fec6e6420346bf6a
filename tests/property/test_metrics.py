"""Laws of the metrics: counters never shrink, and gauges are the State, for any containers in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.events.measures import Judged, Left
from pinfold.core.explaining.alignment import Level, Ruler
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.snapshot import Snapshot
from pinfold.core.state import State
from pinfold.formats.openmetrics import MetricKind
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.counters import Counters
from pinfold.serve.metrics.metrics import Metrics
from tests.property.strategies import pods, topologies, whole_pods

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod

MACHINE = from_shape("sockets:2,numa:1,l3:2,cores:2,threads:2")
OPTIONS: tuple[dict[str, str], ...] = ({}, {"full-pcpus-only": "true"}, {"strict-cpu-reservation": "true"})
NAMES = [f"p{number}" for number in range(4)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Pod]]:
    """Return pods that come and go, some of them with CPUs as a whole; a pod may come twice."""
    known = {uid: draw(st.one_of(pods(uid), whole_pods(uid))) for uid in NAMES}
    steps = draw(
        st.lists(st.tuples(st.sampled_from(["admit", "admit", "not applied", "release"]), st.sampled_from(NAMES)))
    )
    return [(what, known[uid]) for what, uid in steps]


def written(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def growing(found: dict[str, float]) -> dict[str, float]:
    ends = ("_total", "_bucket", "_count", "_sum")
    gauges = {metric.full_name() for metric in rows.TABLE if metric.kind is MetricKind.GAUGE}
    series = {name: value for name, value in found.items() if name.partition("{")[0] not in gauges}
    assert all(name.partition("{")[0].endswith(ends) for name in series)
    return series


def check_gauges(found: dict[str, float], reading: Snapshot) -> None:
    state, topology = reading.state, reading.topology
    per_numa = [value for name, value in found.items() if "allocation_per_numa" in name]
    assert sum(per_numa) == len(state.exclusive) == found["kubelet_cpu_manager_exclusive_cpu_allocation_count"]
    assert len(per_numa) == len(topology.numa_nodes)
    assert found["kubelet_cpu_manager_shared_pool_size_millicores"] == 1000 * len(
        state.shared - reading.policy.reserved
    )
    pools = {name: found[f'pinfold_pool_cpus{{pool="{name}"}}'] for name in rows.POOLS}
    assert pools["assignable"] <= pools["shared"] <= pools["online"] - pools["exclusive"]


def check_pieces(found: dict[str, float], reading: Snapshot) -> None:
    """See that the fast figures are those of the Ruler."""
    ruler = Ruler(reading.topology, reading.topology.online - reading.policy.reserved)
    left = ruler.leftover(reading.state.shared - reading.policy.reserved)
    owned = [cpus for containers in reading.state.assignments.values() for cpus in containers.values()]
    for level, name in zip(Level, rows.SPANS, strict=True):
        label = f'{{boundary="{name}"}}'
        assert found[f"pinfold_largest_free_cpus{label}"] == left.largest[level]
        assert found[f"pinfold_free_fragmentation_ratio{label}"] == left.broken[level]
        spread = [cpus for cpus in owned if not ruler.measure(cpus).levels[level].is_aligned]
        assert found[f"pinfold_spread_containers{label}"] == len(spread)


@given(
    histories(),
    st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    st.sampled_from(["container", "pod"]),
    st.sampled_from(OPTIONS),
)
def test_counters_never_shrink_and_errors_never_outnumber_requests(
    history: list[tuple[str, Pod]], topology: str, scope: str, options: dict[str, str]
) -> None:
    reserved = CPUSet.of(0)
    config = Config(
        "static",
        reserved=Reservation.of(reserved),
        options=options,
        topology_policy=topology,
        topology_scope=scope,
        gates={"PodLevelResourceManagers": True},
    )
    admitter = config.build(MACHINE)
    state = admitter.policy.start(State.new())
    counters = Counters(admitter, now=0.0)
    current, refused = state, set[str]()
    metrics = Metrics(lambda: Snapshot(MACHINE, admitter.policy, current), counters, process=dict)
    last = growing(written(metrics.scrape()[1].decode()))
    for what, pod in history:
        if what == "release":
            refs = [pod.ref(container) for container in pod.all_containers]
            for ref in refs:
                current = admitter.policy.release(current, ref).state
            counters.hear(Left(refs))
        else:
            before = current
            admission = admitter.admit(before, pod)
            ok, again = what == "admit", pod.uid in refused
            counters.hear(Judged(pod=pod, before=before, admission=admission, seconds=0.001, ok=ok, again=again))
            if admission.refusal is not None:
                refused.add(pod.uid)
            elif ok:
                refused.discard(pod.uid)
                current = admission.state
        found = written(metrics.scrape()[1].decode())
        check_gauges(found, Snapshot(MACHINE, admitter.policy, current))
        now = growing(found)
        assert now.keys() == last.keys()
        assert all(now[name] >= last[name] for name in now)
        assert (
            now["kubelet_topology_manager_admission_errors_total"]
            <= now["kubelet_topology_manager_admission_requests_total"]
        )
        last = now


@st.composite
def owned(draw: st.DrawFn) -> tuple[Topology, CPUSet, State]:
    """Return any machine whose CPUs are shared out anyhow."""
    topology = draw(topologies())
    online = list(topology.online)
    reserved = CPUSet.of(online[0])
    owners = draw(st.lists(st.sampled_from([None, None, "a", "b", "c"]), min_size=len(online), max_size=len(online)))
    owners[0] = None
    of = {
        name: CPUSet.from_cpus(cpu for cpu, owner in zip(online, owners, strict=True) if owner == name)
        for name in (None, "a", "b", "c")
    }
    assignments = {f"pod-{name}": {"app": cpus} for name, cpus in of.items() if name and cpus}
    return topology, reserved, State(of[None], assignments)  # type: ignore[arg-type]  # plain text for a PodUID


@given(st.lists(owned(), min_size=1, max_size=3))
def test_figures_that_are_worked_out_fast_are_those_of_the_ruler(nodes: list[tuple[Topology, CPUSet, State]]) -> None:
    topology, reserved, _ = nodes[0]
    admitter = Config("static", reserved=Reservation.of(reserved)).build(topology)
    reading = Snapshot(topology, admitter.policy, nodes[0][2])
    metrics = Metrics(lambda: reading, Counters(admitter, now=0.0), process=dict)
    for topology, reserved, state in nodes:  # one Metrics sees them all: what it remembers of one must not leak
        policy = Config("static", reserved=Reservation.of(reserved)).build(topology).policy
        reading = Snapshot(topology, policy, state)
        for _ in range(2):
            check_pieces(written(metrics.scrape()[1].decode()), reading)
