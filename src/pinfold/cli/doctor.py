"""`pinfold doctor`: what this host offers and lacks, each line ok, warn or fail, with its fix."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.cli.asking.client import add_output
from pinfold.cli.output.terminal import look
from pinfold.node.doctor import Finding, Health, examine
from pinfold.render.columns import GREEN, RED, YELLOW, join_parts
from pinfold.render.machine.canvas import Canvas, wrap

if TYPE_CHECKING:
    import argparse

    from pinfold.render.machine.canvas import Look

_STYLES: Final = {Health.OK: GREEN, Health.WARN: YELLOW, Health.FAIL: RED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold doctor`."""
    parser.add_argument("--sysroot", metavar="DIR", type=Path, default=Path("/"), help="examine another root directory")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if one of them is a failure."""
    found = list(examine(args.sysroot, os.geteuid()))
    if args.output == "json":
        print(json.dumps([finding._asdict() for finding in found], indent=2))
    else:
        print(_format(found, look(sys.stdout)))
    return int(any(finding.health is Health.FAIL for finding in found))


def _format(found: list[Finding], shown: Look) -> str:
    canvas = Canvas()
    for health, what, fix in found:
        canvas.append(wrap(f"{health:<4}  {what}", shown.width, indent=6), _STYLES[health])
        if fix:
            canvas.append(wrap(f"      fix: {fix}", shown.width, indent=6))
    return join_parts([canvas], shown)
