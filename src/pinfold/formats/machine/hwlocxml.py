"""The elements of an hwloc XML document that a Topology needs, read as a stream.

Documents are untrusted: no entities, no deep nesting, a limit for everything; every error is a ParseError with its
line. Does not interpret the elements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn
from xml.parsers import expat

from pinfold.core.machine.cpuset import MAX_CPU
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ID: Final = 2**31 - 1
_MAX_TEXT: Final = 1 << 25
_MAX_DEPTH: Final = 100
_MAX_NODES: Final = 1024  # as in Linux
_MAX_MATRICES: Final = 100
_MAX_NUMBERS: Final = 1 << 20  # characters in one element; hwloc writes ten numbers into each
# hwloc writes "unknown" as -1, also printed unsigned.
_UNKNOWN: Final = ("-1", "4294967295")
_VERSIONS: Final = ("1", "2", "3")
_TYPES: Final = {"Socket": "Package", "Node": "NUMANode"}  # old names for the same
_OBJECTS: Final = ("PU", "Core", "Package", "NUMANode")
# Levels 1 and 2 belong to cores; L3iCache holds instructions only.
_UNCORE: Final = re.compile(r"L[3-9]Cache")
_INSTRUCTIONS: Final = "2"
_MEANS_LATENCY: Final = 4
_MAX_CHUNKS: Final = (MAX_CPU + 1) // 32
_CHUNK: Final = re.compile(r"0x[0-9a-fA-F]{1,8}")


@dataclass(slots=True)
class Element:
    """An object (by the newest name of its type) or a matrix of distances, with the numbers inside it."""

    type: str
    line: int
    attributes: Mapping[str, str]
    indexes: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def number(self, name: str, highest: int = MAX_ID) -> int | None:
        """Return the number in an attribute; None if it is missing or says unknown."""
        word = self.attributes.get(name)
        if word is None or word in _UNKNOWN:
            return None
        if not (word.isascii() and word.isdigit()) or len(word) > len(str(highest)) or int(word) > highest:
            self.fail(f"{name}: expected a number from 0 to {highest}, found {excerpt(word)}")
        return int(word)

    def required(self, name: str, highest: int = MAX_ID) -> int:
        """Return the number in a required attribute."""
        number = self.number(name, highest)
        return self.fail(f"{self.type} without {name}") if number is None else number

    def mask(self, name: str, default: int | None = None) -> int:
        """Return the CPUs in an attribute; required without a default."""
        word = self.attributes.get(name)
        if word is None:
            return self.fail(f"{self.type} without {name}") if default is None else default
        try:
            return parse_bitmap(word)
        except ParseError as error:
            raise error.within(f"line {self.line}: {name}") from None

    def add(self, numbers: list[str], words: list[str]) -> None:
        """Add to the indexes or values."""
        numbers += words
        if len(numbers) > _MAX_NODES**2:
            self.fail(f"distances between more than {_MAX_NODES:,} NUMA nodes")

    def fail(self, problem: str) -> NoReturn:
        """Raise a ParseError with the line of the element."""
        raise ParseError(problem, where=f"line {self.line}")


@dataclass(slots=True)
class HwlocDocument:
    """The elements that a Topology needs; the machine is the outermost object."""

    machine: Element | None = None
    objects: dict[str, list[Element]] = field(default_factory=dict)
    matrices: list[Element] = field(default_factory=list)

    def of_type(self, name: str) -> Sequence[Element]:
        """Return the objects of a type, in the order of the document."""
        return self.objects.get(name, ())

    def uncore_caches(self) -> Sequence[Element]:
        """Return the caches of the first level above 2."""
        levels = sorted(name for name in self.objects if _UNCORE.fullmatch(name))
        return self.of_type(levels[0]) if levels else ()


def read_document(text: str) -> HwlocDocument:
    """Return the elements of an hwloc XML document that a Topology needs."""
    if len(text) > _MAX_TEXT:
        raise ParseError(f"hwloc XML of {len(text):,} characters; {_MAX_TEXT:,} are allowed")
    reader = _Reader()
    try:
        reader.parser.Parse(text, True)  # noqa: FBT003 - expat takes no keywords
    except expat.ExpatError as error:
        raise ParseError(f"not XML: {expat.ErrorString(error.code)}", where=f"line {error.lineno}") from None
    except UnicodeEncodeError:
        raise ParseError("not XML: characters that no encoding has") from None
    return reader.document


def parse_bitmap(text: str) -> int:
    """Return the mask that hwloc writes in 32-bit chunks, of which those that are 0 may be left empty.

    >>> f"{parse_bitmap('0x0000000f,,0x00000001'):x}"
    'f0000000000000001'
    """
    if text.startswith("0xf...f"):
        raise ParseError("this set has no end; expected the CPUs of one machine", text=text)
    chunks = text.split(",")
    if len(chunks) > _MAX_CHUNKS:
        raise ParseError(f"set has CPUs above {MAX_CPU}, the highest allowed", text=text)
    mask = 0
    for place, chunk in enumerate(reversed(chunks)):
        if not chunk:
            continue
        if _CHUNK.fullmatch(chunk) is None:
            at = sum(len(before) + 1 for before in chunks[: len(chunks) - 1 - place])
            raise ParseError("expected 0x and 1 to 8 hex digits", text=text, at=at)
        mask |= int(chunk, 16) << 32 * place
    return mask


class _Reader:
    """Collects the needed elements while expat reads them."""

    def __init__(self) -> None:
        self.document = HwlocDocument()
        self.depth = 0
        self.matrix: Element | None = None
        self.text: list[str] = []
        self.size = 0
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.data

    def doctype(self, name: str, _system: str | None, _public: str | None, declarations: int) -> None:
        # hwloc writes a DOCTYPE that names its DTD, which is never loaded; declarations inside would be an attack.
        if declarations:
            self.element(name, {}).fail("declarations inside DOCTYPE are not allowed")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.depth += 1
        self.text.clear()
        self.size = 0
        if self.depth == 1:
            _check_root(self.element(name, attributes))
        elif self.depth > _MAX_DEPTH:
            self.element(name, attributes).fail(f"nested deeper than {_MAX_DEPTH} elements")
        elif name == "object":
            self.object(self.element(_object_type(attributes), attributes))
        elif name in {"distances", "distances2"} and _may_be_of_nodes(name, attributes):
            self.matrix = self.element(name, attributes)
            self.document.matrices.append(self.matrix)
            if len(self.document.matrices) > _MAX_MATRICES:
                self.matrix.fail(f"more than {_MAX_MATRICES} matrices of distances")
        elif name == "latency" and self.matrix is not None:
            self.matrix.add(self.matrix.values, [attributes.get("value", "")])

    def end(self, name: str) -> None:
        self.depth -= 1
        if self.matrix is not None and name in {"indexes", "u64values"}:
            numbers = self.matrix.indexes if name == "indexes" else self.matrix.values
            self.matrix.add(numbers, "".join(self.text).split())
        elif name in {"distances", "distances2"}:
            self.matrix = None

    def data(self, data: str) -> None:
        if self.matrix is not None:
            self.text.append(data)
            self.size += len(data)
            if self.size > _MAX_NUMBERS:
                self.matrix.fail(f"more than {_MAX_NUMBERS:,} characters of distances in one element")

    def object(self, thing: Element) -> None:
        if not thing.type:
            thing.fail("object without type")
        if self.document.machine is None:
            self.document.machine = thing
        if thing.type in _OBJECTS or _UNCORE.fullmatch(thing.type):
            same = self.document.objects.setdefault(thing.type, [])
            same.append(thing)
            if len(same) > (_MAX_NODES if thing.type == "NUMANode" else MAX_CPU + 1):
                thing.fail(f"more than {len(same) - 1:,} objects of type {thing.type}")

    def element(self, name: str, attributes: Mapping[str, str]) -> Element:
        return Element(name, self.parser.CurrentLineNumber, attributes)


def _check_root(root: Element) -> None:
    if root.type != "topology":
        root.fail(f"expected an hwloc topology, found element {excerpt(root.type)}")
    version = root.attributes.get("version", "1.0")
    if version.split(".")[0] not in _VERSIONS:
        root.fail(f"hwloc XML format {excerpt(version)}; {', '.join(_VERSIONS)} are known")


def _object_type(attributes: Mapping[str, str]) -> str:
    """Return the type by its newest name."""
    name = attributes.get("type", "")
    if name == "Cache" and attributes.get("cache_type") != _INSTRUCTIONS:
        return f"L{attributes.get('depth', '')}Cache"
    return _TYPES.get(name, name)


def _may_be_of_nodes(name: str, attributes: Mapping[str, str]) -> bool:
    """Whether the distances are latencies of NUMA nodes; format 1 gives a depth instead, and not reliably."""
    kind = attributes.get("kind", "")
    latency = kind.isascii() and kind.isdigit() and bool(int(kind[:9]) & _MEANS_LATENCY)
    return name == "distances" or (attributes.get("type") == "NUMANode" and latency)
