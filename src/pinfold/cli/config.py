"""`pinfold config`: check the daemon's settings, show those in force and their sources, print a sample file."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

from pinfold.cli.arguments.machine import read_machine
from pinfold.cli.asking.client import add_output
from pinfold.cli.output.terminal import unbroken
from pinfold.errors import PinfoldError, Problem
from pinfold.render.columns import Column, format_table
from pinfold.settings.flags import add_arguments as add_settings
from pinfold.settings.ownfile import with_own_file
from pinfold.settings.sample import format_sample
from pinfold.settings.settings import read_settings
from pinfold.settings.table import OWN_FILE, SETTINGS
from pinfold.settings.texts import as_text

if TYPE_CHECKING:
    import argparse

    from pinfold.core.machine.topology import Topology
    from pinfold.settings.settings import Settings

_ACTIONS: Final = {
    "check": "check the settings against this machine, as `serve` would with the same flags; report all problems",
    "show": "show every setting in force, and where it comes from",
    "sample": "print a file with every setting, explained and commented out",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold config`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, said in _ACTIONS.items():
        action = actions.add_parser(name, help=said, description=said, allow_abbrev=False)
        if name == "show":
            action.add_argument("--changed", action="store_true", help="only settings that do not have their default")
            add_output(action)
        if name != "sample":
            action.add_argument("file", nargs="?", metavar="FILE", help="the same as --settings FILE")
            add_settings(action)


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.action == "sample":
        print(format_sample(), end="")
        return 0
    if args.file is not None:
        setattr(args, OWN_FILE, args.file)
        args.file = None  # it is not a machine's, as the --from of other verbs is
    merged = with_own_file(args, os.environ, os.geteuid())
    chosen = read_settings(merged, _machine(merged), environment=os.environ, uid=os.geteuid())
    return _show(chosen, merged) if args.action == "show" else _check(chosen, merged)


def _machine(merged: argparse.Namespace) -> Topology | None:
    """Return the machine; if it cannot be read, that is one more problem beside those of the other settings."""
    try:
        return read_machine(merged)
    except PinfoldError as error:
        merged.problems.append(Problem(str(error)))
        return None


def _check(chosen: Settings, merged: argparse.Namespace) -> int:
    for warning in chosen.warnings:
        print(f"warning: {warning}")
    files = " and ".join(filter(None, (merged.own_file, merged.config_file))) or "no file, all defaults"
    count = len(merged.given.keys() - {OWN_FILE})
    print(f"{files}: no problem; {count} setting{'' if count == 1 else 's'} given")
    return 0


def _show(chosen: Settings, merged: argparse.Namespace) -> int:
    rows = [
        (row.key, str(getattr(merged, name) or as_text(row, chosen.values[name])), chosen.sources[name])
        for name, row in SETTINGS.items()
        if name in chosen.values and not (merged.changed and chosen.sources[name] == "default")
    ]
    if merged.output == "json":
        print(json.dumps({key: {"value": value, "source": source} for key, value, source in rows}, indent=2))
    else:
        columns = [Column("SETTING"), Column("VALUE", least=20), Column("FROM")]
        print(format_table(columns, rows, unbroken(sys.stdout).width))
    return 0
