"""`pinfold state`: look at the files in which a daemon keeps its State, check, repair and move them.

Nothing is written without --write; the differences are shown first. While a daemon runs, nothing can be written.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.cli.asking.client import add_output
from pinfold.daemon.directory import StateDirectory
from pinfold.errors import ParseError, PinfoldError
from pinfold.manager.saving.upkeep import examine, kept_aside, look_at
from pinfold.node.statefile import MAX_FILE, keep_aside, read_state_file, write_atomically
from pinfold.settings.places import find_state

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pinfold.manager.saving.upkeep import FoundFile

DAMAGED: Final = 1
_FORMAT: Final = "pinfold-state-1"
_ACTIONS: Final = {
    "show": "show what the files hold",
    "verify": "check the files; exit code 1 if one is damaged",
    "repair": "keep damaged files aside, and write again what can be used of them",
    "export": "write the files as one JSON text",
    "import": "replace the files by those of an export",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold state`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, said in _ACTIONS.items():
        action = actions.add_parser(name, help=said, description=said, allow_abbrev=False)
        action.add_argument("--state-dir", metavar="DIR", help="the daemon's state directory")
        if name in {"show", "verify"}:
            add_output(action)
        if name in {"export", "import"}:
            stream = "output" if name == "export" else "input"
            action.add_argument("file", metavar="FILE", nargs="?", default="-", help=f"- (default): standard {stream}")
        if name in {"repair", "import"}:
            action.add_argument("--write", action="store_true", help="do it; without this, only show the differences")


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    directory = find_state(os.environ, os.geteuid(), args.state_dir).path
    if not directory.is_dir():
        raise PinfoldError(f"there is no state directory {directory}; name one with --state-dir")
    match args.action:
        case "show":
            return _show(directory, as_json=args.output == "json")
        case "verify":
            return _verify(directory, as_json=args.output == "json")
        case "repair":
            return _repair(directory, write=args.write)
        case "export":
            return _export(directory, args.file)
    return _import(directory, args.file, write=args.write)


def _show(directory: Path, *, as_json: bool) -> int:
    if as_json:
        print(_json(look_at(directory)))
        return 0
    print("\n".join(_lines(look_at(directory))) or "no State has been saved")
    for name in kept_aside(directory):
        print(f"{name}: not used any more; remove it if you do not need it")
    return 0


def _json(found: Mapping[str, FoundFile]) -> str:
    files = {name: {"problem": str(one.problem or ""), "lines": list(one.lines)} for name, one in found.items()}
    return json.dumps(files, indent=2)


def _verify(directory: Path, *, as_json: bool) -> int:
    found = look_at(directory)
    lines = [f"{name}: {f'damaged: {one.problem}' if one.problem else 'sound'}" for name, one in found.items()]
    print(_json(found) if as_json else "\n".join(lines) or "no State has been saved")
    return DAMAGED if any(one.problem for one in found.values()) else 0


def _repair(directory: Path, *, write: bool) -> int:
    found = look_at(directory)
    damaged = {name: one for name, one in found.items() if one.problem}
    if not damaged:
        print("nothing to repair")
        return 0
    for name, one in damaged.items():
        print(f"{name}: damaged: {one.problem}")
    after = {name: one.repaired for name, one in found.items() if one.repaired is not None}
    _show_difference(found, examine(after))
    if write:
        with StateDirectory(directory):
            for name in damaged:
                print(f"{name}: kept as {_aside(directory / name)}")
            _write(directory, {name: after[name] for name in damaged if name in after})
    _say_if_not_written(write=write)
    return 0


def _export(directory: Path, file: str) -> int:
    files = {name: read_state_file(directory / name) for name in look_at(directory)}
    text = json.dumps({"format": _FORMAT, "files": files}, indent=1) + "\n"
    if file == "-":
        sys.stdout.write(text)
    else:
        write_atomically(Path(file), text.encode())
    return 0


def _import(directory: Path, file: str, *, write: bool) -> int:
    files = _read_export(file)
    after = examine(files)
    for name, one in after.items():
        if one.problem:
            raise PinfoldError(f"{file}: {name} is damaged: {one.problem}")
    _show_difference(look_at(directory), after)
    if write:
        with StateDirectory(directory):
            _write(directory, files)
    _say_if_not_written(write=write)
    return 0


def _read_export(file: str) -> dict[str, str]:
    text = sys.stdin.read(MAX_FILE) if file == "-" else read_state_file(Path(file))
    if text is None:
        raise ParseError("there is no such file", where=file)
    try:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ParseError(f"its format is not {_FORMAT}", where=file)
        return {str(name): str(content) for name, content in found["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ParseError(f"is not an export of pinfold state: {error}", where=file) from error


def _lines(found: Mapping[str, FoundFile]) -> list[str]:
    return [f"{name}: {line}" for name, one in found.items() for line in one.lines]


def _show_difference(before: Mapping[str, FoundFile], after: Mapping[str, FoundFile]) -> None:
    lines = [*difflib.unified_diff(_lines(before), _lines(after), "now", "then", lineterm="", n=0)]
    print("\n".join(lines) or "no difference in what can be read")


def _say_if_not_written(*, write: bool) -> None:
    if not write:
        print("nothing is written yet: add --write, while no daemon runs")


def _aside(path: Path) -> str:
    aside = keep_aside(path)
    if aside is None:
        raise PinfoldError(f"{path}: cannot be renamed")
    return aside.name


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        write_atomically(directory / name, text.encode("utf-8", "surrogateescape"))
        print(f"{name}: written")
