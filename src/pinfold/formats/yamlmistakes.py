"""Mistakes in YAML that end a document: what they are in words, and where the next document begins.

A line that begins with `---` is the start of a document wherever it stands, also inside quotes or brackets: after a
mistake, reading can go on there without guessing. Inside a document there is no such place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import yaml

_BREAKS: Final = "\n\r\x85\u2028\u2029"
_MARK: Final = re.compile(rf"(?<![^{_BREAKS}])---(?![^ \t{_BREAKS}])")
_UNREADABLE: Final = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TEMPLATE: Final = "(is this a template that has to be rendered first?)"
_IN_BLOCKS: Final = {"while parsing a block mapping", "while parsing a block collection"}
# Both parsers that there may be: libyaml, and the one without it.
_NOT_HERE: Final = {"mapping values are not allowed in this context", "mapping values are not allowed here"}
_QUOTED: Final = "while scanning a quoted scalar"


class _Mark(Protocol):
    """A mark of the parser."""

    @property
    def index(self) -> int: ...
    @property
    def line(self) -> int: ...


class TextPlace(NamedTuple):
    """A place in a text: characters and lines before it."""

    at: int = 0
    line: int = 0

    def of(self, mark: _Mark | None) -> TextPlace:
        """Return the place of a mark in the text that begins here; this place if there is no mark."""
        return self if mark is None else TextPlace(self.at + mark.index, self.line + mark.line)

    def moved(self, text: str, index: int) -> TextPlace:
        """Return the place with this *index*, before or after this place."""
        back = _count_lines(text, index, self.at) if index < self.at else 0
        return TextPlace(index, self.line + _count_lines(text, self.at, index) - back)


class Bracket(NamedTuple):
    """The start of a list or mapping in brackets."""

    sign: str
    line: int


class Mistake(Exception):  # noqa: N818 - the fact
    """The document cannot be read from here on."""

    def __init__(self, problem: str, shown: int, place: TextPlace) -> None:
        """*shown* is the line that the user should look at, from 0; *place* is where reading stopped."""
        super().__init__(problem)
        self.problem = problem
        self.shown = shown
        self.place = place

    def told(self, text: str, end: int) -> str:
        """Return the message for a document that ends before index *end*, with the lines that were not read."""
        last = self.place.moved(text, len(text[:end].rstrip())).line
        rest = f"; the rest of this document (to line {last + 1}) was not read" if last > self.shown else ""
        return f"line {self.shown + 1}: {self.problem}{rest}"


def mistake(error: yaml.MarkedYAMLError, text: str, start: TextPlace, bracket: Bracket | None) -> Mistake:
    """Return the parser's *error* in the text that begins at *start*, in words that name the line to look at.

    *bracket* is the innermost one that is open.
    """
    place = start.of(error.problem_mark)
    opened = start.of(error.context_mark).line if error.context_mark else place.line
    end = len(text.rstrip())
    if place.at >= end or _MARK.match(text, place.at):
        if error.context == _QUOTED:
            return Mistake("this quote is not closed", opened, place)
        if bracket is not None:
            return Mistake(f'this "{bracket.sign}" is not closed', bracket.line, place)
    if text.startswith("\t", place.at):
        return Mistake("a tab cannot indent YAML; use spaces", place.line, place)
    said = " ".join(filter(None, (error.problem, error.context))) or "malformed YAML"
    began = f" that begins in line {opened + 1}" if opened != place.line else ""
    line = place.line if place.at < end else place.moved(text, end).line
    return Mistake(f"{said}{began}{_hint(error, text, place.at)}", line, place)


def _hint(error: yaml.MarkedYAMLError, text: str, at: int) -> str:
    """Return what is probably wrong, in brackets; nothing if that is not known."""
    begin = text.rfind("\n", 0, max(text.rfind("\n", 0, at), 0)) + 1  # also the line before
    if "{{" in text[begin:at] or text.startswith("{{", at):
        return f" {TEMPLATE}"
    if error.context in _IN_BLOCKS:
        return " (check the indentation)"
    if error.problem in _NOT_HERE:
        return ' (check the indentation; text with ": " needs quotes)'
    return ""


def next_document(text: str, stopped: TextPlace, after: int) -> TextPlace | None:
    """Return where the next document begins, after the index *after*; None if there is none."""
    begin = max(text.rfind(sign, 0, stopped.at) for sign in _BREAKS) + 1
    found = _MARK.search(text, max(begin, after))
    return stopped.moved(text, found.start()) if found else None


def unreadable_line(text: str) -> int | None:
    """Return the line, from 1, of the first character that YAML does not allow."""
    found = _UNREADABLE.search(text)
    return _count_lines(text, 0, found.start()) + 1 if found else None


def _count_lines(text: str, start: int, end: int) -> int:
    breaks = sum(text.count(sign, start, end) for sign in _BREAKS)
    return breaks - text.count("\r\n", start, end)
