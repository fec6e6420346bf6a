"""Baselines: the CPUs of containers from before their first resize, kept in the State and in the kubelet's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.moving.running import NotResizable
from pinfold.core.state import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.state import State


def held_by(state: State, container: ContainerRef) -> CPUSet:
    """Return the exclusive CPUs of a container; raise if it has none."""
    held = state.cpus(container.pod, container.name)
    if held is None:
        raise NotResizable("it has no exclusive CPUs")
    return held


def baseline(state: State, container: ContainerRef) -> CPUSet:
    """Return the CPUs of a container before its first resize."""
    return state.baselines.get(container.pod, {}).get(container.name) or held_by(state, container)


def resized(state: State, container: ContainerRef, cpus: CPUSet, shared: CPUSet) -> State:
    """Return the State in which the container has *cpus*, no container has *shared*, and its baseline is recorded."""
    held, base = held_by(state, container), baseline(state, container)
    kept = base if len(cpus) >= len(base) else base & cpus or cpus
    mine = {**state.assignments[container.pod], container.name: cpus}
    return state.taken(cpus)._replace(
        shared=shared,
        assignments={**state.assignments, container.pod: mine},
        baselines=state.baselines if cpus == held else _with_baseline(state.baselines, container, kept),
    )


def without_baseline(state: State, container: ContainerRef) -> State:
    """Return the State without the baseline of a container."""
    if container.name not in state.baselines.get(container.pod, {}):
        return state
    mine = {name: cpus for name, cpus in state.baselines[container.pod].items() if name != container.name}
    rest = {pod: containers for pod, containers in state.baselines.items() if pod != container.pod}
    return state._replace(baselines={**rest, container.pod: mine} if mine else rest or NOTHING)


def _with_baseline(
    baselines: Mapping[PodUID, Mapping[str, CPUSet]], container: ContainerRef, cpus: CPUSet
) -> Mapping[PodUID, Mapping[str, CPUSet]]:
    return {**baselines, container.pod: {**baselines.get(container.pod, {}), container.name: cpus}}
