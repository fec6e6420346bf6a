"""A Plan as plain data: what `-o json` and `-o yaml` write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import yaml

from pinfold.core.explaining.advice import advise
from pinfold.core.snapshot import pools

if TYPE_CHECKING:
    from pinfold.core.explaining.alignment import Alignment, Leftover
    from pinfold.planning.plan import Placement, Plan

    Data = dict[str, object]

_MOST_ADVICE: Final = 100


def plan_data(plan: Plan, title: str = "") -> Data:
    """Return the plan, ready for JSON; `placements` has every container, in order."""
    return {"placements": placements_data(plan), **plan_facts(plan, title)}


def plan_facts(plan: Plan, title: str = "") -> Data:
    """Return all but the placements."""
    policy = plan.admitter.policy
    return {
        "pools": pools(policy, plan.after, plan.topology),
        "pools_before": pools(policy, plan.before, plan.topology),
        "summary": summary_data(plan),
        "leftover": leftover_data(plan.leftover),
        "node": {"machine": title, **config_data(plan)},
        "resources": _resources(plan),
        "defects": [{"container": who, "defect": str(name), "what": what} for who, name, what in plan.defects],
        "broken": list(plan.broken),
        "missed": [
            {"namespace": pod.namespace, "pod": pod.name, "container": container.name, "why": why}
            for pod, container, why in plan.missed
        ],
    }


def _resources(plan: Plan) -> Data:
    """Return what containers have of other resources, and what is left of them, by NUMA node."""
    given: list[Data] = [
        {"pod": plan.names.get(ref.pod, ref.pod), "container": ref.name, "resource": name, "numa": dict(amounts)}
        for ref, name, amounts in plan.stock.given
    ]
    return {"given": given, "left": {name: dict(row) for name, row in plan.stock.left.items()}}


def placements_data(plan: Plan) -> list[Data]:
    """Return the result of every container, in order; only the first of many refusals have advice."""
    advised = [placement for placement in plan.placements if placement.is_culprit][:_MOST_ADVICE]
    texts = {(placement.pod.uid, placement.container.name): _advice(plan, placement) for placement in advised}
    return [
        _placement(plan, placement) | {"advice": texts.get((placement.pod.uid, placement.container.name))}
        for placement in plan.placements
    ]


def _placement(plan: Plan, placement: Placement) -> Data:
    """Return one container; `cpus` are those it runs on, null if its pod was refused."""
    refusal = placement.refusal
    cpus = plan.shared if placement.cpus is None else placement.cpus
    return {
        "namespace": placement.pod.namespace,
        "pod": placement.pod.name,
        "container": placement.container.name,
        "qos": str(placement.pod.qos),
        "exclusive": placement.cpus is not None,
        "cpus": str(cpus) if refusal is None else None,
        "reason": None if refusal is None else refusal.reason,
        "message": None if refusal is None else refusal.message,
        "running": placement.outcome.was_running,
        "wanted": placement.wanted,
        "refused_container": placement.outcome.admission.container if refusal is not None else None,
        "alignment": None if placement.alignment is None else alignment_data(placement.alignment),
    }


def _advice(plan: Plan, placement: Placement) -> str | None:
    return str(advise(plan.ruler, placement.outcome, plan.names)) or None


def alignment_data(alignment: Alignment) -> Data:
    """Return how CPUs are spread: the groups of each level, and the minimum."""
    levels: Data = {
        level.lower(): {"ids": list(span.ids), "fewest": span.fewest} for level, span in alignment.levels.items()
    }
    return {"aligned": alignment.is_aligned, **levels}


def leftover_data(left: Leftover) -> Data:
    """Return the free CPUs."""
    return {
        "cpus": str(left.cpus),
        "count": len(left.cpus),
        "largest": {level.lower(): count for level, count in left.largest.items()},
        "fragmentation": round(left.fragmentation, 4),
    }


def summary_data(plan: Plan) -> Data:
    """Return the plan in four numbers."""
    return {
        "pods": len(plan.outcomes),
        "refused": len(plan.refused),
        "containers": len(plan.placements),
        "misaligned": len(plan.misaligned),
    }


def config_data(plan: Plan) -> Data:
    """Return the settings of the plan."""
    config = plan.config
    return {
        "policy": config.policy,
        "options": dict(config.options),
        "topology_policy": config.topology_policy,
        "topology_scope": config.topology_scope,
        "fidelity": str(config.fidelity),
    }


def format_json(data: Data) -> str:
    """Return *data* as JSON."""
    return json.dumps(data, indent=2) + "\n"


def format_yaml(data: Data) -> str:
    """Return *data* as YAML."""
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=False)
    return text
