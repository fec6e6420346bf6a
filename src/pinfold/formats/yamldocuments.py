"""YAML text to plain documents: built from the parser's events, without recursion.

Aliases, nesting, size and tags are checked on the way. `documents` says what a document is made of, `yamlmistakes`
where reading goes on after a mistake.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml

from pinfold.errors import excerpt
from pinfold.formats.number import Number
from pinfold.formats.yamlmistakes import TEMPLATE, Bracket, Mistake, TextPlace, mistake, next_document, unreadable_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.formats.fields import Problems

MAX_DEPTH: Final = 100
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_TAG: Final = "tag:yaml.org,2002:"
_TAGS: Final = {None, "!", f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map"}
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
# What the YAML of Kubernetes reads as a number if it is not in quotes. Every text matches in one way only, so that
# text which is no number is refused in linear time.
_NUMBER: Final = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0b[01_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_NUMBER_STARTS: Final = frozenset("0123456789+-.")


def parse_yaml(text: str, most: int, problems: Problems, source: str = "") -> list[tuple[int, object]]:
    """Return the documents of *text* that can be read, with their numbers; record all problems.

    After a mistake that ends a document, reading goes on at the next one. With more than *most* values it stops.
    """
    builder = _Builder(most, problems, source)
    start: TextPlace | None = TextPlace()
    try:
        while start is not None:
            start = builder.read(text, start)
    except _TooManyValues:
        pass
    except (yaml.YAMLError, UnicodeEncodeError):
        line = unreadable_line(text)
        place = f"line {line}: " if line else ""
        problems.add(f"{place}control characters or broken Unicode; the rest of the file was not read", source)
    return builder.documents


class _TooManyValues(Exception):  # noqa: N818 - the fact
    """Nothing more of the text is read."""


class _Open:
    """A list or mapping that is not closed yet."""

    __slots__ = ("anchor", "bracket", "key", "merged", "merging", "start", "value")

    def __init__(
        self, value: list[object] | dict[str, object], anchor: str | None, start: int, bracket: Bracket | None
    ) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.bracket = bracket
        self.key: str | None = None
        self.merging = False
        self.merged: list[dict[str, object]] = []

    @property
    def wants_key(self) -> bool:
        return self.key is None and isinstance(self.value, dict)


class _Builder:
    """Builds the documents, event by event."""

    def __init__(self, most: int, problems: Problems, source: str) -> None:
        self.documents: list[tuple[int, object]] = []
        self.problems = problems
        self.source = source
        self.number = 0
        self.values = 0
        self.most = most
        self.from_ = TextPlace()
        self.began = 0
        self.forget()

    def forget(self) -> None:
        """Begin a document with nothing in it."""
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[object, int]] = {}
        self.is_spoilt = False

    def read(self, text: str, start: TextPlace) -> TextPlace | None:
        """Read from *start* up to the end or a mistake; return where to go on, None at the end."""
        self.from_ = start
        try:
            for event in yaml.parse(text[start.at :], Loader=_LOADER):
                if handle := _HANDLERS.get(type(event)):
                    handle(self, event)
        except yaml.MarkedYAMLError as error:
            return self.skip(text, mistake(error, text, start, self.open[-1].bracket if self.open else None))
        except Mistake as found:
            return self.skip(text, found)
        return None

    def skip(self, text: str, found: Mistake) -> TextPlace | None:
        """Record what ends a document; return the start of the next one."""
        after = next_document(text, found.place, self.began + 1)
        self.tell(found.told(text, after.at if after else len(text)))
        is_directive = text.startswith("%", found.place.at)
        self.number = max(self.number, 0 if is_directive else 1)
        if self.documents and self.documents[-1][0] == self.number:
            del self.documents[-1]  # a text that was whole before the mistake
        return after

    def document(self, event: yaml.DocumentStartEvent) -> None:
        self.number += 1
        self.began = self.from_.of(event.start_mark).at
        self.forget()

    def scalar(self, event: yaml.ScalarEvent) -> None:
        self.check_tag(event)
        if self.open and self.open[-1].wants_key:
            self.key(event, self.open[-1])
            return
        self.count(1, event)
        value = _resolve(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, 1
        self.put(value, event)

    def alias(self, event: yaml.AliasEvent) -> None:
        self.check_value(event)
        anchor = str(event.anchor)
        if anchor not in self.anchors:
            self.refuse(f"alias {excerpt(f'*{anchor}')} has no anchor before it", event)
            self.anchors[anchor] = {}, 1  # said once
        value, size = self.anchors[anchor]
        self.count(size, event)
        self.put(value, event)

    def start(self, event: yaml.CollectionStartEvent) -> None:
        self.check_tag(event)
        self.check_value(event)
        if len(self.open) == MAX_DEPTH:
            place = self.from_.of(event.start_mark)
            raise Mistake(f"nested more than {MAX_DEPTH} levels deep", place.line, place)
        value: list[object] | dict[str, object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        line = self.from_.of(event.start_mark).line
        bracket = Bracket("{" if isinstance(value, dict) else "[", line) if event.flow_style else None
        self.open.append(_Open(value, event.anchor, self.values, bracket))
        self.count(1, event)

    def end(self, event: yaml.CollectionEndEvent) -> None:
        done = self.open.pop()
        if isinstance(done.value, dict):
            for mapping in done.merged:
                for key, value in mapping.items():
                    done.value.setdefault(key, value)
        if done.anchor is not None:
            self.anchors[done.anchor] = done.value, self.values - done.start
        self.put(done.value, event)

    def put(self, value: object, event: yaml.Event) -> None:
        if not self.open:
            self.documents += [] if self.is_spoilt else [(self.number, value)]
            return
        top = self.open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.merging:
            self.merge(top, value, event)
        elif top.key is None:
            top.key = ""  # it was not text, which is recorded
            return
        else:
            top.value[top.key] = value
        top.key = None

    def merge(self, top: _Open, value: object, event: yaml.Event) -> None:
        for mapping in value if isinstance(value, list) else [value]:
            if isinstance(mapping, dict):
                top.merged.append(mapping)
            else:
                self.refuse("<< merges mappings only", event)
        top.merging = False

    def key(self, event: yaml.ScalarEvent, top: _Open) -> None:
        top.key = event.value
        top.merging = event.value == "<<" and event.implicit[0]
        if event.value in top.value:
            self.tell_at(f"duplicate key {excerpt(event.value)}", event)

    def check_value(self, event: yaml.NodeEvent) -> None:
        if self.open and self.open[-1].wants_key:
            self.refuse(f"a key must be plain text {TEMPLATE}", event)

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag not in _TAGS:
            tag = str(event.tag).replace(_TAG, "!!")
            self.refuse(f"tag {excerpt(tag)} is not allowed; write plain YAML", event)

    def count(self, values: int, event: yaml.Event) -> None:
        self.values += values
        if self.values > self.most:
            self.tell_at(f"more than {self.most:,} values, with aliases written out", event)
            raise _TooManyValues

    def refuse(self, problem: str, event: yaml.Event) -> None:
        """Record a problem of a document, which is read on for its other problems only."""
        self.is_spoilt = True
        self.tell_at(problem, event)

    def tell_at(self, problem: str, event: yaml.Event) -> None:
        self.tell(f"line {self.from_.of(event.start_mark).line + 1}: {problem}")

    def tell(self, problem: str) -> None:
        place = f"document {max(self.number, 1)}"
        self.problems.add(problem, f"{self.source}: {place}" if self.source else place)


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    yaml.DocumentStartEvent: _Builder.document,
    yaml.ScalarEvent: _Builder.scalar,
    yaml.AliasEvent: _Builder.alias,
    yaml.MappingStartEvent: _Builder.start,
    yaml.SequenceStartEvent: _Builder.start,
    yaml.MappingEndEvent: _Builder.end,
    yaml.SequenceEndEvent: _Builder.end,
}


def _resolve(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    if event.tag is not None or not event.implicit[0]:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return Number(text) if text[0] in _NUMBER_STARTS and _NUMBER.fullmatch(text) else text
