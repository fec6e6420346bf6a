"""Replays cases of merge.jsonl.gz: the Topology Manager's options, merged hints and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def replay(case: Mapping[str, Any]) -> str | None:  # Any: JSON of the vectors, whose form their README tells
    """Return how our answer differs from the reference's; None if it does not."""
    expected = case["expect"]
    found = _answer(case)
    return None if found == expected else f"{case['id']}: expected {expected}, found {found}"


def _answer(case: Mapping[str, Any]) -> dict[str, object]:  # Any: as above
    nodes = case["tm"]["nodes"]
    ids = [node["id"] for node in nodes]
    distances = {node["id"]: dict(zip(ids, node.get("distances", ()), strict=False)) for node in nodes}
    try:
        manager = TopologyManager.create(case["tm"]["policy"], case["tm"]["options"], ids, distances)
    except ConfigError as error:
        return {"error": error.problems[0].said}
    admit, hint = manager.merge(
        [{name: _hints(hints) for name, hints in provider.items()} for provider in case["providers"]]
    )
    return {"admit": admit, "hint": {"numa": hint.nodes, "preferred": hint.preferred}}


def _hints(hints: list[dict[str, Any]] | None) -> HintList | None:  # Any: as above
    if hints is None:
        return None
    return HintList(
        Hint(None, hint["preferred"]) if hint["numa"] is None else Hint.of(*hint["numa"], preferred=hint["preferred"])
        for hint in hints
    )
