"""What a repack would bring on a planned node: the moves that policy `dynamic` would make, without any pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pinfold.core.allocators.order import Fidelity
from pinfold.core.localmemory import asks_for_local_memory
from pinfold.core.moving.repacking import Consent, pinned_by
from pinfold.core.policies.static import DYNAMIC
from pinfold.errors import ConfigError

if TYPE_CHECKING:
    from pinfold.core.moving.repack import RepackPlan
    from pinfold.core.pods.pod import Pod
    from pinfold.planning.plan import Plan

_PREFIX = "pinfold.dev/"


def repacked(plan: Plan) -> RepackPlan:
    """Return the moves that would follow a plan; a node with policy static is taken as one with dynamic."""
    if not plan.admitter.policy.allocatable:
        raise ConfigError(f"policy {plan.config.policy} gives no container exclusive CPUs, so none can move")
    policy = replace(plan.config, policy=DYNAMIC, fidelity=Fidelity.PINFOLD).build(plan.topology).policy
    spreading = pinned_by(policy.pools.options)
    if policy.repacking is None or spreading:
        raise ConfigError(f"no container can move: the option {spreading} spreads CPUs, which a repack would undo")
    pods = {outcome.pod.uid: outcome.pod for outcome in plan.outcomes}
    may_move = {
        ref: _consent(pods[ref.pod]) if ref.pod in pods else Consent()
        for ref, _ in plan.after.flat()
        if ref.pod not in pods or not _says(pods[ref.pod], "movable", "false")
    }
    return policy.repacking.plan(plan.after, may_move, len(may_move))


def _consent(pod: Pod) -> Consent:
    return Consent(asks_for_local_memory(pod) is True, pod.annotations)


def _says(pod: Pod, name: str, value: str) -> bool:
    return pod.annotations.get(f"{_PREFIX}{name}") == value
