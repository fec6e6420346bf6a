from __future__ import annotations

from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.advice import NO_ADVICE, advise
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.planning.plan import Running
from pinfold.planning.replay import KEPT_WHOLE, Event, ReplayMoment, replay
from tests.property.strategies import pinned, pod_of

MACHINE = preset("cores:8")
CONFIG = Config("static", reserved=Reservation.of(CPUSet.of(0)))


def test_pods_come_and_go_and_every_moment_is_kept() -> None:
    a, b, big = (pod_of(pinned(cpus), uid=name) for name, cpus in (("a", 2), ("b", 3), ("big", 7)))
    events = [Event(0, a), Event(5, b), Event(6, big), Event(7, a.uid), Event(9, b.uid), Event(9, big)]
    found = replay(events, MACHINE, CONFIG)
    assert list(found.moments) == [
        ReplayMoment(0, 1, 2, 0),
        ReplayMoment(5, 2, 5, 0),
        ReplayMoment(6, 2, 5, 1),
        ReplayMoment(7, 1, 3, 1),
        ReplayMoment(9, 0, 0, 1),
        ReplayMoment(9, 1, 7, 1),
    ]
    assert list(found.times) == [0, 5, 6, 9]
    assert [outcome.refusal is None for outcome in found.plan.outcomes] == [True, True, False, True]
    assert found.peak == found.moments[-1]


def test_an_empty_trace_has_no_peak() -> None:
    found = replay([], MACHINE, CONFIG)
    assert found.peak is None
    assert found.plan.after == found.plan.before


def test_a_trace_starts_from_what_is_there() -> None:
    state = State(MACHINE.online - CPUSet.of(1, 2), {PodUID("old"): {"app": CPUSet.of(1, 2)}})
    found = replay([Event(0, pod_of(pinned(2)))], MACHINE, CONFIG, Running(state))
    assert str(found.plan.placements[0].cpus) == "3-4"
    assert found.moments[0].exclusive == 4


def test_an_event_is_a_pod_that_comes_or_a_uid_that_goes() -> None:
    assert Event(0, pod_of(pinned(1))).comes
    assert not Event(0, PodUID("a")).comes


def test_a_long_trace_keeps_cpus_and_defects_but_not_every_state() -> None:
    hybrid = preset("i7-12850hx")
    exact = Config("static", {"full-pcpus-only": "true"}, Reservation.of(CPUSet.of(0, 1)), fidelity=Fidelity.KUBELET)
    events = []
    for number in range(KEPT_WHOLE + 20):
        pod = pod_of(pinned(3 if number % 2 else 99), uid=f"p{number}")
        events += [Event(number, pod), Event(number, pod.uid)]
    found = replay(events, hybrid, exact).plan
    early, late = found.placements[1], found.placements[-1]
    assert early.cpus == late.cpus
    assert early.trace.steps
    assert not late.trace.steps
    assert early.outcome.defects[0][1:] == late.outcome.defects[0][1:]
    refused = found.placements[-2]
    assert refused.refusal is not None
    assert refused.refusal.reason == "SMTAlignmentError"
    assert advise(found.ruler, refused.outcome) == NO_ADVICE
    assert advise(found.ruler, found.placements[0].outcome) != NO_ADVICE
