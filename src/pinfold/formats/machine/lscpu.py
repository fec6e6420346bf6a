"""What `lscpu -p=CPU,CORE,SOCKET,NODE,CACHE` prints ↔ Topology.

Reads both forms of caches: one column each, after an empty one (older lscpu), or all in a column such as 0:0:0:0
(newer). lscpu does not print isolated CPUs, distances, or NUMA nodes without CPUs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.topology import Facts, Topology
from pinfold.errors import ParseError
from pinfold.formats.machine.topologyjson import MOST_CPUS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    _Key = TypeVar("_Key", int, tuple[int | None, int])

_MAX_TEXT: Final = 1 << 20
_MAX_CELLS: Final = 64
_MAX_COMMENTS: Final = 100
_MAX_ID: Final = 2**31 - 1
_COLUMNS: Final = ("cpu", "core", "socket", "node")
# Without a header, the number of cells identifies the default output of lscpu.
_CACHE_COLUMNS: Final = (*_COLUMNS, "", "l1d", "l1i", "l2", "l3")
_CACHE_LIST: Final = (*_COLUMNS, "l1d:l1i:l2:l3")
# Levels 1 and 2 belong to cores; an instruction cache does not show where data is near.
_CACHE: Final = re.compile(r"l[1-9]")
_UNCORE: Final = re.compile(r"l([3-9])d?")
_UNKNOWN: Final = ("", "-")


class _Row(NamedTuple):
    cpu: int
    core: int | None
    socket: int | None
    node: int | None
    uncore: int | None
    online: bool | None


def parse_lscpu(text: str) -> Topology:
    r"""Return the machine that lscpu describes.

    Offline CPUs have N in the Online column, or, without that column, no core where others have one.

    >>> machine = parse_lscpu("# CPU,Core,Socket,Node,L1d:L1i:L2:L3\n0,0,0,0,0:0:0:8\n1,0,0,0,0:0:0:8\n")
    >>> machine.cpus[1]
    CPUInfo(cpu=1, core=0, socket=0, numa=0, uncore=8)
    >>> parse_lscpu("0,0,0,0\n0,1,0,0\n")
    Traceback (most recent call last):
    pinfold.errors.ParseError: line 2: CPU 0 is listed twice at column 1 of "0,1,0,0"
    """
    if len(text) > _MAX_TEXT:
        raise ParseError(f"lscpu output of {len(text):,} characters; {_MAX_TEXT:,} are allowed")
    rows = _rows(text)
    if not rows:
        raise ParseError("no CPUs found; expected the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE")
    offline = _offline(rows)
    online = [row for row in rows if row.cpu not in offline]
    if not online:
        raise ParseError("every CPU is offline")
    return Topology.from_groups(
        Facts(
            online=sum(1 << row.cpu for row in online),
            # -y prints core numbers that start again in every socket, so the socket is part of a core's name.
            cores=list(_masks(((row.socket, row.core), row.cpu) for row in online if row.core is not None).values()),
            sockets=_masks((row.socket, row.cpu) for row in online if row.socket is not None),
            numa_nodes=_masks((row.node, row.cpu) for row in online if row.node is not None),
            uncore_caches=_masks((row.uncore, row.cpu) for row in online if row.uncore is not None),
            offline=sum(1 << cpu for cpu in offline),
        )
    )


def format_lscpu(topology: Topology) -> str:
    """Return the machine as lscpu would print it, with the uncore cache as L3; sockets keep their real ids.

    >>> from pinfold.core.machine.presets import preset
    >>> print(format_lscpu(preset("cores:2,threads:2")), end="")
    # CPU,Core,Socket,Node,,L3
    0,0,0,0,,0
    1,1,0,0,,0
    2,0,0,0,,0
    3,1,0,0,,0
    """
    header, tail = "# CPU,Core,Socket,Node", ""
    caches = any(row.uncore is not None for row in topology.cpus)
    if caches:
        header += ",,L3"
    with_core = sum(row.core is not None for row in topology.cpus)
    if 0 < with_core < len(topology.cpus):  # a reader would treat CPUs without a core as offline
        header, tail = f"{header},Online", ",Y"
    numbers = {core: i for i, core in enumerate(sorted({row.core for row in topology.cpus if row.core is not None}))}
    lines = [header]
    for row in topology.cpus:
        core = None if row.core is None else numbers[row.core]
        cells = [row.cpu, core, row.socket, row.numa, *((None, row.uncore) if caches else ())]
        lines.append(",".join("" if cell is None else str(cell) for cell in cells) + tail)
    return "\n".join(lines) + "\n"


class _Header(NamedTuple):
    """The number of columns and of caches, the end of the caches, and the columns that are read."""

    columns: int
    caches: int
    end: int
    places: Sequence[_Place]
    """Of core, socket, node and uncore cache."""
    cpu: _Place
    online: _Place

    def cells(self, line: str, where: str) -> list[str]:
        """Return the cells of a row, one for each column."""
        cells = line.split(",")
        missing = self.columns - len(cells)
        if 0 < missing < self.caches:
            # lscpu leaves out caches that a CPU does not have; for an offline CPU, all but one empty cell.
            cells[self.end - missing : self.end - missing] = [""] * missing
        elif missing:
            raise ParseError(f"expected {self.columns} cells, found {len(cells)}", text=line, where=where)
        return cells


class _Place(NamedTuple):
    """Where a value is: the column, and the part of the cell if the column has several names, as in L1d:L1i:L2:L3."""

    column: int = -1
    part: int = -1

    def cell(self, cells: Sequence[str]) -> str:
        """Return the text of the value; none if the header does not name it."""
        if self.column < 0:
            return ""
        cell = cells[self.column]
        if self.part >= 0:
            cell = (cell.split(":") + [""] * self.part)[self.part]
        return cell.strip()

    def start(self, cells: Sequence[str]) -> int:
        """Return where the value starts in a line of these cells."""
        before = cells[: self.column]
        inside = cells[self.column].split(":")[: self.part] if self.part > 0 else []
        return sum(len(cell) + 1 for cell in (*before, *inside))


def _header(names: Sequence[str]) -> _Header:
    caches = [i for i, name in enumerate(names) if _CACHE.match(name)]
    places = {}
    for column, several in enumerate(names):
        parts = several.split(":")
        places.update({name: _Place(column, part if len(parts) > 1 else -1) for part, name in enumerate(parts)})
    uncore = min((name for name in places if _UNCORE.fullmatch(name)), default="-")
    cpu, online, *rest = (places.get(name, _Place()) for name in ("cpu", "online", "core", "socket", "node", uncore))
    return _Header(len(names), len(caches), max(caches, default=-1) + 1, rest, cpu, online)


def _rows(text: str) -> list[_Row]:
    header: _Header | None = None
    rows: dict[int, _Row] = {}
    comments = 0
    lines = text.splitlines()
    if len(lines) > MOST_CPUS + _MAX_COMMENTS:
        raise ParseError(f"{len(lines):,} lines; {MOST_CPUS:,} CPUs and {_MAX_COMMENTS} comments are allowed")
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        where = f"line {number}"
        if line.count(",") >= _MAX_CELLS:
            raise ParseError(f"more than {_MAX_CELLS} cells", text=line, where=where)
        if line.startswith("#"):
            comments += 1
            if comments > _MAX_COMMENTS:
                raise ParseError(f"more than {_MAX_COMMENTS} comments", where=where)
            header = _parse_header(line) or header
        elif line:
            header = header or _guess_header(line)
            row = _parse_row(header, line, where)
            if row.cpu in rows:
                raise ParseError(f"CPU {row.cpu} is listed twice", text=line, where=where)
            rows[row.cpu] = row
    return list(rows.values())


def _parse_header(line: str) -> _Header | None:
    """Return the columns if the comment names them; the first comments are prose, in the user's language."""
    names = [name.strip().lower() for name in line.lstrip("#").split(",")]
    return _header(names) if "cpu" in names else None


def _guess_header(line: str) -> _Header:
    cells = line.split(",")
    if len(cells) == len(_CACHE_COLUMNS) and not cells[len(_COLUMNS)]:
        return _header(_CACHE_COLUMNS)
    if len(cells) == len(_CACHE_LIST) and cells[-1].count(":") == _CACHE_LIST[-1].count(":"):
        return _header(_CACHE_LIST)
    return _header([*_COLUMNS, *[""] * (len(cells) - len(_COLUMNS))])


def _parse_row(header: _Header, line: str, where: str) -> _Row:
    cells = header.cells(line, where)

    def number(place: _Place, highest: int = _MAX_ID) -> int | None:
        cell = place.cell(cells)
        if cell in _UNKNOWN:
            return None
        if not (cell.isascii() and cell.isdigit()) or len(cell) > len(str(highest)) or int(cell) > highest:
            filled = header.columns - line.count(",") - 1 if place.column >= header.end else 0
            at = place.start(cells) - filled
            raise ParseError(f"expected a number from 0 to {highest}", text=line, at=at, where=where)
        return int(cell)

    cpu = number(header.cpu, MOST_CPUS - 1)
    if cpu is None:
        raise ParseError("a row without a CPU", text=line, where=where)
    said = header.online.cell(cells).lower()
    online = None if said in _UNKNOWN else said not in {"n", "no"}
    core, socket, node, uncore = map(number, header.places)
    return _Row(cpu, core, socket, node, uncore, online)


def _offline(rows: Sequence[_Row]) -> set[int]:
    some_have_cores = any(row.core is not None for row in rows)

    def is_offline(row: _Row) -> bool:
        if row.online is not None:
            return not row.online
        # lscpu can print the socket of an offline CPU, but nothing inside it.
        return some_have_cores and row.core is row.node is row.uncore is None

    return {row.cpu for row in rows if is_offline(row)}


def _masks(pairs: Iterator[tuple[_Key, int]]) -> dict[_Key, int]:
    masks: dict[_Key, int] = {}
    for key, cpu in pairs:
        masks[key] = masks.get(key, 0) | 1 << cpu
    return masks
