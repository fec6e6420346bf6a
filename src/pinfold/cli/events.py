"""`pinfold events`: what happened, and what happens."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pinfold.cli.asking.client import Client, add_output, add_socket

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
    rows = client.lines("/v1/events?follow=true") if args.watch else client.get("/v1/events")
    for row in rows:
        print(json.dumps(row) if args.output == "json" else _line(row), flush=args.watch)
    return 0


def _line(row: dict[str, Any]) -> str:  # Any: JSON of the daemon
    stamp = time.strftime("%H:%M:%S", time.localtime(row["time"]))
    rest = " ".join(f"{name}={value}" for name, value in row.items() if name not in {"number", "time", "what"})
    return f"{stamp}  {row['what']:<12}  {rest}".rstrip()
