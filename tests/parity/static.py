"""Replays cases of static.jsonl.gz and podlevel.jsonl.gz: traces of one policy on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.state import State
from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError, ConfigError, StateError
from tests.parity.cases import pod_from_vector
from tests.parity.node import Case, Machines, Node, Outcome, differences, node_mask, state_data

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Fidelity


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return the first step at which we differ from the reference."""
    machine = machines.prepared(case["topology"], fidelity)
    start = case.get("start", {})
    try:
        node = Node(case, machine)
    except ConfigError as refusal:
        return Outcome(differences({"error": refusal.problems[0].said}, {"error": start["error"]}))
    state = node.policy.start(State(machine.topology.online - machine.topology.online))
    if case["policy"] != "none" and start and not laws_only and (unlike := _compare_start(node, state, start)):
        return Outcome(f"start: {unlike}", frozenset(node.defects))
    for number, step in enumerate(case["steps"]):
        state, error = _take_step(node, state, step)
        if fidelity == "pinfold" and (broken := node.broken(state)):
            return Outcome(f"step {number}: {'; '.join(broken)}", frozenset(node.defects))
        if not laws_only and "expect" in step and (unlike := _compare(state, error, step["expect"])):
            return Outcome(f"step {number} ({step['op']}): {unlike}", frozenset(node.defects))
    return Outcome(None, frozenset(node.defects))


def _compare_start(node: Node, state: State, expected: Case) -> str | None:
    found = {
        "error": None,
        "default": str(state.shared),
        "reserved": str(node.reserved),
        "reserved_physical": str(node.topology.siblings(node.reserved)),
        "allocatable": str(node.topology.online - node.reserved),
    }
    return differences(found, expected)


def _compare(state: State, error: Case | None, expected: Case) -> str | None:
    found = {**state_data(state), "error": error}
    if "pod_assignments" in expected:
        found["pod_assignments"] = {pod: str(cpus) for pod, cpus in state.pods.items()}
    texts = (expected["error"] or {}).get("error_any_of")
    if texts and error and error["error"] in texts:
        expected = {**expected, "error": error}
    return differences(found, expected)


def _take_step(node: Node, state: State, step: Case) -> tuple[State, Case | None]:
    match step["op"]:
        case "admit":
            return _admit(node, state, step)
        case "admit_pod":
            return _admit_pod(node, state, step)
        case "remove":
            return node.policy.release(state, ContainerRef(PodUID(step["pod_uid"]), step["container"])).state, None
        case "restart":
            try:
                return node.policy.start(state.restarted()), None
            except StateError as error:
                return state, {"error": getattr(error, "reference", str(error))}
    return state, None  # a resize is offered to the policy, which does nothing


def _admit(node: Node, state: State, step: Case) -> tuple[State, Case | None]:
    pod = pod_from_vector(step["pod"])
    for container in pod.all_containers:
        recorder = Recorder()
        try:
            state = node.policy.admit(state, pod, container, node_mask(step.get("affinity")), recorder).state
        except AdmissionError as refusal:
            return state, {"container": container.name, **_error(refusal)}
        finally:
            node.note(recorder.trace())
    return state, None


def _admit_pod(node: Node, state: State, step: Case) -> tuple[State, Case | None]:
    pod, recorder = pod_from_vector(step["pod"]), Recorder()
    try:
        decision = node.policy.admit_pod(state, pod, node_mask(step.get("affinity")), recorder)
    except AdmissionError as refusal:
        return state, _error(refusal)
    finally:
        node.note(recorder.trace())
    return decision.state, None if decision.refusal is None else _error(decision.refusal)


def _error(refusal: AdmissionError) -> Case:
    return {"error": str(refusal), "reason": refusal.reason, "message": refusal.message}
