"""YAML text to plain documents: built from the parser's events, without recursion.

Aliases, nesting, size and tags are checked on the way. `documents` says what a document is made of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

import yaml

from pinfold.errors import ParseError, excerpt
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable

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


def parse_yaml(text: str, most: int) -> list[object]:
    """Return the documents of *text*, with *most* values in all."""
    builder = _Builder(most)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if handle := _HANDLERS.get(type(event)):
                handle(builder, event)
    except yaml.MarkedYAMLError as error:
        line = min(error.problem_mark.line, text.count("\n")) if error.problem_mark else None
        raise builder.fault(_problem(error, text), line) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise builder.fault("text has control characters or broken Unicode", None) from error
    return builder.documents


def _problem(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        return "a tab cannot indent YAML; use spaces"
    return " ".join(filter(None, (error.problem, error.context))) or "malformed YAML"


class _Open:
    """A list or mapping that is not closed yet."""

    __slots__ = ("anchor", "key", "merged", "merging", "start", "value")

    def __init__(self, value: list[object] | dict[str, object], anchor: str | None, start: int) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.key: str | None = None
        self.merging = False
        self.merged: list[dict[str, object]] = []

    @property
    def wants_key(self) -> bool:
        return self.key is None and isinstance(self.value, dict)


class _Builder:
    """Builds the documents, event by event."""

    def __init__(self, most: int) -> None:
        self.documents: list[object] = []
        self.number = 0
        self.values = 0
        self.most = most
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[object, int]] = {}

    def document(self, _: yaml.DocumentStartEvent) -> None:
        self.number += 1
        self.anchors.clear()

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
        if event.anchor not in self.anchors:
            self.refuse(f"alias {excerpt(f'*{event.anchor}')} has no anchor before it", event)
        value, size = self.anchors[event.anchor]
        self.count(size, event)
        self.put(value, event)

    def start(self, event: yaml.CollectionStartEvent) -> None:
        self.check_tag(event)
        self.check_value(event)
        if len(self.open) == MAX_DEPTH:
            self.refuse(f"nested more than {MAX_DEPTH} levels deep", event)
        value: list[object] | dict[str, object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.open.append(_Open(value, event.anchor, self.values))
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
            self.documents.append(value)
            return
        top = self.open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.merging:
            self.merge(top, value, event)
        elif top.key is not None:
            top.value[top.key] = value
        top.key = None

    def merge(self, top: _Open, value: object, event: yaml.Event) -> None:
        for mapping in value if isinstance(value, list) else [value]:
            if not isinstance(mapping, dict):
                self.refuse("<< merges mappings only", event)
            top.merged.append(mapping)
        top.merging = False

    def key(self, event: yaml.ScalarEvent, top: _Open) -> None:
        top.key = event.value
        top.merging = event.value == "<<" and event.implicit[0]
        if event.value in top.value:
            self.refuse(f"duplicate key {excerpt(event.value)}", event)

    def check_value(self, event: yaml.NodeEvent) -> None:
        if self.open and self.open[-1].wants_key:
            self.refuse("a key must be plain text (is this a template that has to be rendered first?)", event)

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag not in _TAGS:
            tag = str(event.tag).replace(_TAG, "!!")
            self.refuse(f"tag {excerpt(tag)} is not allowed; write plain YAML", event)

    def count(self, values: int, event: yaml.Event) -> None:
        self.values += values
        if self.values > self.most:
            self.refuse(f"more than {self.most:,} values, with aliases written out", event)

    def refuse(self, problem: str, event: yaml.Event) -> NoReturn:
        raise self.fault(problem, event.start_mark.line if event.start_mark else None)

    def fault(self, problem: str, line: int | None) -> ParseError:
        place = "" if line is None else f"line {line + 1}: "
        return ParseError(place + problem, where=f"document {max(self.number, 1)}")


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
