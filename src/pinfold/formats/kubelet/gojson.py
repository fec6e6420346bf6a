r"""JSON as Go reads and writes it, where Python differs.

Writing: escapes <, >, &, U+2028, U+2029 and broken Unicode, and nothing else that is not ASCII.
Reading into typed fields: names match in any case, unknown ones are skipped, null leaves a field unchanged, a repeated
name adds to a mapping and replaces anything else, broken Unicode becomes U+FFFD. Knows no record.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar

from pinfold.errors import ParseError, excerpt
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': r"\"", "\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_HALF_PAIR: Final = re.compile(r"[\ud800-\udfff]")
_NATURAL: Final = re.compile(r"[0-9]{1,20}")
_MAX_NATURAL: Final = 2**64 - 1
_MOST_COMMAS: Final = 30_000

_T = TypeVar("_T")


Value: TypeAlias = "bool | str | Number | list[Value] | Object | None"
Object: TypeAlias = tuple[tuple[str, Value], ...]
"""The members of an object in the order of the text; names may repeat."""


def quote(text: str) -> str:
    r"""Return *text* as a JSON string.

    >>> print(quote('a "b" <c>\n'), quote("é"), quote("\udc80"))
    "a \"b\" \u003cc\u003e\n" "é" "\ufffd"
    """
    return f'"{_ESCAPED.sub(_escape, text)}"'


def quote_json(text: str) -> str:
    """Return *text*, which is JSON itself, as a JSON string: the same as `quote`, and much faster."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    return r"\ufffd" if char >= "\ud800" else f"\\u{ord(char):04x}"


def parse_json(text: str) -> Value:
    r"""Return the value in *text*.

    >>> parse_json('{"a": [1.50, null], "a": "\\ud800"}')
    (('a', [Number(text='1.50'), None]), ('a', '\ud800'))
    >>> parse_json('{"a": 1')
    Traceback (most recent call last):
    pinfold.errors.ParseError: Expecting ',' delimiter at column 8 of "{"a": 1"
    """
    if not text:
        raise ParseError("expected JSON, found nothing")
    if text.count(",") > _MOST_COMMAS:  # there is one before every value but the first
        raise ParseError(f"more than {_MOST_COMMAS:,} commas; a checkpoint has a few for each container")
    try:
        value: Value = json.loads(
            text, object_pairs_hook=tuple, parse_int=Number, parse_float=Number, parse_constant=_refuse
        )
    except json.JSONDecodeError as error:
        raise ParseError(error.msg.removesuffix(" at"), text=text, at=error.pos) from error
    except RecursionError as error:
        # differs: Go stops at 10,000 levels, Python at about 1,000; a checkpoint has 4.
        raise ParseError("nested too deeply") from error
    return value


def _refuse(constant: str) -> NoReturn:
    raise ParseError(f"{constant} is not JSON")


def fields(value: Value, names: Collection[str]) -> Iterator[tuple[str, Value]]:
    """Return the fields of an object with one of these *names*, in any case; null has none."""
    if value is None:
        return
    if not isinstance(value, tuple):
        raise _expected("an object", value)
    known = {name.casefold(): name for name in names}
    for name, member in value:
        if (folded := name.casefold()) in known:
            yield known[folded], member


def text_field(value: Value, old: str = "") -> str:
    """Return the text of a field that was *old* before."""
    if value is None:
        return old
    if not isinstance(value, str):
        raise _expected("text", value)
    return repaired(value)


def natural_field(value: Value, old: int = 0) -> int:
    """Return the number of a field that was *old* before: 64 bits, without sign, dot or exponent."""
    if value is None:
        return old
    if not isinstance(value, Number) or not _NATURAL.fullmatch(value.text) or int(value.text) > _MAX_NATURAL:
        raise _expected("a number from 0 to 18446744073709551615", value)
    return int(value.text)


def map_field(value: Value, old: dict[str, _T] | None, item: Callable[[Value], _T]) -> dict[str, _T] | None:
    """Return the mapping of a field that was *old* before: with the new items in it; None after null."""
    if value is None:
        return None
    if not isinstance(value, tuple):
        raise _expected("an object", value)
    mapping = {} if old is None else old
    for name, member in value:
        try:
            mapping[repaired(name)] = item(member)
        except ParseError as error:
            raise error.within(excerpt(name)) from error
    return mapping


def repaired(text: str) -> str:
    """Return *text* with U+FFFD for each half of a surrogate pair, as from an escape or a byte that is not UTF-8."""
    return text if text.isascii() else _HALF_PAIR.sub("\ufffd", text)


def _expected(what: str, value: Value) -> ParseError:
    return ParseError(f"expected {what}, found {_shown(value)}")


def _shown(value: Value) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case Number(text):
            return excerpt(text)[1:-1]
        case str():
            return excerpt(value)
        case list():
            return "an array"
        case _:
            return "an object"
