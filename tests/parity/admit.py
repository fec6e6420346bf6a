"""Replays cases of admit.jsonl.gz: the Topology Manager and the CPU Manager together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.admission import NO_HINT, Admitter, Scope
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.state import State
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.errors import ConfigError
from tests.parity.cases import pod_from_vector
from tests.parity.hints import hint_data
from tests.parity.node import Case, Machines, Node, Outcome, collect, differences, node_mask, state_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.allocators.order import Fidelity


def replay(case: Case, machines: Machines, fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:
    """Return the first step at which we differ from the reference."""
    start = case["start"]
    try:
        node = Node(case, machines.prepared(case["topology"], fidelity))
        admitter = Admitter(node.policy, manager_of(case["tm"]), Scope(case["tm"]["scope"]))
    except ConfigError as error:
        return Outcome(differences({"error": error.problems[0].said}, {"error": start["error"]}))
    if start["error"]:
        return Outcome(f"start: expected {start['error']}")
    trace = _Trace(node, admitter)
    for number, step in enumerate(case["steps"]):
        found = trace.take(step)
        if fidelity == "pinfold" and (broken := node.broken(trace.state)):
            return Outcome(f"step {number}: {'; '.join(broken)}", frozenset(node.defects))
        if not laws_only and (unlike := differences(found, step["expect"])):
            return Outcome(f"step {number} ({step['op']}): {unlike}", frozenset(node.defects))
    return Outcome(None, frozenset(node.defects))


class _Trace:
    """The State of a node, its active pods, and the hints that the Topology Manager keeps for them."""

    def __init__(self, node: Node, admitter: Admitter) -> None:
        self.node = node
        self.admitter = admitter
        self.state: State = node.policy.start(State(EMPTY))
        self.active: set[str] = set()
        self.kept: dict[str, dict[str, Hint]] = {}

    def take(self, step: Case) -> Case:
        """Take one step and return what can be seen afterwards."""
        if step["op"] == "admit":
            return {**self._admit(step), **state_data(self.state)}
        if step["op"] == "remove_pod":
            self.active.discard(step["pod_uid"])
        self._collect()
        return state_data(self.state)

    def _collect(self) -> None:
        self.state = collect(self.node.policy, self.state, self.active)

    def _admit(self, step: Case) -> Case:
        pod = pod_from_vector(step["pod"])
        self.active.add(pod.uid)
        self._collect()
        devices = devices_of(step)
        for trace in self.admitter.explain(self.state, pod, others=devices).values():
            self.node.note(trace)
        admission = self.admitter.admit(self.state, pod, others=devices)
        self.state = admission.state
        kept = self.kept.setdefault(pod.uid, {})
        kept.update(admission.affinity)
        found: Case = {
            "admit": admission.refusal is None,
            "affinity": {
                container.name: hint_data(kept.get(container.name, NO_HINT)) for container in pod.all_containers
            },
        }
        if admission.refusal is not None:
            self.active.discard(pod.uid)
            found |= {"reason": admission.refusal.reason, "message": admission.refusal.message}
        return found


def manager_of(data: Case) -> TopologyManager:
    """Return the Topology Manager of a case."""
    nodes = data["nodes"]
    distances = {node["id"]: dict(enumerate(node["distances"])) for node in nodes}
    return TopologyManager.create(data["policy"], data["options"], [node["id"] for node in nodes], distances)


class RecordedHints(NamedTuple):
    """The hints of a pod's devices as recorded: the same for each container and the pod."""

    hints: Mapping[str, HintList | None]
    is_asked: bool = False

    def of(self, container: str, everything: int) -> Mapping[str, HintList | None]:  # noqa: ARG002 - as recorded
        """Return what was recorded."""
        return self.hints

    def taken(self, container: str, affinity: int | None) -> RecordedHints:  # noqa: ARG002 - as recorded
        """Return the same."""
        return self

    def __bool__(self) -> bool:
        return bool(self.hints)


def devices_of(step: Case) -> RecordedHints:
    """Return the hints of a pod's devices."""
    return RecordedHints({name: _hint_list(hints) for name, hints in step.get("device_hints", {}).items()})


def _hint_list(hints: list[Case] | None) -> HintList | None:
    return None if hints is None else HintList(Hint(node_mask(hint), hint["preferred"]) for hint in hints)
