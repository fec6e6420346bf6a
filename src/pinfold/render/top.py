"""What `pinfold top` shows: a node as lines of a screen, with a sign for each owner on the map and in the list.

Knows nothing of terminals, daemons and keys as bytes: callers pass what they found, the size, and what was pressed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.layout import layout
from pinfold.render.columns import DIM, Cell, Column, format_columns, printable
from pinfold.render.machine.canvas import Canvas, Look
from pinfold.render.machine.map import draw_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pinfold.core.machine.topology import Topology

    Row = Mapping[str, Any]  # Any: JSON of the daemon

SIGNS: Final = ascii_uppercase + ascii_lowercase + "@%&*=?^~$"  # no digits: CPUs have these
_MANY: Final = "+"
"""The sign of owners for which no other is left."""
_SHARED, _RESERVED, _OFFLINE, _IDLE = ".", "#", "-", "_"
_OWNER_STYLES: Final = (
    *("42;30", "44;97", "45;97", "46;30", "43;30", "41;97"),
    *("102;30", "104;30", "105;30", "106;30", "103;30", "101;30"),
)
_STYLES: Final = {_RESERVED: "2", _OFFLINE: "2", _IDLE: "2"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_LONGEST: Final = 5
"""The most digits of a CPU's number."""
_POOLS: Final = ("exclusive", "shared", "reserved", "assignable")
"""Those that are always shown; a narrow window cuts the last ones."""
_NUMBERS: Final = re.compile(r"([0-9]+)")
_LEAST_ROWS: Final = 4
"""The map leaves room for the head of the list and these rows."""


class Sort(StrEnum):
    """The order of the list; the next one comes with each press."""

    NAME = "name"
    CPUS = "CPUs"
    LOAD = "load"
    STATE = "state"

    @property
    def next(self) -> Sort:
        """The order after this one."""
        orders = list(Sort)
        return orders[(orders.index(self) + 1) % len(orders)]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user has chosen by pressing keys."""

    sort: Sort = Sort.NAME
    filter: str = ""
    typing: bool = False
    """Whether keys go into the filter."""
    first: int = 0
    """How many rows of the list are scrolled away."""

    def press(self, key: str, page: int = 10) -> Choices | None:
        """Return the choices after a key; None if it ends the program.

        >>> Choices().press("/").press("w").press("enter")
        Choices(sort=<Sort.NAME: 'name'>, filter='w', typing=False, first=0)
        """
        if self.typing:
            return self._type(key)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page}
        places = {"home": 0, "g": 0, "end": 1 << 30, "G": 1 << 30}
        if key in {"q", "Q"}:
            return None
        if key in steps or key in places:
            return replace(self, first=places.get(key, max(self.first + steps.get(key, 0), 0)))
        changes: dict[str, Choices] = {
            "s": replace(self, sort=self.sort.next, first=0),
            "/": replace(self, typing=True),
            "escape": replace(self, filter="", first=0),
        }
        return changes.get(key, self)

    def _type(self, key: str) -> Choices:
        match key:
            case "enter":
                return replace(self, typing=False)
            case "escape":
                return replace(self, typing=False, filter="", first=0)
            case "backspace":
                return replace(self, filter=self.filter[:-1], first=0)
        return replace(self, filter=self.filter + key, first=0) if len(key) == 1 and key.isprintable() else self


@dataclass(frozen=True, slots=True)
class Glance:
    """The node and its load at one moment."""

    topology: Topology
    node: Mapping[str, Any]
    rows: Sequence[Row]
    loads: Mapping[int, float] = field(default_factory=dict)
    """How busy each CPU is, from 0 to 1; nothing if that is not known."""
    signs: Mapping[str, str] = field(default_factory=dict)
    """The sign of each owner."""

    def load(self, row: Row) -> float | None:
        """Return how busy the CPUs of an owner are on average."""
        known = [self.loads[cpu] for cpu in CPUSet.parse(row["cpus"]) if cpu in self.loads] if row["exclusive"] else []
        return sum(known) / len(known) if known else None


def name_of(row: Row) -> str:
    """Return the name of a container."""
    return f"{row['namespace']}/{row['pod']}/{row['container']}"


def give_signs(before: Mapping[str, str], rows: Iterable[Row]) -> dict[str, str]:
    """Return the sign of each owner; an owner keeps the one it had.

    >>> row = {"namespace": "default", "container": "app", "exclusive": True}
    >>> signs = give_signs({}, [{**row, "pod": "db"}, {**row, "pod": "web"}])
    >>> give_signs(signs, [{**row, "pod": "web"}, {**row, "pod": "api"}])
    {'default/web/app': 'B', 'default/api/app': 'A'}
    """
    owners = [name_of(row) for row in rows if row["exclusive"]]
    signs = {name: before[name] for name in owners if name in before}
    free = iter([sign for sign in SIGNS if sign not in signs.values()])
    for name in owners:
        if name not in signs:
            signs[name] = next(free, _MANY)
    return signs


def format_screen(glance: Glance, choices: Choices, look: Look, height: int) -> tuple[list[str], Choices]:
    """Return the lines of a screen of this height, and the choices, not scrolled beyond the end of the list."""
    head = _head(glance, look)
    machine = draw_machine(glance, choices, look, height - len(head) - 2 - _LEAST_ROWS)
    above = [*head, *machine, _legend(glance, look)]
    rows = _chosen(glance, choices)
    room = max(height - len(above) - 2, 1)
    choices = replace(choices, first=max(min(choices.first, len(rows) - room), 0))
    listed = _list(glance, rows[choices.first : choices.first + room], look)
    if len(rows) > room:
        said = f"  {choices.first + 1}-{choices.first + room} of {len(rows)}"
        shown = rows[choices.first : choices.first + room]
        listed[0] = _beside(listed[0], _list(glance, shown, look._replace(colour=False))[0], said, look)
    return [*above, *listed, *[""] * (room + 1 - len(listed)), _keys(choices, look)], choices


def _beside(line: str, plain: str, said: str, look: Look) -> str:
    """Return a line with *said* at the right edge; *plain* is the line without colours, which take no place."""
    left = look.width - len(said)
    if len(plain) <= left:
        return f"{line}{' ' * (left - len(plain))}{said}"
    return _fit(plain, look._replace(width=left)) + said


def format_once(glance: Glance, look: Look) -> str:
    """Return all of it, for a pipe or a look at one time."""
    parts = [
        _head(glance, look),
        _list(glance, _chosen(glance, Choices()), look),
        draw_machine(glance, Choices(), look, None),
    ]
    return "\n\n".join("\n".join(lines) for lines in [*parts, [_legend(glance, look)]])


def draw_machine(glance: Glance, choices: Choices, look: Look, height: int | None) -> list[str]:
    """Return the map in at most *height* lines: with the numbers of CPUs if there is room, else a sign for each CPU."""
    signs = _cpu_signs(glance)
    wanted = {name_of(row) for row in glance.rows if _matches(row, choices.filter)}
    dim = {sign for name, sign in glance.signs.items() if name not in wanted}
    styles = {cpu: DIM if sign in dim else _style(sign) for cpu, sign in signs.items()}
    marks = {cpu: sign + _bar(glance.loads.get(cpu), look) for cpu, sign in signs.items()}
    canvas = draw_groups(glance.topology, look._replace(styles=styles, marks=marks), height)
    if canvas is None:
        canvas = _strips(glance, signs, styles, look, height or 0)
    return canvas.lines(colour=look.colour)


def _cpu_signs(glance: Glance) -> dict[int, str]:
    pools = {name: CPUSet.parse(cpus or "") for name, cpus in glance.node["pools"].items()}
    shared, reserved = pools.get("shared", CPUSet()), pools.get("reserved", CPUSet())
    signs = dict.fromkeys(glance.topology.online, _IDLE)
    signs |= dict.fromkeys(shared & glance.topology.online, _SHARED)
    signs |= dict.fromkeys(reserved & glance.topology.online, _RESERVED)
    for row in glance.rows:
        if row["exclusive"]:
            signs |= dict.fromkeys(CPUSet.parse(row["cpus"]), glance.signs.get(name_of(row), _MANY))
    return {**signs, **dict.fromkeys(glance.topology.offline, _OFFLINE)}


def _style(sign: str) -> str:
    return _OWNER_STYLES[SIGNS.index(sign) % len(_OWNER_STYLES)] if sign in SIGNS else _STYLES.get(sign, "")


def _bar(load: float | None, look: Look) -> str:
    """Return one character for how busy a CPU is; a digit, for tenths, where there are no bars."""
    if load is None:
        return ""
    steps = digits if look.ascii_only else _BARS
    return steps[min(int(load * len(steps)), len(steps) - 1)]


def _strips(glance: Glance, signs: Mapping[int, str], styles: Mapping[int, str], look: Look, height: int) -> Canvas:
    """Return a sign for each CPU: a strip for each innermost group, or lines of CPUs in order if these are too many."""
    leaves = [leaf for box in layout(glance.topology).boxes for leaf in box.leaves()]
    label = max(len(look.signs.plain(leaf.label)) for leaf in leaves)
    longest = max(sum(map(len, leaf.cores)) for leaf in leaves)
    across = max((look.width + 2) // (label + longest + 3), 1)
    canvas = Canvas()
    if label + longest + 1 <= look.width and -(-len(leaves) // across) <= height:
        for number, leaf in enumerate(leaves):
            x, y = number % across * (label + longest + 3), number // across
            canvas.write(x, y, look.signs.plain(leaf.label), DIM)
            for i, cpu in enumerate(cpu for core in leaf.cores for cpu in core):
                canvas.write(x + label + 1 + i, y, signs[cpu], styles[cpu])
        return canvas
    cpus = list(glance.topology.online)
    per_line = max(look.width - 6, 1) // 8 * 8 or 8
    for y, start in enumerate(range(0, len(cpus), per_line)):
        if y == height - 1 and start + per_line < len(cpus):
            canvas.write(0, y, f"{len(cpus) - start} more CPUs: make the window larger", DIM)
            break
        canvas.write(0, y, f"{cpus[start]:>5}", DIM)
        for i, cpu in enumerate(cpus[start : start + per_line]):
            canvas.write(6 + i, y, signs[cpu], styles[cpu])
    return canvas


def _head(glance: Glance, look: Look) -> list[str]:
    node, topology = glance.node, glance.topology
    kind = node.get("groups", "") if node.get("runtime") != "simulated" else "simulated"
    about = [node.get("host", ""), f"policy {node['policy']}", kind]
    busy = f"{sum(glance.loads.values()) / len(glance.loads):.0%} busy" if glance.loads else ""
    pools = [f"{name} {node['pools'].get(name) or '-'}" for name in _POOLS]
    apart = {"idle": node["pools"].get("idle"), "offline": topology.offline, "isolated": topology.isolated}
    pools += [f"{name} {cpus}" for name, cpus in apart.items() if cpus]
    first = look.signs.dot.join(filter(None, [*about, _count(glance), busy]))
    return [_fit(printable(line), look) for line in (first, "  ".join(pools))]


def _count(glance: Glance) -> str:
    number = len(glance.rows)
    return f"{number} container" if number == 1 else f"{number} containers"


def _legend(glance: Glance, look: Look) -> str:
    signs = set(_cpu_signs(glance).values())
    names = {_SHARED: "shared", _RESERVED: "reserved", _OFFLINE: "offline", _IDLE: "in no pool"}
    parts = ["A-Z owner"] if glance.signs else []
    parts += [f"{sign} {name}" for sign, name in names.items() if sign in signs]
    if glance.loads:
        parts.append("0-9 load in tenths" if look.ascii_only else f"{_BARS[0]}{_BARS[3]}{_BARS[7]} load")
    return _fit("  ".join(parts), look)


def _chosen(glance: Glance, choices: Choices) -> list[Row]:
    return _sorted(glance, [row for row in glance.rows if _matches(row, choices.filter)], choices.sort)


def _list(glance: Glance, rows: Sequence[Row], look: Look) -> list[str]:
    if rows:
        return _table(glance, rows, look)
    return ["no container matches the filter" if glance.rows else "no containers"]


def _table(glance: Glance, rows: Sequence[Row], look: Look) -> list[str]:
    several = len({row["namespace"] for row in glance.rows}) > 1
    columns = [Column(""), *([Column("NAMESPACE", 6, cut=True)] if several else []), Column("POD", 8, cut=True)]
    columns += [Column("CONTAINER", 6, cut=True), Column("CPUS", 8, cut=True)]
    columns += [*([Column("LOAD", right=True)] if glance.loads else []), Column("STATE", 5, cut=True)]
    cells = []
    for row in rows:
        sign, load = glance.signs.get(name_of(row), "") if row["exclusive"] else _SHARED, glance.load(row)
        names = [row["namespace"]] if several else []
        texts = [*names, row["pod"], row["container"], row["cpus"] if row["exclusive"] else "shared"]
        texts += ["-" if load is None else f"{load:.0%}"] if glance.loads else []
        cells.append([Cell(sign, _style(sign)), *(Cell(str(text)) for text in (*texts, row["state"]))])
    return format_columns(columns, cells, look).lines(colour=look.colour)


def _in_order(row: Row) -> list[tuple[int, str]]:
    """Return what sorts containers by name, app-2 before app-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(name_of(row))]


def _sorted(glance: Glance, rows: list[Row], sort: Sort) -> list[Row]:
    rows = sorted(rows, key=_in_order)
    match sort:
        case Sort.NAME:
            return rows
        case Sort.CPUS:
            return sorted(rows, key=lambda row: -len(CPUSet.parse(row["cpus"])) if row["exclusive"] else 0)
        case Sort.LOAD:
            return sorted(rows, key=lambda row: -(glance.load(row) or 0.0))
        case Sort.STATE:
            return sorted(rows, key=lambda row: str(row["state"]))


def _matches(row: Row, text: str) -> bool:
    """Whether each word of the filter is part of a container's name, class or state, or one of its CPUs."""
    about = f"{name_of(row)} {row['qos']} {row['state']} {'exclusive' if row['exclusive'] else 'shared'}".lower()
    cpus = CPUSet.parse(row["cpus"]) if row["exclusive"] else CPUSet()
    return all(
        word in about or (word.isdecimal() and len(word) <= _LONGEST and int(word) in cpus)
        for word in text.lower().split()
    )


def _keys(choices: Choices, look: Look) -> str:
    arrows = "up/down" if look.ascii_only else "↑↓"
    if choices.typing:
        text = f"filter: {choices.filter}_   Enter keep   Esc clear"
    else:
        kept = f": {choices.filter} (Esc clear)" if choices.filter else ""
        text = f"q quit   {arrows} scroll   s sort: {choices.sort}   / filter{kept}"
    line = _fit(printable(text), look)
    return f"\x1b[7m{line.ljust(look.width)}\x1b[0m" if look.colour else line


def _fit(line: str, look: Look) -> str:
    return line if len(line) <= look.width else line[: look.width - 1] + look.signs.cut
