"""A State that does not fit any more, turned into one that does: whoever runs keeps their CPUs wherever it may.

The reference asks for a drained node and a deleted file instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.core.pods import ContainerRef
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.pods import PodUID
    from pinfold.core.policies.base import Policy


class Recovered(NamedTuple):
    """The State to go on with, and whose CPUs could not be kept."""

    state: State
    lost: Mapping[ContainerRef, CPUSet]


def recover(policy: Policy, found: Mapping[PodUID, Mapping[str, CPUSet]]) -> Recovered:
    """Return a sound State with as many of the *found* Assignments as the policy allows on this machine."""
    first = policy.start(State.new())
    if not isinstance(policy, StaticPolicy):
        lost = {ContainerRef(pod, name): cpus for pod, containers in found.items() for name, cpus in containers.items()}
        return Recovered(first, lost)
    shared = first.shared
    kept: dict[PodUID, dict[str, CPUSet]] = {}
    lost = {}
    for pod, containers in found.items():
        mine = EMPTY
        for name, cpus in containers.items():
            # Containers of one pod may share CPUs: those of a finished init container are used again.
            free = (shared & policy.allocatable) | mine
            if cpus and cpus <= free and shared - cpus:
                kept.setdefault(pod, {})[name] = cpus
                mine |= cpus
                shared -= cpus
            else:
                lost[ContainerRef(pod, name)] = cpus
    return Recovered(State(shared, kept), lost)
