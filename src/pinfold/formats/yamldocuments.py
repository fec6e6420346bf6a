"""YAML text to plain documents: built from the parser's events, without recursion.

Aliases, nesting, size and tags are checked on the way. `documents` says what a document is made of, `yamlmistakes`
where reading goes on after a mistake.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING, Final, NoReturn

import yaml

from pinfold.errors import excerpt
from pinfold.formats.number import Number
from pinfold.formats.yamlmistakes import TEMPLATE, Bracket, Mistake, TextPlace, mistake, next_document, unreadable_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.formats.documents import ValueRoom
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


def parse_yaml(text: str, room: ValueRoom, problems: Problems, source: str = "") -> list[tuple[int, object]]:
    """Return the documents of *text* that can be read, with their numbers; record all problems.

    After a mistake that ends a document, reading goes on at the next one. It stops where there is no more *room*.
    """
    builder = _Builder(text, room, problems, source)
    start: TextPlace | None = TextPlace()
    try:
        while start is not None:
            start = builder.read(start)
    except _TooManyValues:
        pass
    except (yaml.YAMLError, UnicodeEncodeError):
        line = unreadable_line(text)
        place = f"line {line}: " if line else ""
        problems.add(f"{place}control characters or broken Unicode; the rest of the file was not read", source)
    finally:
        room.values = builder.values
    return builder.documents


class _TooManyValues(Exception):  # noqa: N818 - the fact
    """Nothing more of the text is read."""


class _Open:
    """A list or mapping that is not closed yet."""

    __slots__ = ("before", "event", "items", "key", "mapping", "merged", "merging", "wants_key")

    def __init__(self, event: yaml.CollectionStartEvent, before: int) -> None:
        """Begin with nothing in it, after so many values."""
        is_mapping = type(event) is yaml.MappingStartEvent
        self.mapping: dict[str, object] | None = {} if is_mapping else None
        self.items: list[object] = []
        self.wants_key = is_mapping
        self.key = ""
        self.merging = False
        self.merged: list[dict[str, object]] = []
        self.before = before
        self.event = event

    def whole(self) -> object:
        """Return the list, or the mapping with what is merged into it."""
        if self.mapping is None:
            return self.items
        for mapping in self.merged:
            for key, value in mapping.items():
                self.mapping.setdefault(key, value)
        return self.mapping

    def bracket(self, start: TextPlace) -> Bracket | None:
        """Return its bracket in the text that begins at *start*, None if it is written without one."""
        sign = "[" if self.mapping is None else "{"
        return Bracket(sign, start.of(self.event.start_mark).line) if self.event.flow_style else None


class _Builder:
    """Builds the documents, event by event.

    Texts of a megabyte have a million events: `scalar` does in its own body what most of them need.
    """

    def __init__(self, text: str, room: ValueRoom, problems: Problems, source: str) -> None:
        self.text = text
        # A stream is read as far as needed; a text would be encoded whole after each mistake.
        self.stream = StringIO(text, newline="")
        self.documents: list[tuple[int, object]] = []
        self.problems = problems
        self.source = source
        self.number = 0
        self.room = room
        self.values = room.values
        self.most = room.most
        self.from_ = TextPlace()
        self.began = 0
        self.forget()

    def forget(self) -> None:
        """Begin a document with nothing in it."""
        self.open: list[_Open] = []
        self.top: _Open | None = None
        self.anchors: dict[str, tuple[object, int]] = {}
        self.is_spoilt = False

    def read(self, start: TextPlace) -> TextPlace | None:
        """Read from *start* up to the end or a mistake; return where to go on, None at the end."""
        self.from_ = start
        self.stream.seek(start.at)
        try:
            for event in iter(_LOADER(self.stream).get_event, None):
                _HANDLERS[type(event)](self, event)
        except yaml.MarkedYAMLError as error:
            return self.skip(mistake(error, self.text, start, self.top.bracket(start) if self.top else None))
        except Mistake as found:
            return self.skip(found)
        return None

    def skip(self, found: Mistake) -> TextPlace | None:
        """Record what ends a document; return the start of the next one."""
        after = next_document(self.text, found.place, self.began + 1)
        self.tell(found.told(self.text, after.at if after else len(self.text)))
        is_directive = self.text.startswith("%", found.place.at)
        self.number = max(self.number, 0 if is_directive else 1)
        if self.documents and self.documents[-1][0] == self.number:
            del self.documents[-1]  # a text that was whole before the mistake
        return after

    def document(self, event: yaml.DocumentStartEvent) -> None:
        self.number += 1
        if event.start_mark is not None:
            self.began = self.from_.at + event.start_mark.index
        if self.open or self.anchors or self.is_spoilt:
            self.forget()

    def scalar(self, event: yaml.ScalarEvent) -> None:
        text, tag, top = event.value, event.tag, self.top
        if tag not in _TAGS:
            self.refuse_tag(event)
        if top is not None and top.wants_key:
            self.key(event, top)
            return
        self.values += 1
        if self.values > self.most:
            self.stop(event)
        value = text if tag is not None or not event.implicit[0] else _resolve(text)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, 1
        if top is None or top.merging:
            self.put(value, event)
        elif top.mapping is None:
            top.items.append(value)
        else:
            top.mapping[top.key] = value
            top.wants_key = True

    def alias(self, event: yaml.AliasEvent) -> None:
        self.check_value(event)
        anchor = str(event.anchor)
        if anchor not in self.anchors:
            self.refuse(f"alias {excerpt(f'*{anchor}')} has no anchor before it", event)
            self.anchors[anchor] = {}, 1  # said once
        value, size = self.anchors[anchor]
        self.values += size
        if self.values > self.most:
            self.stop(event)
        self.put(value, event)

    def start(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag not in _TAGS:
            self.refuse_tag(event)
        self.check_value(event)
        if len(self.open) == MAX_DEPTH:
            place = self.from_.of(event.start_mark)
            raise Mistake(f"nested more than {MAX_DEPTH} levels deep", place.line, place)
        self.top = _Open(event, self.values)
        self.open.append(self.top)
        self.values += 1
        if self.values > self.most:
            self.stop(event)

    def end(self, event: yaml.CollectionEndEvent) -> None:
        done = self.open.pop()
        self.top = self.open[-1] if self.open else None
        value = done.whole()
        if done.event.anchor is not None:
            self.anchors[done.event.anchor] = value, self.values - done.before
        self.put(value, event)

    def put(self, value: object, event: yaml.Event) -> None:
        top = self.top
        if top is None:
            self.documents += [] if self.is_spoilt else [(self.number, value)]
        elif top.mapping is None:
            top.items.append(value)
        elif top.wants_key:
            top.key, top.wants_key = "", False  # it was not text, which is recorded
        else:
            if top.merging:
                self.merge(top, value, event)
            else:
                top.mapping[top.key] = value
            top.wants_key = True

    def merge(self, top: _Open, value: object, event: yaml.Event) -> None:
        for mapping in value if isinstance(value, list) else [value]:
            if isinstance(mapping, dict):
                top.merged.append(mapping)
            else:
                self.refuse("<< merges mappings only", event)
        top.merging = False

    def key(self, event: yaml.ScalarEvent, top: _Open) -> None:
        top.key, top.wants_key = event.value, False
        if event.value == "<<":
            top.merging = event.implicit[0]
        if top.mapping is not None and event.value in top.mapping:
            self.tell_at(f"duplicate key {excerpt(event.value)}", event)

    def check_value(self, event: yaml.NodeEvent) -> None:
        if self.top is not None and self.top.wants_key:
            self.refuse(f"a key must be plain text {TEMPLATE}", event)

    def refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        tag = str(event.tag).replace(_TAG, "!!")
        self.refuse(f"tag {excerpt(tag)} is not allowed; write plain YAML", event)

    def stop(self, event: yaml.Event) -> NoReturn:
        """Record that there are too many values; nothing more is read."""
        self.tell_at(f"more than {self.most:,} values, with aliases written out{self.room.advice}", event)
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

    def pass_by(self, event: yaml.Event) -> None:
        """Nothing begins or ends here."""


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    yaml.StreamStartEvent: _Builder.pass_by,
    yaml.StreamEndEvent: _Builder.pass_by,
    yaml.DocumentStartEvent: _Builder.document,
    yaml.DocumentEndEvent: _Builder.pass_by,
    yaml.ScalarEvent: _Builder.scalar,
    yaml.AliasEvent: _Builder.alias,
    yaml.MappingStartEvent: _Builder.start,
    yaml.SequenceStartEvent: _Builder.start,
    yaml.MappingEndEvent: _Builder.end,
    yaml.SequenceEndEvent: _Builder.end,
}


def _resolve(text: str) -> object:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    return Number(text) if (text.isdecimal() and text.isascii()) or _NUMBER.fullmatch(text) else text
