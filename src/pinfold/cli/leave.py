"""`pinfold leave`: give every group its CPUs back, through the daemon, which then ends, or without one."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

from pinfold.cli.asking.client import Client, NoDaemon, add_output, add_socket
from pinfold.errors import ConfigError
from pinfold.settings.places import find_state

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold leave`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument("--state-dir", metavar="DIR", help="the daemon's state directory, if it does not run")
    parser.add_argument(
        "--keep-owners",
        action="store_true",
        help="leave containers on their exclusive CPUs: a kubelet with the static policy goes on with them",
    )


def run(args: argparse.Namespace) -> int:
    """Ask the daemon, or do it here if none answers."""
    try:
        cpus = Client.of(args).post("/v1/leave", {"keep_owners": args.keep_owners})["cpus"]
    except NoDaemon:
        cpus = str(_without_daemon(args))
    if args.output == "json":
        print(json.dumps({"cpus": cpus}))
        return 0
    print(f"every group has CPUs {cpus} again" if cpus else "no group to give back: no daemon has changed any")
    return 0


def _without_daemon(args: argparse.Namespace) -> object:
    from pinfold.daemon.cleanup import clean_up  # noqa: PLC0415 - only needed where no daemon answers
    from pinfold.daemon.directory import StateDirectory  # noqa: PLC0415

    directory = find_state(os.environ, os.geteuid(), args.state_dir).path
    if args.state_dir is not None and not directory.is_dir():  # a misspelt one must not look like success
        raise ConfigError(f"--state-dir {directory}: there is no such directory; name that of the daemon")
    with StateDirectory(directory):
        return asyncio.run(clean_up(directory, keep_owners=args.keep_owners))
