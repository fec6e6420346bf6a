"""`pinfold explain`: why a container has these CPUs, or none, or was refused, and what would help."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pinfold.cli.arguments.when import show_when
from pinfold.cli.asking.client import add_output
from pinfold.cli.asking.records import add_records, find_records
from pinfold.cli.output.terminal import look
from pinfold.core.events.entries import Subject
from pinfold.render.explanation import format_explanation

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold explain`."""
    parser.add_argument("container", metavar="POD/CONTAINER", help="also NAMESPACE/POD/CONTAINER, or POD")
    add_output(parser)
    add_records(parser)


def run(args: argparse.Namespace) -> int:
    """Print why."""
    Subject.parse(args.container)
    records = find_records(args)
    found = {**records.explain(args.container), "failed": records.failure(args.container)}
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print(format_explanation(found, show_when, look(sys.stdout)))
    return 0
