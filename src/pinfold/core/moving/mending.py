"""Assignments of which some CPUs have gone, under the policy `dynamic`: only these are replaced, and given back later.

A container whose missing CPUs cannot be replaced by the rules keeps the rest: it is degraded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.moving.baselines import baseline, without_baseline
from pinfold.core.moving.resizing import NotResized
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.admission import Admitter, Asked
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State


class Mended(NamedTuple):
    """A State in which a container keeps its remaining CPUs, and has others for the missing ones."""

    state: State
    refusal: NotResized | None = None
    """Why the missing CPUs could not be replaced; then the container has fewer than before."""


def mend(admitter: Admitter, state: State, found: State, container: ContainerRef, asked: Asked) -> Mended | None:
    """Return the State with the rest of a container's CPUs of *found*, and others instead of the missing ones.

    None: nothing of them is left, or its pod was assigned as a whole.
    """
    cpus = found.assignments[container.pod][container.name]
    pools = admitter.policy.pools
    left = cpus & (state.shared - admitter.policy.reserved)
    occupied = pools.with_idle(found, left)
    if container.pod in found.pods or not left or not pools.shared(state) - occupied:
        return None
    mine = {**state.assignments.get(container.pod, {}), container.name: left}
    base = baseline(found, container)
    baselines = {**state.baselines, container.pod: {**state.baselines.get(container.pod, {}), container.name: base}}
    kept = state._replace(
        shared=state.shared - occupied, assignments={**state.assignments, container.pod: mine}, baselines=baselines
    )
    try:
        return Mended(admitter.resize(kept, container, len(cpus), asked=asked).state)
    except NotResized as refusal:
        return Mended(kept, refusal)


def give_back(policy: Policy, state: State, pods: Mapping[PodUID, Pod]) -> tuple[State, Mapping[ContainerRef, CPUSet]]:
    """Return the State in which containers have those CPUs of their baselines again that are free, and who got which.

    CPUs that replaced them become free. A container stays where it is if an option does not hold there any more.
    """
    changed = {}
    for container, cpus in list(state.flat()):
        base = baseline(state, container)
        back = base & (state.shared - policy.reserved)
        if not back or container.pod in state.pods:
            continue
        spare = sorted(cpus - base, reverse=True)[: len(cpus | back) - max(len(base), len(cpus))]
        now = (cpus | back) - CPUSet.from_cpus(spare)
        try:
            state = _given_back(policy, state, container, now, pods)
        except AdmissionError:
            continue
        if now == base:
            state = without_baseline(state, container)
        changed[container] = now
    return state, changed


def _given_back(
    policy: Policy, state: State, container: ContainerRef, cpus: CPUSet, pods: Mapping[PodUID, Pod]
) -> State:
    pod = pods.get(container.pod)
    resizing = policy.resizing
    assert resizing is not None  # noqa: S101 - the policy is dynamic
    return resizing.for_pod({} if pod is None else pod.annotations).given_back(state, container, cpus)
