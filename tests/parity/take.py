"""Replays cases of take.jsonl.gz: choosing CPUs out of a free set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.distributed import take_distributed
from pinfold.core.allocators.order import Arrangement
from pinfold.core.allocators.packed import take_packed
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError
from tests.parity.node import Case, Machines, Outcome

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Fidelity, Machine


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return how our answer differs from the reference's."""
    machine = machines.prepared(case["topology"], fidelity)
    recorder = Recorder()
    answer = _answer(case, machine, None)
    if answer != _answer(case, machine, recorder):
        return Outcome("the answer changes when a Trace is asked for")
    defects = frozenset(defect for defect, _ in recorder.trace().defects)
    if laws_only or "hang" in case["expect"]:
        unsound = None if fidelity == "kubelet" else _unsound(case, answer)
        return Outcome(unsound, defects)
    expect = case["expect"]
    expected = expect["cpus"] if "cpus" in expect else f"refused: {expect['error']}"
    return Outcome(None if answer == expected else f"expected {expected}, found {answer}", defects)


def _answer(case: Case, machine: Machine, recorder: Recorder | None) -> str:
    available = CPUSet.parse(case["available"]).mask
    arrangement = Arrangement(
        spread=case["sort"] == "spread",
        uncore=case.get("uncore", False),
        group=case.get("group", 0),
        align_by_socket=case.get("align_by_socket", False),
    )
    take = take_distributed if case["algo"] == "distributed" else take_packed
    try:
        return str(CPUSet(take(machine, available, case["n"], arrangement, recorder)))
    except AdmissionError as error:
        return f"refused: {error}"


def _unsound(case: Case, answer: str) -> str | None:
    if answer.startswith("refused"):
        return None
    cpus, available = CPUSet.parse(answer), CPUSet.parse(case["available"])
    if not cpus <= available:
        return f"CPUs {cpus - available} were not available"
    return None if len(cpus) == case["n"] else f"wanted {case['n']} CPUs, found {len(cpus)}"
