"""`pinfold repack`: move running containers together, so that they use fewer NUMA nodes, caches and cores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pinfold.cli.asking.client import Client, add_output, add_socket

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold repack`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print the moves that it would make now")


def run(args: argparse.Namespace) -> int:
    """Ask the daemon, and print the moves in order."""
    moves = Client.of(args).post("/v1/repack", {"dry_run": args.dry_run})["moves"]
    if args.output == "json":
        print(json.dumps(moves, indent=2))
        return 0
    for number, move in enumerate(moves, 1):
        print(f"{number}. {move['container']}: CPUs {move['before']} -> {move['cpus']} ({move['why']})")
    if not moves:
        print("no move would help now, or --repack-moves and --repack-dwell allow none yet")
    return 0
