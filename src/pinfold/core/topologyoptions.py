"""The Topology Manager's policies and options as users write them, checked with the kubelet's words.

Knows nothing of hints.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX_NODES: Final = 8
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_MAX_INT: Final = (1 << 63) - 1
_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


class TopologyPolicy(StrEnum):
    """What the Topology Manager demands of the merged hint."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyOption(StrEnum):
    """The Topology Manager's options."""

    PREFER_CLOSEST = "prefer-closest-numa-nodes"
    MAX_NODES = "max-allowable-numa-nodes"


class TopologyOptions(NamedTuple):
    """The options' values."""

    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


def read_options(options: Mapping[str, str]) -> tuple[TopologyOptions, list[Problem]]:
    """Return the values of *options*, and what is wrong with them; a wrong one keeps its default.

    >>> read_options({"max-allowable-numa-nodes": "16"})
    (TopologyOptions(prefer_closest=False, max_nodes=16), [])
    >>> print(*read_options({"prefer-closest-numa": "true"})[1])
    unknown Topology Manager Policy option: "prefer-closest-numa"; known: prefer-closest-numa-nodes, ...
    """
    values = TopologyOptions()
    problems: list[Problem] = []
    for name, text in options.items():
        if name == TopologyOption.PREFER_CLOSEST:
            values = values._replace(prefer_closest=_read_closest(text, problems))
        elif name == TopologyOption.MAX_NODES:
            values = values._replace(max_nodes=_read_max_nodes(text, problems))
        else:
            said = f"unknown Topology Manager Policy option: {go_quote(name)}"
            problems.append(Problem(said, f"known: {', '.join(TopologyOption)}"))
    return values, problems


def go_bool(text: str) -> bool:
    """Return what Go's strconv.ParseBool makes of *text*; a ValueError has its words.

    >>> go_bool("yes")
    Traceback (most recent call last):
    ValueError: strconv.ParseBool: parsing "yes": invalid syntax
    """
    if text not in _TRUE | _FALSE:
        raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
    return text in _TRUE


def go_int(text: str) -> int:
    """Return what Go's strconv.Atoi makes of *text*; a ValueError has its words.

    >>> go_int("0x10")
    Traceback (most recent call last):
    ValueError: strconv.Atoi: parsing "0x10": invalid syntax
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    sign, digits = match.groups()
    limit = _MAX_INT + (sign == "-")
    # The length first: Python refuses to read very long numbers.
    if len(digits) > len(str(limit)) or int(digits) > limit:
        raise ValueError(f"strconv.Atoi: parsing {go_quote(text)}: value out of range")
    return -int(digits) if sign == "-" else int(digits)


def go_quote(text: str) -> str:
    r"""Return *text* as Go's %q prints it.

    >>> print(go_quote('a"b\n'))
    "a\"b\n"
    """
    return f'"{"".join(map(_go_escape, text))}"'


def _read_closest(text: str, problems: list[Problem]) -> bool:
    try:
        return go_bool(text)
    except ValueError as error:
        said = f'bad value for option "{TopologyOption.PREFER_CLOSEST}": {error}'
        problems.append(Problem(said, "allowed: true, false"))
        return False


def _read_max_nodes(text: str, problems: list[Problem]) -> int:
    name = TopologyOption.MAX_NODES
    try:
        count = go_int(text)
    except ValueError as error:
        said = f'unable to convert policy option to integer "{name}": {error}'
        problems.append(Problem(said, f"allowed: {DEFAULT_MAX_NODES} and above"))
        return DEFAULT_MAX_NODES
    if count < DEFAULT_MAX_NODES:
        problems.append(Problem(f'the minimum value of "{name}" should not be less than {DEFAULT_MAX_NODES}'))
    return max(count, DEFAULT_MAX_NODES)


def _go_escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    if code < ord(" ") or char == "\x7f":
        return _ESCAPES.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the last code of four hex digits
