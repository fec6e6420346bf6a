"""`pinfold presets`: the built-in machines, all or those that match some words."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pinfold.cli.asking.client import add_output
from pinfold.cli.output.terminal import unbroken
from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.shapes import SHAPES
from pinfold.core.machine.summary import summary
from pinfold.errors import PinfoldError, did_you_mean
from pinfold.render.columns import Column, format_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold presets`."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only those that have all these words, e.g. epyc nosmt"
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print each machine: its name for --preset, and what it has."""
    rows = [{"name": name, "machine": summary(preset(name)), "shape": SHAPES.get(name, "")} for name in preset_names()]
    found = [row for row in rows if all(word.lower() in " ".join(row.values()).lower() for word in args.words)]
    if not found:
        known = {part for name in preset_names() for part in (name, *name.split("-"))}
        meant = "".join(did_you_mean(word.lower(), known) for word in args.words)
        raise PinfoldError(f"no built-in machine has {' '.join(args.words)}{meant or '; pinfold presets lists all'}")
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print(show(found, unbroken(sys.stdout).width))
    return 0


def show(rows: Iterable[Mapping[str, str]], width: int) -> str:
    """Return the machines as a table; a long description continues in the next line."""
    return format_table(
        [Column("NAME"), Column("MACHINE", least=18)], ([row["name"], row["machine"]] for row in rows), width
    )
