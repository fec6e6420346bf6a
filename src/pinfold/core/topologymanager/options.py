"""The Topology Manager's policies and options as users write them, checked with the kubelet's words.

Knows nothing of hints.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.gosyntax import go_bool, go_int, go_quote
from pinfold.errors import Problem, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX_NODES: Final = 8


class TopologyPolicy(StrEnum):
    """What the Topology Manager demands of the merged hint."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyOption(StrEnum):
    """The Topology Manager's options."""

    PREFER_CLOSEST = "prefer-closest-numa-nodes"
    MAX_NODES = "max-allowable-numa-nodes"


class TopologyOptions(NamedTuple):
    """The options' values."""

    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


def read_options(options: Mapping[str, str]) -> tuple[TopologyOptions, list[Problem]]:
    """Return the values of *options*, and what is wrong with them; a wrong one keeps its default.

    >>> read_options({"max-allowable-numa-nodes": "16"})
    (TopologyOptions(prefer_closest=False, max_nodes=16), [])
    >>> print(*read_options({"prefer-closest-numa": "true"})[1])
    unknown Topology Manager Policy option: "prefer-closest-numa"; did you mean prefer-closest-numa-nodes?
    """
    values = TopologyOptions()
    problems: list[Problem] = []
    for name, text in options.items():
        if name == TopologyOption.PREFER_CLOSEST:
            values = values._replace(prefer_closest=_read_closest(text, problems))
        elif name == TopologyOption.MAX_NODES:
            values = values._replace(max_nodes=_read_max_nodes(text, problems))
        else:
            said = f"unknown Topology Manager Policy option: {go_quote(name)}"
            meant = did_you_mean(name, TopologyOption).removeprefix("; ") or f"known: {', '.join(TopologyOption)}"
            problems.append(Problem(said, meant))
    return values, problems


def _read_closest(text: str, problems: list[Problem]) -> bool:
    try:
        return go_bool(text)
    except ValueError as error:
        said = f'bad value for option "{TopologyOption.PREFER_CLOSEST}": {error}'
        problems.append(Problem(said, "allowed: true, false"))
        return False


def _read_max_nodes(text: str, problems: list[Problem]) -> int:
    name = TopologyOption.MAX_NODES
    try:
        count = go_int(text)
    except ValueError as error:
        said = f'unable to convert policy option to integer "{name}": {error}'
        problems.append(Problem(said, f"allowed: {DEFAULT_MAX_NODES} and above"))
        return DEFAULT_MAX_NODES
    if count < DEFAULT_MAX_NODES:
        problems.append(Problem(f'the minimum value of "{name}" should not be less than {DEFAULT_MAX_NODES}'))
    return max(count, DEFAULT_MAX_NODES)
