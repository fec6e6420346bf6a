from __future__ import annotations

import json

from pinfold.core.config import Config, Reservation
from pinfold.core.events.about import Audience, PodName
from pinfold.core.events.decisions import Assigned
from pinfold.core.events.entries import Entry, Subject
from pinfold.core.events.fields import entry_fields
from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.explanation import (
    NOT_KEPT,
    Explanation,
    WhyRefused,
    alignment_counts,
    decides_on,
    explain_entry,
)
from pinfold.core.explaining.sharing import why_shared
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.topologymanager.others import WHOLE
from pinfold.core.trace import TraceStep
from pinfold.planning.plan import make_plan
from tests.property.strategies import pinned, pod_of

NODES = preset("sockets:2,numa:1,cores:4,threads:2")  # 16 CPUs; nodes 0-3,8-11 and 4-7,12-15
SINGLE = Config("static", reserved=Reservation.of(CPUSet.of(0, 8)), topology_policy="single-numa-node")
HALF = Resources(Amounts(500, 1 << 30), Amounts(500, 1 << 30))


def explained(*pods: Pod, config: Config = SINGLE) -> Explanation:
    """Explain the last container of the last pod."""
    plan = make_plan(pods, NODES, config)
    outcome = plan.outcomes[-1]
    container = outcome.pod.all_containers[-1]
    cpus, traces = outcome.cpus(container), outcome.traces()
    steps = (traces.get(container.name) or traces[WHOLE]).steps
    found = Explanation(f"{outcome.pod.namespace}/{outcome.pod.name}/{container.name}", cpus, since=5.0)
    if outcome.refusal is not None:
        advice = advise(plan.ruler, outcome, plan.names)
        refusal = WhyRefused(outcome.refusal.reason, outcome.refusal.message, advice.need, advice.room, advice.fixes)
        return found._replace(steps=steps, refusal=refusal)
    if cpus is None:
        return found._replace(shares=why_shared(plan.admitter.policy, outcome.pod, container))
    return found._replace(steps=steps, alignment=alignment_counts(plan.ruler.measure(cpus)))


def test_cpus_are_explained_by_the_steps_that_took_them_and_how_they_lie() -> None:
    found = explained(pod_of(pinned(4), uid="web")).data()
    assert (found["container"], found["cpus"], found["since"], found["refusal"]) == (
        "default/web/app",
        "1-2,9-10",
        5.0,
        None,
    )
    assert "took whole cores in socket 0: CPUs 1-2,9-10 (4 CPUs were needed)" in str(found["steps"])
    assert found["passed_over"] == ["hint: NUMA 1, preferred"]
    fewest = {"cores": 2, "uncore_caches": 1, "numa_nodes": 1, "sockets": 1}
    assert found["alignment"] == {**fewest, "fewest": fewest}


def test_a_refusal_comes_with_numbers_and_what_would_help() -> None:
    found = explained(pod_of(pinned(6), uid="a"), pod_of(pinned(2), uid="b"), pod_of(pinned(8), uid="c"))
    refusal = found.refusal
    assert refusal is not None
    assert refusal.reason == "TopologyAffinityError"
    assert (refusal.need, refusal.room) == (
        "8 CPUs in 1 NUMA node are not available",
        "NUMA 1 has 6 free, NUMA 0 has 0 free",
    )
    assert refusal.fixes == ("would fit if b/app ended", "would fit with 6 CPUs")
    assert found.steps
    assert found.why.startswith("TopologyAffinityError: ")


def test_in_one_line_the_first_steps_stand_for_all() -> None:
    found = explained(pod_of(pinned(3), uid="web"))
    assert found.why == "took whole cores in socket 0, then took single CPUs in socket 0"
    many = found._replace(steps=tuple(TraceStep(f"took core {core}", CPUSet.of(core)) for core in range(5)))
    assert many.why == "took core 0, then took core 1, then took core 2, and 2 more steps"


def test_an_explanation_says_why_a_container_shares() -> None:
    static = make_plan([], NODES, SINGLE).admitter.policy
    none = make_plan([], NODES, Config("none")).admitter.policy
    half = Container("c", HALF)
    guaranteed = Pod(PodUID("u"), "p", containers=(half,))
    burstable = Pod(PodUID("u"), "p", containers=(Container("c", Resources(Amounts(1000))),))
    whole = Pod(PodUID("u"), "p", containers=(Container("c"),), resources=Resources(HALF.requests, HALF.limits))
    assert why_shared(static, guaranteed, half) == "in the shared pool because 0.5 CPUs is not a whole number"
    assert "it has no limits, so the pod is Burstable, not Guaranteed" in why_shared(
        static, burstable, burstable.containers[0]
    )
    assert "its pod has pod-level resources" in why_shared(static, whole, whole.containers[0])
    assert "policy none gives no container exclusive CPUs" in why_shared(none, guaranteed, half)
    assert explained(guaranteed).data()["why"] == "in the shared pool because 0.5 CPUs is not a whole number"


def test_what_a_journal_keeps_explains_the_same_later() -> None:
    plan = make_plan([pod_of(pinned(4), uid="web")], NODES, SINGLE)
    placement = plan.placements[0]
    assert placement.cpus is not None
    assert placement.alignment is not None
    data, alignment = placement.trace.data(), alignment_counts(placement.alignment)
    event = Assigned(PodName("default", "web", "1"), "app", placement.cpus, data["steps"], data["defects"], alignment)
    kept = json.loads(json.dumps(entry_fields(event, Audience.JOURNAL)))
    found = explain_entry(Entry(1, 5.0, event.what, kept), Subject.parse("web/app"))
    assert found.data() == explained(pod_of(pinned(4), uid="web")).data()


def test_only_decisions_explain() -> None:
    subject = Subject.parse("web/app")
    entries = [
        Entry(1, 1.0, "assigned", {"pod": "web", "container": "app", "cpus": "1"}),
        Entry(2, 2.0, "released", {"pod": "web", "container": "app"}),
        Entry(3, 3.0, "refused", {"pod": "web", "reason": "R", "message": "M", "fixes": ["with 6 CPUs", ""]}),
        Entry(4, 4.0, "started", {"pod": "web", "container": "app"}),
        Entry(5, 5.0, "assigned", {"pod": "db", "container": "app", "cpus": "1"}),
    ]
    assert [entry.number for entry in entries if decides_on(entry, subject)] == [1, 2, 3]
    refused = explain_entry(entries[2], subject)
    assert (refused.why, refused.refusal) == ("R: M", WhyRefused("R", "M", fixes=("with 6 CPUs",)))
    assert explain_entry(entries[1], subject).why == "it released its CPUs"
    assert explain_entry(entries[0], subject).why == NOT_KEPT
    assert not any(decides_on(entry, Subject.parse("nobody")) for entry in entries)


def test_steps_that_are_none_do_no_harm() -> None:
    for steps in (None, 7, ["text"], [{"took": "x"}], [{"what": None, "took": 7, "why": None}]):
        entry = Entry(1, 1.0, "assigned", {"pod": "web", "cpus": "zzz", "steps": steps, "alignment": "x"})
        assert explain_entry(entry, Subject.parse("web")).data()["cpus"] == ""
