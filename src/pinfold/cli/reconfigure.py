"""`pinfold reconfigure`: go on under another configuration; or only print what that would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinfold.cli.asking.client import Client, add_output, add_socket

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold reconfigure`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the new KubeletConfiguration file; without it the daemon reads its own files again",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print which containers would keep their CPUs")
    parser.add_argument(
        "--allow-moves",
        action="store_true",
        help="change the CPUs of running containers where the new configuration requires it (policy static)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask the daemon, and print what becomes of each container with CPUs of its own."""
    asked: dict[str, object] = {"dry_run": args.dry_run, "allow_moves": args.allow_moves}
    if args.config is not None:
        asked["config"] = str(Path(args.config).absolute())
    answer = Client.of(args).post("/v1/reconfigure", asked)
    if args.output == "json":
        print(json.dumps(answer))
        return 0
    for row in answer["containers"]:
        print(f"{row['container']}: {_fate(row)}")
    kept = sum(row["before"] == row["after"] for row in answer["containers"])
    count = len(answer["containers"])
    done = "would go on" if args.dry_run else "goes on"
    print(f"the daemon {done} with policy {answer['policy']}; {kept} of {count} containers keep their CPUs")
    if args.config is not None and not args.dry_run:
        print(f"a daemon that is started again needs --config {asked['config']} too")
    return 0


def _fate(row: dict[str, Any]) -> str:  # Any: JSON of the daemon
    if row["after"] is None:
        return f"CPUs {row['before']} -> shared" + (f" ({row['why']})" if row["why"] else "")
    return f"keeps CPUs {row['before']}" if row["before"] == row["after"] else f"CPUs {row['before']} -> {row['after']}"
