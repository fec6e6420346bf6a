"""A Plan as a picture: the machine with every CPU in the colour of its owner."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.render.machine.svg import RESERVED, format_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import PodUID
    from pinfold.planning.plan import Plan

# Limits that leave enough room for the machine above the legend.
_MOST_OWNERS: Final = 16
_MOST_LETTERS: Final = 30
_NUMBERED: Final = re.compile(r"-[0-9]+$")
OTHERS: Final = "(others)"


def format_plan_svg(plan: Plan, title: str = "") -> str:
    """Return the picture; CPUs without a colour are in the shared pool."""
    return format_svg(plan.topology, title, owners(plan))


def owners(plan: Plan) -> dict[int, str]:
    """Return the owner of each CPU after the plan.

    A few owners are named by container; more by pod, then by workload, then only the largest workloads.
    """
    found = dict.fromkeys(plan.reserved & plan.topology.online, RESERVED)
    held = _held(plan)
    labels = _labels(held, plan.names)
    for key, cpus in held.items():
        found |= dict.fromkeys(cpus, labels[key])
    return found


def _held(plan: Plan) -> dict[tuple[PodUID, str], CPUSet]:
    """Return all exclusive CPUs; pod-level CPUs come first, so that containers override them."""
    held = {(pod, ""): cpus for pod, cpus in plan.after.pods.items()}
    for pod, containers in plan.after.assignments.items():
        held |= {(pod, container): cpus for container, cpus in containers.items()}
    return held


def _labels(held: Mapping[tuple[PodUID, str], CPUSet], names: Mapping[PodUID, str]) -> dict[tuple[PodUID, str], str]:
    def pod(key: tuple[PodUID, str]) -> str:
        return names.get(key[0], key[0])

    ways: tuple[Callable[[tuple[PodUID, str]], str], ...] = (
        lambda key: f"{pod(key)}/{key[1]}" if key[1] else pod(key),
        pod,
        lambda key: _NUMBERED.sub("", pod(key)),
    )
    for way in ways:
        labels = {key: way(key) for key in held}
        if len(set(labels.values())) <= _MOST_OWNERS:
            break
    else:
        labels = _largest(labels, held)
    return _short(labels)


def _largest(
    labels: Mapping[tuple[PodUID, str], str], held: Mapping[tuple[PodUID, str], CPUSet]
) -> dict[tuple[PodUID, str], str]:
    """Return the labels of the largest owners, and one for all others."""
    sizes: dict[str, int] = {}
    for key, label in labels.items():
        sizes[label] = sizes.get(label, 0) + len(held[key])
    kept = set(sorted(sizes, key=lambda label: (-sizes[label], label))[: _MOST_OWNERS - 1])
    return {key: label if label in kept else OTHERS for key, label in labels.items()}


def _short(labels: Mapping[tuple[PodUID, str], str]) -> dict[tuple[PodUID, str], str]:
    """Return the labels with the middle of long ones cut out; they stay different."""
    short: dict[str, str] = {}
    for label in dict.fromkeys(labels.values()):
        cut = label
        if len(label) > _MOST_LETTERS:
            half = _MOST_LETTERS // 2 - 2
            cut = f"{label[:half]}…{label[-half:]}"
        number = sum(other == cut or other.startswith(f"{cut}~") for other in short.values())
        short[label] = f"{cut}~{number + 1}" if number else cut
    return {key: short[label] for key, label in labels.items()}
