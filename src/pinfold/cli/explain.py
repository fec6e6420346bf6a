"""`pinfold explain`: why a container has these CPUs, or none, or was refused, and what would help."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pinfold.cli.arguments.names import add_namespace, container_name
from pinfold.cli.arguments.when import show_when
from pinfold.cli.asking.client import add_output
from pinfold.cli.asking.records import add_records, find_records
from pinfold.cli.output.terminal import look
from pinfold.core.events.entries import Subject
from pinfold.errors import PinfoldError
from pinfold.render.explanation import format_explanation

if TYPE_CHECKING:
    import argparse

    from pinfold.cli.asking.records import Data, Records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold explain`."""
    parser.add_argument("container", metavar="POD[/CONTAINER]", help="also NAMESPACE/POD[/CONTAINER]")
    add_namespace(parser, "any")
    add_output(parser)
    add_records(parser)


def run(args: argparse.Namespace) -> int:
    """Print why, for each container of a pod."""
    asked = container_name(args.container, args.namespace, None)
    records = find_records(args)
    names = records.containers(Subject.parse(asked)) or [asked]
    found = [_explain(records, name) for name in names]
    if args.output == "json":
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    else:
        print(*(format_explanation(one, show_when, look(sys.stdout)) for one in found), sep="\n\n")
    return 0


def _explain(records: Records, name: str) -> Data:
    """Return the decision on a container, and how it failed; one that shared and has failed has only the latter."""
    failed = records.failure(name)
    try:
        return {**records.explain(name), "failed": failed}
    except PinfoldError:
        if failed is None:
            raise
        why = "it shared CPUs, and has ended"
        return {"container": name, "cpus": None, "why": why, "refusal": None, "failed": failed}
