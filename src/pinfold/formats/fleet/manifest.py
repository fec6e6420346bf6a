"""A fleet file → node types and workloads: machines, counts, kubelet settings, and pods.

The function *read* reads the files that it names; this module opens none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config
from pinfold.core.machine.presets import preset
from pinfold.errors import ConfigError, ParseError, excerpt
from pinfold.formats.documents import Document, parse_documents
from pinfold.formats.fields import DocumentError, Field, Problems
from pinfold.formats.fleet.pods import MAX_REPLICAS, parse_workloads
from pinfold.formats.kubelet.config import KIND, VERSION, parse_kubelet_config
from pinfold.formats.machine.machinefile import parse_machine
from pinfold.formats.number import Number
from pinfold.planning.sites import MOST_PODS, NodeType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.machine.topology import Topology
    from pinfold.planning.shard import FleetWorkload

    Read = Callable[[str], str]

MAX_NODES: Final = 100_000
FIELDS: Final = ("kind", "nodes", "workloads")
NODE_FIELDS: Final = ("name", "count", "machine", "machineFile", "kubelet", "kubeletFile")
WORKLOAD_FIELDS: Final = ("pods", "replicas")
_FLEET: Final = "Fleet"
_LONGEST_NAME: Final = 63


class FleetFile(NamedTuple):
    """The contents of a fleet file."""

    types: tuple[NodeType, ...]
    workloads: tuple[FleetWorkload, ...]
    notes: tuple[str, ...]
    """Notes on skipped objects and likely mistakes."""


def parse_fleet(text: str, read: Read, *, source: str = "", fidelity: Fidelity = Fidelity.PINFOLD) -> FleetFile:
    """Return the fleet written in *text*; *source* names the file in errors, *read* returns the text of another.

    >>> fleet = parse_fleet("nodes: [{name: laptop, count: 3, machine: laptop-4}]", read=lambda name: "")
    >>> fleet.types[0].count, fleet.types[0].allocatable
    (3, 4000)
    >>> parse_fleet("nodes: [{name: laptop, machine: laptop-4}]", read=lambda name: "", source="fleet.yaml")
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: fleet.yaml: nodes[0].count: missing; a whole number, 1 or more is expected
    """
    reader = _Reader(read, fidelity)
    root = _find_root(text, source, reader.problems)
    _check_names(root, FIELDS)
    if root.get("kind") not in (None, _FLEET):
        root.child("kind").expected(_FLEET)
    types = [reader.read_type(field) for field in root.items("nodes")]
    if not types and root.get("nodes") in (None, []):
        root.child("nodes").refuse("missing; a list of node types is expected")
    workloads = [workload for field in root.items("workloads") for workload in reader.read_workloads(field)]
    reader.problems.check()
    _check_types(root, types)
    reader.problems.check()
    return FleetFile(tuple(types), tuple(workloads), tuple(reader.notes))


def _find_root(text: str, source: str, problems: Problems) -> Field:
    documents = [document for document in parse_documents(text, source=source) if document.value is not None]
    if len(documents) > 1:
        raise ParseError(f"{len(documents)} documents; a fleet file has one", where=source)
    root = Field((documents or [Document(1, None)])[0].value, problems, source)
    if not isinstance(root.value, dict):
        root.expected("a mapping with nodes")
        problems.check()
    return root


def _check_names(field: Field, allowed: Sequence[str]) -> None:
    for name in field.names:
        if name not in allowed:
            field.child(name).refuse(f"unknown; allowed: {', '.join(allowed)}")


def _check_types(root: Field, types: Sequence[NodeType]) -> None:
    seen: set[str] = set()
    for field, kind in zip(root.items("nodes"), types, strict=True):
        if kind.name in seen:
            field.child("name").refuse(f"{excerpt(kind.name)} is a duplicate")
        seen.add(kind.name)
        try:
            kind.config.build(kind.topology)
        except ConfigError as error:
            for problem in error.problems:
                field.refuse(f"node type {excerpt(kind.name)}: {problem}")
    if sum(kind.count for kind in types) > MAX_NODES:
        root.child("nodes").refuse(f"more than {MAX_NODES:,} nodes in all")


class _Reader:
    """Reads the parts of a fleet file, and the files that they name."""

    def __init__(self, read: Read, fidelity: Fidelity) -> None:
        self.read = read
        self.fidelity = fidelity
        self.problems = Problems()
        self.notes: list[str] = []

    def read_type(self, field: Field) -> NodeType:
        if not isinstance(field.value, dict):
            field.expected("a node type")
            field.value = {}
        _check_names(field, NODE_FIELDS)
        config, most_pods = self.read_kubelet(field)
        config = replace(config, fidelity=self.fidelity)
        return NodeType(_read_name(field), _read_count(field, "count"), self.read_machine(field), config, most_pods)

    def read_machine(self, field: Field) -> Topology:
        name, file = field.child("machine"), field.child("machineFile")
        if (name.value is None) == (file.value is None):
            field.refuse("machine (a built-in machine or a shape) or machineFile is expected, and not both")
            return _NO_MACHINE
        try:
            return preset(name.as_text()) if file.value is None else self.read_machine_file(file.as_text("a file name"))
        except ParseError as error:
            (name if file.value is None else file).refuse(str(error))
            return _NO_MACHINE

    def read_machine_file(self, name: str) -> Topology:
        text = self.read(name)
        try:
            return parse_machine(text)
        except ParseError as error:
            raise error.within(name) from error

    def read_kubelet(self, field: Field) -> tuple[Config, int]:
        """Return the kubelet's settings and maxPods; its defaults if they are not given."""
        inline, file = field.child("kubelet"), field.child("kubeletFile")
        if inline.value is not None and file.value is not None:
            field.refuse("kubelet or kubeletFile is expected, and not both")
        try:
            if file.value is not None:
                name = file.as_text("a file name")
                return self.parse_kubelet(self.read(name), name)
            if inline.value is not None and not isinstance(inline.value, dict):
                inline.expected(f"a {KIND}")
            elif inline.value is not None:
                document = {"kind": KIND, "apiVersion": VERSION, **inline.value}
                return self.parse_kubelet(format_document(document), inline.where)
        except DocumentError as error:
            for problem in error.problems:
                self.problems.add(problem.problem, problem.where)
        except ParseError as error:
            self.problems.add(error.problem, error.where)
        return Config(), MOST_PODS

    def parse_kubelet(self, text: str, source: str) -> tuple[Config, int]:
        found = parse_kubelet_config(text, source=source)
        self.notes += found.warnings
        most_pods = MOST_PODS
        for _, value in parse_documents(text, source=source):
            if isinstance(value, dict) and value.get("kind") == KIND:
                # A kubelet treats 0 in its file as not set.
                most_pods = Field(value, self.problems, source).whole("maxPods", MOST_PODS) or MOST_PODS
        return found.config, most_pods

    def read_workloads(self, field: Field) -> tuple[FleetWorkload, ...]:
        if not isinstance(field.value, dict):
            field.expected("a mapping with pods and replicas")
            field.value = {}
        _check_names(field, WORKLOAD_FIELDS)
        name, replicas = field.child("pods").as_text("a file name"), _read_count(field, "replicas", default=1)
        if not name:
            return ()
        try:
            found = parse_workloads(self.read(name), source=name, times=replicas)
        except DocumentError as error:
            for problem in error.problems:
                self.problems.add(problem.problem, problem.where)
            return ()
        except ParseError as error:
            self.problems.add(error.problem, error.where)
            return ()
        self.notes += found.ignored
        return found.workloads


_NO_MACHINE: Final = preset("laptop-4")  # placeholder for a machine that cannot be read, until the problem is raised


def _read_name(field: Field) -> str:
    child = field.child("name")
    name = child.as_text("a name")
    if isinstance(child.value, str) and not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
        child.refuse(f"{excerpt(name)} is not a valid name; 1 to {_LONGEST_NAME} printable characters are expected")
    return name


def _read_count(field: Field, key: str, default: int = 0) -> int:
    """Return the whole number at *key*, 1 or more; required unless there is a default."""
    child = field.child(key)
    count = field.whole(key, default)
    if child.value is None:
        if not default:
            child.expected("a whole number, 1 or more")
    elif isinstance(child.value, Number) and not 1 <= count <= MAX_REPLICAS and child.value.text.isdigit():
        child.refuse(f"{count} is not within 1 and {MAX_REPLICAS:,}")
    return count


def format_document(value: object) -> str:
    """Return a document as text that `parse_documents` reads back; numbers stay as they were written.

    >>> format_document({"a": [Number("2.50"), True, "x"]})
    '{"a": [2.50, true, "x"]}'
    """
    match value:
        case Number():
            return value.text
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)}: {format_document(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(format_document, value))}]"
        case _:
            return json.dumps(value)
