"""A wrong call in plain words: what was wrong, what is allowed, and where to read on. Imported only after a mistake."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.errors import did_you_mean, excerpt

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_MISSING: Final = "the following arguments are required: "
_CHOICE: Final = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_VALUE: Final = re.compile(r"argument (\S+): invalid (.+) value: '(.*)'", re.DOTALL)
_NO_VALUE: Final = re.compile(r"argument (\S+): expected (?:one argument|at least one argument)")
_OTHER: Final = re.compile(r"argument (\S+): (.*)", re.DOTALL)
_KINDS: Final = {"int": "a whole number", "float": "a number"}
_THINGS: Final = {"VERB": "verb", "shell": "shell"}
_MANY: Final = 12


def say_wrong(message: str, parser: argparse.ArgumentParser) -> str:
    """Return the message of argparse in plain words, then where to read on."""
    if message.startswith(_MISSING):
        return f"{parser.format_usage()}{parser.prog}: error: {message.removeprefix(_MISSING)}: missing\n"
    return f"{parser.prog}: error: {_plain(message, parser.prog)}\nsee: {parser.prog} --help\n"


def say_unknown(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return what is wrong with the words that the verb does not know, with the option that was probably meant."""
    first = unknown[0]
    if not first.startswith("-"):
        return f"unexpected: {excerpt(first)}"
    # Without the dashes, in which all options are alike.
    known = re.findall(r"--([a-z][-a-z]*)", parser.format_help())
    meant = did_you_mean(first.partition("=")[0].lstrip("-"), known).replace("mean ", "mean --")
    return f"unknown option {excerpt(first)[1:-1]}{meant}"


def innermost(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.ArgumentParser:
    """Return the parser of the action that was called, as of `config check`; *parser* if it has no actions."""
    for argument in parser._actions:  # noqa: SLF001 - argparse offers no other way
        if isinstance(argument.choices, dict):
            action: argparse.ArgumentParser = argument.choices.get(getattr(args, argument.dest), parser)
            return action
    return parser


def _plain(message: str, prog: str) -> str:
    if found := _CHOICE.fullmatch(message):
        word, known = excerpt(found[2]), re.findall(r"'([^']+)'", found[3])
        is_option = found[1].startswith("-")
        said = (
            f"{_name(found[1])}: {word} is unknown" if is_option else f"unknown {_THINGS.get(found[1], 'word')} {word}"
        )
        allowed = f"; allowed: {', '.join(known)}" if len(known) <= _MANY else f"; {prog} --help lists all"
        return f"{said}{did_you_mean(found[2], known) or allowed}"
    if found := _VALUE.fullmatch(message):
        return f"{_name(found[1])}: {excerpt(found[3])} is not {_KINDS.get(found[2], f'a {found[2]}')}"
    if found := _NO_VALUE.fullmatch(message):
        return f"{_name(found[1])}: a value must follow"
    if found := _OTHER.fullmatch(message):
        return f"{_name(found[1])}: {found[2]}"
    return message


def _name(argument: str) -> str:
    """Return the long form of an option."""
    return argument.rpartition("/")[2] if argument.startswith("-") else argument
