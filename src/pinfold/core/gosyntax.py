"""Text as Go reads and prints it, as in the kubelet's errors."""

from __future__ import annotations

import re
from typing import Final

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_MAX_INT: Final = (1 << 63) - 1
_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def go_bool(text: str) -> bool:
    """Return *text* as a bool like Go's strconv.ParseBool; a ValueError has Go's words.

    >>> go_bool("yes")
    Traceback (most recent call last):
    ValueError: strconv.ParseBool: parsing "yes": invalid syntax
    """
    if text not in _TRUE | _FALSE:
        raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
    return text in _TRUE


def go_int(text: str) -> int:
    """Return *text* as an int like Go's strconv.Atoi; a ValueError has Go's words.

    >>> go_int("0x10")
    Traceback (most recent call last):
    ValueError: strconv.Atoi: parsing "0x10": invalid syntax
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    sign, digits = match.groups()
    limit = _MAX_INT + (sign == "-")
    # Check the length first: Python refuses to read very long numbers.
    if len(digits) > len(str(limit)) or int(digits) > limit:
        raise ValueError(f"strconv.Atoi: parsing {go_quote(text)}: value out of range")
    return -int(digits) if sign == "-" else int(digits)


def go_quote(text: str) -> str:
    r"""Return *text* as Go's %q prints it.

    >>> print(go_quote('a"b\n'))
    "a\"b\n"
    """
    return f'"{"".join(map(_go_escape, text))}"'


def _go_escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    if code < ord(" ") or char == "\x7f":
        return _ESCAPES.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the last code of four hex digits
