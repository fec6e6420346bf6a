"""The moves of a repack, as text and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.moving.repack import Move, RepackPlan
    from pinfold.core.pods.pod import PodUID


def format_repack(repack: RepackPlan, names: Mapping[PodUID, str]) -> str:
    """Return the moves in order, a line each, and what they bring."""
    if not repack.moves:
        return "Repack: no move lowers the cost"
    lines = [f"  {number}. {_name(move, names)}: {move}" for number, move in enumerate(repack.moves, 1)]
    return "\n".join([f"Repack: cost {repack.before}", f"     -> {repack.after}", *lines])


def repack_data(repack: RepackPlan, names: Mapping[PodUID, str]) -> dict[str, object]:
    """Return the same, ready for JSON."""
    moves = [
        {"container": _name(move, names), "before": str(move.before), "cpus": str(move.after), "why": move.why}
        for move in repack.moves
    ]
    return {"before": repack.before._asdict(), "after": repack.after._asdict(), "moves": moves}


def _name(move: Move, names: Mapping[PodUID, str]) -> str:
    return f"{names.get(move.container.pod, move.container.pod)}/{move.container.name}"
