"""Replays cases of hints.jsonl.gz: the NUMA hints of a container or pod on a State."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError
from tests.parity.cases import pod_from_vector
from tests.parity.node import Case, Machines, Node, Outcome, differences, node_mask, state_data, state_from

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Fidelity
    from pinfold.core.topologymanager.hint import Hint


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return how our hints differ from the reference's."""
    node = Node(case, machines.prepared(case["topology"], fidelity))
    pod = pod_from_vector(case["pod"])
    containers = {container.name: container for container in pod.all_containers}
    state = state_from(case["state"])
    errors: list[str | None] = []
    for first in case.get("allocate_first", ()):
        container, recorder = containers[first["container"]], Recorder()
        try:
            state = node.policy.admit(state, pod, container, node_mask(first.get("affinity")), recorder).state
            errors.append(None)
        except AdmissionError as refusal:
            errors.append(str(refusal))
        node.note(recorder.trace())
    query = case["query"]
    if query["scope"] == "pod":
        hints = node.policy.pod_hints(state, pod)
    else:
        hints = node.policy.hints(state, pod, containers[query["container"]])
    found: Case = {"hints": None if hints is None else [hint_data(hint) for hint in hints]}
    if "first_errors" in case["expect"]:
        found |= {"first_errors": errors, "state_after_first": state_data(state)}
    return Outcome(None if laws_only else differences(found, case["expect"]), frozenset(node.defects))


def hint_data(hint: Hint) -> Case:
    """Return a hint as cases write it."""
    return {"numa": hint.nodes, "preferred": hint.preferred}
