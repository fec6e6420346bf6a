from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinfold.core.allocators.order import Arrangement, Fidelity, Machine
from pinfold.core.allocators.packed import take_packed
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.state import State
from pinfold.core.trace import Defect, Recorder, Trace, TraceStep
from tests.property.strategies import pinned, pod_of

PARITY = Path(__file__).parents[3] / "docs" / "reference" / "parity.md"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (TraceStep("took a core", CPUSet.of(0, 4), "2 were needed"), "took a core: CPUs 0,4 (2 were needed)"),
        (TraceStep("passed over cache 0", EMPTY, "it is full"), "passed over cache 0 (it is full)"),
        (TraceStep("looked"), "looked"),
        (TraceStep("took", CPUSet.of(1)), "took: CPU 1"),
    ],
)
def test_a_step_is_one_line(step: TraceStep, text: str) -> None:
    assert str(step) == text


def test_text_has_a_line_for_each_step_and_then_for_each_defect() -> None:
    trace = Trace(
        (TraceStep("one"), TraceStep("two", CPUSet.of(3))), ((Defect.UNAVAILABLE_CPUS, "CPUs 3 were not free"),)
    )
    assert trace.text().splitlines() == ["one", "two: CPU 3", "defect unavailable-cpus: CPUs 3 were not free"]


def test_a_trace_of_nothing_is_empty() -> None:
    assert Trace().text() == ""
    assert Trace().data() == {"steps": [], "defects": []}
    assert Recorder().trace() == Trace()


def test_data_is_ready_for_json() -> None:
    trace = Trace((TraceStep("took", CPUSet.parse("0-3"), "why"),), ((Defect.AVERAGE_SIZE, "a core"),))
    assert json.loads(json.dumps(trace.data())) == {
        "steps": [{"what": "took", "took": "0-3", "why": "why"}],
        "defects": [{"defect": "average-size", "what": "a core"}],
    }


def test_a_defect_that_shows_twice_is_noted_once() -> None:
    recorder = Recorder()
    for _ in range(2):
        recorder.defect(Defect.AVERAGE_SIZE, "core 0")
    recorder.defect(Defect.AVERAGE_SIZE, "core 1")
    assert [what for _, what in recorder.trace().defects] == ["core 0", "core 1"]


def test_cpus_that_were_free_are_no_defect() -> None:
    recorder = Recorder()
    recorder.unavailable(0)
    assert recorder.trace().defects == ()
    recorder.unavailable(0b11)
    assert recorder.trace().defects == ((Defect.UNAVAILABLE_CPUS, "CPUs 0-1 were taken though they were not free"),)


@pytest.mark.parametrize("defect", Defect)
def test_every_defect_is_explained_on_the_parity_page(defect: Defect) -> None:
    assert defect in PARITY.read_text()


def test_a_trace_tells_what_was_taken_from_where_and_why() -> None:
    recorder = Recorder()
    machine = Machine(preset("sockets:2,cores:2,threads:2"))
    take_packed(machine, 0b1111_1110, 7, Arrangement(), recorder)
    assert recorder.trace().text().splitlines() == [
        "took all of NUMA node 1: CPUs 2-3,6-7 (7 CPUs were needed)",
        "took whole cores in socket 0: CPUs 1,5 (3 CPUs were needed)",
        "took single CPUs in socket 0: CPU 4 (of the cores with the fewest free CPUs)",
    ]


def test_a_trace_tells_which_caches_were_passed_over_and_why() -> None:
    recorder = Recorder()
    machine = Machine(preset("sockets:1,l3:2,cores:3,threads:2"))
    free = CPUSet.parse("1-5,7-11").mask  # the first cache has lost CPUs 0 and 6
    take_packed(machine, free, 5, Arrangement(uncore=True), recorder)
    assert recorder.trace().text().splitlines() == [
        "passed over uncore cache 0 (4 CPUs of its cores are free, 5 are needed)",
        "took part of uncore cache 1: CPUs 3-5,9-10 (it can hold all 5 CPUs still needed)",
    ]


@pytest.mark.parametrize("fidelity", Fidelity)
def test_a_refusal_ends_its_trace_with_its_reason(fidelity: Fidelity) -> None:
    config = Config("static", {"full-pcpus-only": "true"}, Reservation.of(CPUSet.of(0)), fidelity=fidelity)
    admitter = config.build(preset("laptop-4"))
    state, pod = admitter.policy.start(State.new()), pod_of(pinned(3))
    refusal = admitter.admit(state, pod).refusal
    last = admitter.explain(state, pod)["app"].steps[-1]
    assert (last.what, last.why) == ("refused with SMTAlignmentError", str(refusal))
