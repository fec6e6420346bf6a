"""`pinfold adopt`: CPUs of their own for a process that runs already, with all its threads, until it is deleted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pinfold.cli.arguments.amount import add_amount, add_wishes, amount_body, wishes_body
from pinfold.cli.asking.client import Client, add_output, add_socket
from pinfold.render.columns import named_cpus

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold adopt`."""
    add_socket(parser)
    add_output(parser)
    add_amount(parser)
    add_wishes(parser)
    parser.add_argument("--name", help="the name it is shown under (default: its process id)")
    parser.add_argument("pid", type=int, metavar="PID", help="the process")


def run(args: argparse.Namespace) -> int:
    """Ask the daemon to take the process over."""
    body = amount_body(args) | wishes_body(args) | {"pid": args.pid, "name": args.name or f"pid-{args.pid}"}
    answer = Client.of(args).post("/v1/adopt", body)
    for warning in answer.get("warnings", []):
        print(f"pinfold: warning: {warning}", file=sys.stderr)
    if args.output == "json":
        print(json.dumps({"name": body["name"], "pid": args.pid, **answer}, indent=2))
        return 0
    own = answer["cpus"].get("main")
    print(f"process {args.pid} {f'has {named_cpus(own)}' if own else 'runs in the shared pool'}")
    return 0
