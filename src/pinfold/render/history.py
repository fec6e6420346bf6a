"""Entries, past States and the owners of a CPU, as lines of text. The caller formats times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError
from pinfold.render.columns import BOLD, DIM, GREEN, RED, YELLOW, Cell, Column, format_columns, printable
from pinfold.render.machine.canvas import Canvas, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.render.machine.canvas import Look

    Data = Mapping[str, Any]  # Any: JSON of the daemon
    When = Callable[[float], str]

_STYLES: Final = {
    "assigned": GREEN,
    "resized": GREEN,
    "moved": GREEN,
    "started": GREEN,
    "refused": RED,
    "cannot-start": RED,
    "drift": YELLOW,
}
_KIND: Final = 12
_GAP: Final = 2
_LEAST: Final = 20
_NESTED: Final = ("steps", "defects", "alignment", "fixes", "document", "uid")
_IN_NAME: Final = ("number", "time", "what", "namespace", "pod", "container")


def format_entry(entry: Data, when: When, look: Look) -> str:
    """Return an entry, in one line if it fits; `explain` and JSON show steps and other structures.

    >>> from pinfold.render.machine.canvas import Look
    >>> row = {"number": 1, "time": 0.0, "what": "assigned", "namespace": "default", "pod": "web", "cpus": "2-3"}
    >>> format_entry(row, "{:.1f}".format, Look())
    '0.0  assigned      web  cpus=2-3'
    """
    what = printable(str(entry.get("what")))
    name = _short_name(entry)
    rest = [f"{key}={_shown(value)}" for key, value in entry.items() if key not in (*_IN_NAME, *_NESTED)]
    canvas = Canvas()
    stamp = when(entry["time"])
    canvas.write(0, 0, stamp, DIM)
    canvas.write(len(stamp) + _GAP, 0, what, _STYLES.get(what, BOLD))
    x = len(stamp) + _GAP + max(len(what), _KIND) + _GAP
    for y, line in enumerate(
        wrap(printable("  ".join(filter(None, (name, " ".join(rest))))), max(look.width - x, _LEAST))
    ):
        canvas.write(x, y, line)
    return "\n".join(canvas.lines(colour=look.colour))


def format_tenure(tenure: Data, when: When) -> str:
    """Return one owner of a CPU, from when to when and why, in one line.

    >>> format_tenure({"pool": "shared", "owner": None, "since": 1.0, "until": None, "why": ""}, "{:.1f}".format)
    'shared pool, since 1.0, until now'
    """
    hands = {"exclusive": tenure.get("owner"), "shared": "shared pool", "nobody": "no owner (offline or reserved)"}
    who = hands.get(str(tenure.get("pool"))) or "not known"
    since, until = tenure.get("since"), tenure.get("until")
    begun = "since before the journal begins" if since is None else f"since {when(since)}"
    ended = "until now" if until is None else f"until {when(until)}"
    why = f": {tenure['why']}" if tenure.get("why") else ""
    return printable(f"{who}, {begun}, {ended}{why}")


def format_moment(moment: Data, when: When, look: Look) -> str:
    """Return the State at a time: which container had which CPUs."""
    at = when(moment["time"])
    if not moment.get("known"):
        return f"{at}: not known; the journal begins later"
    owners = dict(moment["exclusive"])
    rows = [(Cell(str(owner)), Cell(str(cpus), GREEN), Cell(_count(cpus))) for owner, cpus in owners.items()]
    rows.append((Cell("shared pool", DIM), Cell(str(moment["shared"])), Cell(_count(moment["shared"]))))
    since = "" if moment.get("since") is None else f", as it was since {when(moment['since'])}"
    columns = (Column("OWNER", 20, cut=True), Column("CPUS", 12), Column("COUNT", right=True))
    table = "\n".join(format_columns(columns, rows, look).lines(colour=look.colour))
    return f"{at}{since}\n\n{table}"


def _short_name(entry: Data) -> str:
    parts = [entry.get(name) for name in ("namespace", "pod", "container")]
    if parts[0] == "default":
        parts[0] = None
    return "/".join(str(part) for part in parts if part)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ";".join(f"{name}:{text}" for name, text in value.items()) or "none"
    text = str(value)
    return f'"{text}"' if " " in text or not text else text


def _count(cpus: object) -> str:
    try:
        return str(len(CPUSet.parse(str(cpus))))
    except ParseError:
        return "?"
