"""The daemon's own file of settings, /etc/pinfold/config.yaml: keys are the names of flags, values their text.

A value in the file is treated like a flag that was given, and a flag on the command line overrides it. Reads the file;
does not know what a setting means: `settings` checks that.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError, Problem
from pinfold.formats.documents import MAX_SETTINGS, ValueRoom, parse_documents
from pinfold.formats.fields import Field, Problems, bare
from pinfold.formats.number import Number
from pinfold.settings.filetext import problems_before_end, read_settings_file
from pinfold.settings.places import find_own_file
from pinfold.settings.table import OWN_FILE, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.settings.table import Setting

KEYS: Final = {row.key: row for row in SETTINGS.values() if row.name != OWN_FILE}
"""The settings by their keys in the file."""
_ALIASES: Final = {flag[2:]: row.key for row in KEYS.values() for flag in row.flags if flag[2:] != row.key}


def with_own_file(arguments: argparse.Namespace, environment: Mapping[str, str], uid: int) -> argparse.Namespace:
    """Return *arguments* with the settings of the file; its problems are in `problems`, for `read_settings`."""
    merged = argparse.Namespace(**vars(arguments))
    merged.given, merged.problems, merged.own_file = dict(arguments.given), [], None
    place = find_own_file(environment, uid, arguments.settings_file)
    if place is None:
        return merged
    merged.own_file = str(place.path)
    try:
        text = read_settings_file(str(place.path))
    except ParseError as error:
        merged.problems.append(Problem(str(error)))
        return merged
    try:
        found, problems = parse_own_file(text, source=str(place.path))
    except ParseError as error:
        merged.problems += problems_before_end(error)
        return merged
    merged.problems += map(Problem, map(str, problems))
    for name, text in found.items():
        if getattr(arguments, name) is None and not (name == "socket" and environment.get("PINFOLD_SOCKET")):
            setattr(merged, name, Path(text) if name == "sysroot" else text)
            merged.given[name] = f"{place.path}: {SETTINGS[name].key}"
    return merged


class OwnFile(NamedTuple):
    """The texts of the settings in the file, by name, and the problems of the others."""

    texts: Mapping[str, str]
    problems: tuple[ParseError, ...] = ()


def parse_own_file(text: str, *, source: str) -> OwnFile:
    r"""Return the settings in a file and all problems of its keys; raise if it is not a file of settings.

    >>> parse_own_file("policy-options: {full-pcpus-only: true}\nlog-size: 5", source="config.yaml").texts
    {'policy_options': 'full-pcpus-only=true', 'log_size': '5'}
    >>> print(*parse_own_file("polcy: static", source="config.yaml").problems)
    config.yaml: polcy: unknown; did you mean policy?
    """
    problems = Problems()
    found = parse_documents(text, source=source, room=ValueRoom(MAX_SETTINGS), problems=problems)
    documents = [document for document in found if document.value is not None]
    if len(documents) > 1:
        raise ParseError(f"{len(documents)} documents; one is expected", where=source)
    if not documents:
        problems.check()
    root = Field(documents[0].value if documents else {}, problems, source)
    if not isinstance(root.value, dict):
        root.expected("a mapping of settings such as policy: static")
        problems.check()
    elif "kind" in root.value:
        root.child("kind").refuse("this is a Kubernetes file; name it in this file: config: /path/to/kubelet.yaml")
        problems.check()
    texts = {}
    for key in root.names:
        before = len(problems.found)
        if _is_known(root.child(key)):
            text = _text(root.child(key), KEYS[key])
            if len(problems.found) == before:
                texts[KEYS[key].name] = text
    return OwnFile(texts, tuple(problems.found))


def _is_known(field: Field) -> bool:
    key = str(field.key)
    if key in KEYS:
        return True
    known = [*KEYS, *_ALIASES]
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(key.replace("_", "-")[:64], known, n=1)
    meant = _ALIASES.get(close[0], close[0]) if close else ""
    field.refuse(f"unknown; did you mean {meant}?" if meant else "unknown; `pinfold config sample` lists all settings")
    return False


def _text(field: Field, row: Setting) -> str:
    """Return the value as a flag has it: pairs and lists are joined with commas."""
    match field.value:
        case dict() if row.is_pairs:
            return ",".join(_pairs(field))
        case list() if row.adds_up:
            return ",".join(_scalar(element) for element in field.parent.elements(row.key)) if field.parent else ""
        case dict() | list() | None:
            expected = "pairs of a name and a value" if row.is_pairs else "one value"
            field.expected(f"{expected} ({row.form})" if row.form else expected)
            return ""
    return _scalar(field)


def _pairs(field: Field) -> Iterator[str]:
    for name in field.names:
        text = _scalar(field.child(name))
        if set("=,") & set(name) or "," in text:
            field.child(name).refuse("a name or value of its own line must not contain = or ,")
        yield f"{name}={text}"


def _scalar(field: Field) -> str:
    match field.value:
        case bool():
            return "true" if field.value else "false"
        case Number():
            return bare(field.value.text)
    return field.as_text("a value")
