"""The shield on the control socket: its state, what would move, on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.errors import ParseError
from pinfold.serve.http.messages import HTTPError, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.shield import Shift
    from pinfold.manager.shielding import ShieldSwitch


async def answer_shield(switch: ShieldSwitch | None, body: Mapping[str, object] | None = None) -> Response:
    """Return the state of the shield; with a *body* turn it on or off, or only list what would move."""
    if switch is None:
        raise HTTPError(400, "NotHere", "the shield moves the rest of a host, and this daemon has none: it simulates")
    moves: tuple[Shift, ...] = ()
    if body is not None:
        on, dry_run, given = _flag(body, "on"), _flag(body, "dry_run"), _cpus(body)
        if given is not None and not dry_run:
            raise HTTPError(400, "BadRequest", "cpus: only with dry_run; the shield keeps the CPUs of containers")
        kept = (switch.room.kept if given is None else given) if on else EMPTY
        moves = (await switch.plan(kept)).shifts
        if not dry_run:
            await switch.turn(on=on)
    shown = [{"place": str(move.place), "cpus": str(move.now), "then": str(move.then)} for move in moves]
    return Response(200, {"on": switch.on, "cpus": str(switch.kept), "moves": shown, "refused": switch.refused()})


def _flag(body: Mapping[str, object], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise HTTPError(400, "BadRequest", f"{name}: expected true or false")
    return value


def _cpus(body: Mapping[str, object]) -> CPUSet | None:
    value = body.get("cpus")
    if value is None:
        return None
    try:
        return CPUSet.parse(value if isinstance(value, str) else "x")
    except ParseError as error:
        raise HTTPError(400, "BadRequest", f"cpus: {error}") from error
