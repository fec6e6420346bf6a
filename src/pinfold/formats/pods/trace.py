"""A trace of pods that arrived and left, as CSV or JSON lines, to events; see docs/reference/pod-traces.md.

JSON lines have whole Kubernetes pods. CSV has a row for each container, with only the fields for CPUs.
"""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError, excerpt
from pinfold.formats.fields import Field, Problems
from pinfold.formats.number import Number
from pinfold.formats.pods.madeuid import made_uid
from pinfold.formats.pods.manifest import parse_pods
from pinfold.formats.pods.spec import read_label, read_subdomain
from pinfold.planning.replay import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_EVENTS: Final = 1_000_000
COLUMNS: Final = (
    "time",
    "event",
    "namespace",
    "pod",
    "container",
    "kind",
    "cpu",
    "cpu_limit",
    "memory",
    "memory_limit",
)
"""The columns of CSV; time, event and pod are required, the others optional."""
_NEEDED: Final = ("time", "event", "pod")
_KINDS: Final = ("", "app", "init", "sidecar")
_EVENTS: Final = ("add", "remove")
_SECONDS: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?")
_UID_SPACE: Final = "2b1e2f1c-0c55-5f0e-8f3b-706f64747263"


def parse_trace(text: str, *, source: str = "") -> tuple[Event, ...]:
    r"""Return the events of *text*, in order; *source* names the file in errors.

    >>> events = parse_trace("time,event,pod,container,cpu,memory\n0,add,web,app,2,1Gi\n60,remove,web,,,\n")
    >>> [event.comes for event in events], events[0].pod.qos.value
    ([True, False], 'Guaranteed')
    >>> parse_trace("time,event,pod\n0,begin,web\n", source="week.csv")
    Traceback (most recent call last):
    pinfold.errors.ParseError: week.csv: line 2: event: "begin" is not one of add, remove
    """
    try:
        text = text.removeprefix("\ufeff")
        return tuple(_in_order(_json_events(text) if text.lstrip().startswith("{") else _csv_events(text)))
    except ParseError as error:
        raise (error.within(source) if source else error) from None


class _Known:
    """The running pods during the trace; a name can return later, as another pod."""

    def __init__(self) -> None:
        self._there: dict[tuple[str, str], PodUID] = {}
        self._came = 0

    def add(self, pod: Pod, where: str) -> Pod:
        """Return the pod with a unique UID."""
        key = (pod.namespace, pod.name)
        if key in self._there:
            raise ParseError(f"pod {excerpt('/'.join(key))} is added, but it already exists", where=where)
        self._came += 1
        uid = PodUID(made_uid(_UID_SPACE, f"{self._came}/{pod.namespace}/{pod.name}"))
        self._there[key] = uid
        return Pod(
            uid, pod.name, pod.namespace, pod.init, pod.containers, pod.resources, pod.overhead, pod.restart_policy
        )

    def remove(self, namespace: str, name: str, where: str) -> PodUID:
        """Return the UID of the pod that leaves."""
        uid = self._there.pop((namespace, name), None)
        if uid is None:
            raise ParseError(f"pod {excerpt(f'{namespace}/{name}')} is removed, but it does not exist", where=where)
        return uid


class _Placed(NamedTuple):
    """An event and its first line."""

    line: int
    event: Event


def _in_order(events: Iterator[_Placed]) -> Iterator[Event]:
    last = float("-inf")
    for count, (line, event) in enumerate(events, start=1):
        if count > MAX_EVENTS:
            raise ParseError(f"more than {MAX_EVENTS:,} events", where=f"line {line}")
        if event.time < last:
            raise ParseError("the time is before that of the event above; sort the trace", where=f"line {line}: time")
        last = event.time
        yield event


def _json_events(text: str) -> Iterator[_Placed]:
    known = _Known()
    # Not splitlines: a JSON string may contain U+2028 and other line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _Placed(number, _json_event(line, f"line {number}", known))


def _json_event(line: str, where: str, known: _Known) -> Event:
    try:
        value = json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}", where=where) from None
    problems = Problems()
    field = Field(value, problems, where)
    if not isinstance(value, dict):
        field.expected('an object such as {"time": 0, "event": "add", "pod": {...}}')
    time = value.get("time") if isinstance(value, dict) else None
    text = time.text if isinstance(time, Number) else field.text("time")
    event, pod = field.text("event"), field.child("pod")
    problems.check()
    seconds = _time(text, where)
    _check_event(event, where)
    if event == "remove":
        return Event(seconds, _json_removed(pod, where, known))
    pods = parse_pods(_again(line, where), source=f"{where}: pod").pods if pod.value else ()
    if len(pods) != 1:
        raise ParseError("expected one Kubernetes object of kind Pod", where=f"{where}: pod")
    return Event(seconds, known.add(pods[0], where))


def _again(line: str, where: str) -> str:
    """Return the pod in a line as text, for `parse_pods`."""
    try:
        return json.dumps(json.loads(line)["pod"])
    except RecursionError:
        raise ParseError("nested too deeply", where=f"{where}: pod") from None


def _json_removed(pod: Field, where: str, known: _Known) -> PodUID:
    """Return the pod that leaves: the value is NAME, NAMESPACE/NAME, or a pod with metadata."""
    if isinstance(pod.value, dict):
        metadata = pod.mapping("metadata")
        namespace, name = metadata.text("namespace", "default"), metadata.text("name")
    else:
        namespace, _, name = pod.as_text("a pod or its name").rpartition("/")
    pod.problems.check()
    return known.remove(namespace or "default", name, where)


def _csv_events(text: str) -> Iterator[_Placed]:
    known = _Known()
    for rows in _pods_of(_csv_rows(text)):
        first = rows[0]
        time = _time(first.cells["time"], first.where)
        problems = Problems()
        name = read_subdomain(Field(first.cells["pod"], problems, f"{first.where}: pod"))
        namespace = read_label(Field(first.cells["namespace"] or "default", problems, f"{first.where}: namespace"))
        problems.check()
        if first.cells["event"] == "remove":
            yield _Placed(first.line, Event(time, known.remove(namespace, name, first.where)))
        else:
            pod = _csv_pod(rows, name, namespace)
            yield _Placed(first.line, Event(time, known.add(pod, first.where)))


class _Row(NamedTuple):
    """A line of CSV by column; missing columns are empty."""

    line: int
    cells: Mapping[str, str]

    @property
    def where(self) -> str:
        return f"line {self.line}"

    @property
    def belongs_to(self) -> tuple[str, ...]:
        """The values that the rows of one pod have in common."""
        return tuple(self.cells[column] for column in ("time", "event", "namespace", "pod"))


def _csv_rows(text: str) -> Iterator[_Row]:
    reader = csv.reader(StringIO(text), strict=True)
    try:
        head = [cell.strip() for cell in next(reader, [])]
        _check_head(head)
        for cells in reader:
            if any(cells) and not cells[0].startswith("#"):
                yield _read_row(head, cells, reader.line_num)
    except csv.Error as error:
        raise ParseError(f"not CSV: {error}", where=f"line {reader.line_num}") from None


def _check_head(head: Sequence[str]) -> None:
    for name in _NEEDED:
        if name not in head:
            raise ParseError(f"no column {name}; the first line names the columns: {','.join(COLUMNS)}", where="line 1")
    for name in head:
        if name not in COLUMNS or head.count(name) > 1:
            problem = "appears twice" if name in COLUMNS else "is unknown"
            raise ParseError(f"column {excerpt(name)} {problem}; there are {', '.join(COLUMNS)}", where="line 1")


def _read_row(head: Sequence[str], cells: Sequence[str], line: int) -> _Row:
    if len(cells) > len(head):
        raise ParseError(f"{len(cells)} cells, but {len(head)} columns", where=f"line {line}")
    said = dict(zip(head, (cell.strip() for cell in cells), strict=False))
    row = _Row(line, {column: said.get(column, "") for column in COLUMNS})
    _check_event(row.cells["event"], row.where)
    return row


def _pods_of(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows of one event at a time: an added pod has consecutive rows."""
    group: list[_Row] = []
    for row in rows:
        if group and (row.belongs_to != group[0].belongs_to or row.cells["event"] == "remove"):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _csv_pod(rows: Sequence[_Row], name: str, namespace: str) -> Pod:
    init: list[Container] = []
    apps: list[Container] = []
    for row in rows:
        kind = row.cells["kind"]
        if kind not in _KINDS:
            problem = f"{excerpt(kind)} is not one of {', '.join(_KINDS[1:])}"
            raise ParseError(problem, where=f"{row.where}: kind")
        container = _csv_container(row, sidecar=kind == "sidecar")
        if any(container.name == other.name for other in (*init, *apps)):
            problem = f"pod {excerpt(name)} has two containers called {excerpt(container.name)}"
            raise ParseError(problem, where=f"{row.where}: container")
        (init if kind in {"init", "sidecar"} else apps).append(container)
    if not apps:
        raise ParseError(f"pod {excerpt(name)} has init containers only", where=rows[0].where)
    return Pod(PodUID(""), name, namespace, tuple(init), tuple(apps))


def _csv_container(row: _Row, *, sidecar: bool) -> Container:
    problems = Problems()
    name = read_label(Field(row.cells["container"] or "app", problems, f"{row.where}: container"))
    problems.check()
    # A missing limit equals the request: most traces are of pods that want exclusive CPUs.
    cpu, memory = _amount(row, "cpu"), _amount(row, "memory")
    cpu_limit, memory_limit = _amount(row, "cpu_limit", cpu), _amount(row, "memory_limit", memory)
    for column, request, limit in (("cpu", cpu, cpu_limit), ("memory", memory, memory_limit)):
        if request is not None and limit is not None and request > limit:
            raise ParseError("is more than its limit", where=f"{row.where}: {column}")
    return Container(name, Resources(Amounts(cpu, memory), Amounts(cpu_limit, memory_limit)), sidecar)


def _amount(row: _Row, column: str, otherwise: int | None = None) -> int | None:
    """Return an amount in milli CPUs or bytes; "-" is not set, an empty cell is *otherwise*."""
    text = row.cells[column]
    if text in {"", "-"}:
        return otherwise if not text else None
    try:
        quantity = Quantity.parse(text)
    except ParseError as error:
        raise error.within(f"{row.where}: {column}") from None
    return quantity.milli if column.startswith("cpu") else quantity.value


def _check_event(event: str, where: str) -> None:
    if event not in _EVENTS:
        raise ParseError(f"{excerpt(event)} is not one of {', '.join(_EVENTS)}", where=f"{where}: event")


def _time(text: str, where: str) -> float:
    """Return seconds; a date and time as RFC 3339 writes it is seconds since 1970."""
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{excerpt(text)} is neither seconds, such as 12.5, nor a time such as 2026-01-31T12:00:00Z"
        raise ParseError(problem, where=f"{where}: time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
