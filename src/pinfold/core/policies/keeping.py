"""Which Assignments a State can keep after the machine, the reserved CPUs or the options have changed.

The kubelet asks the operator to drain the node and delete the file instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.policies.base import Kept
from pinfold.core.state import NOTHING, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.policies.pools import Pools


def keep_what_fits(found: State, shared: CPUSet, pools: Pools) -> Kept:
    """Return *found* on a node whose unowned CPUs were *shared*, without the Assignments that cannot stay.

    An Assignment stays if its CPUs are assignable and belong to its pod alone, and one shared CPU is left. A pod that
    was assigned as a whole keeps all its CPUs and containers, or none. Baselines stay with their Assignments.
    Siblings that were idle stay idle.
    """
    state = State(shared)
    lost: dict[ContainerRef, CPUSet] = {}
    for pod in dict.fromkeys((*found.assignments, *found.pods)):
        state = _keep_pod(state, found, pod, pools, lost)
    baselines = {
        pod: {name: cpus for name, cpus in containers.items() if state.cpus(pod, name) is not None}
        for pod, containers in found.baselines.items()
    }
    return Kept(state._replace(baselines={pod: kept for pod, kept in baselines.items() if kept} or NOTHING), lost)


def _keep_pod(state: State, found: State, pod: PodUID, pools: Pools, lost: dict[ContainerRef, CPUSet]) -> State:
    mine = list(found.of_pod(pod))
    whole = found.pods.get(pod)
    if whole is not None:
        cpus = whole | found.cpus_of_pod(pod)
        occupied = pools.with_idle(found, cpus) & state.shared
        if cpus == whole and mine and _fit(cpus, occupied, state, pools):
            return _with(state, pod, found.assignments[pod], occupied)._replace(pods={**state.pods, pod: whole})
        lost.update(mine)
        return state
    kept: dict[str, CPUSet] = {}
    own = EMPTY
    for ref, cpus in mine:
        # Containers of one pod may share CPUs: later containers reuse those of a finished init container.
        occupied = own | pools.with_idle(found, cpus) & state.shared
        if cpus and _fit(cpus - own, occupied, state, pools):
            own = occupied
            kept[ref.name] = cpus
        else:
            lost[ref] = cpus
    return _with(state, pod, kept, own) if kept else state


def _fit(cpus: CPUSet, occupied: CPUSet, state: State, pools: Pools) -> bool:
    return cpus <= state.shared - pools.reserved and bool(pools.shared(state) - occupied)


def _with(state: State, pod: PodUID, containers: Mapping[str, CPUSet], occupied: CPUSet) -> State:
    assignments = {**state.assignments, pod: dict(containers)}
    return state._replace(shared=state.shared - occupied, assignments=assignments)
