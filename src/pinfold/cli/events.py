"""`pinfold events`: what happened, and what happens."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from pinfold.cli.asking.client import Client, add_output, add_socket
from pinfold.cli.output.terminal import unbroken
from pinfold.render.history import format_entry

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold events`."""
    add_socket(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="keep printing new events")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the events the daemon still knows, a line each."""
    client = Client.of(args)
    shape = unbroken(sys.stdout)
    rows = client.lines("/v1/events?follow=true") if args.watch else client.get("/v1/events")
    for row in rows:
        print(json.dumps(row) if args.output == "json" else format_entry(row, _clock, shape), flush=args.watch)
    return 0


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
