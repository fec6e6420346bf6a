"""`pinfold shield`: keep the rest of the host off exclusive CPUs, or give it all CPUs back; what would move."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pinfold.cli.asking.client import Client, NoDaemon, add_output, add_socket
from pinfold.errors import ConfigError
from pinfold.render.columns import Column, format_table, printable
from pinfold.settings.places import find_state

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold shield`."""
    add_socket(parser)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("status", "on", "off"),
        default="status",
        help="until the daemon ends; default status",
    )
    add_output(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would move")
    parser.add_argument("--cpus", metavar="LIST", help="with `on --dry-run`: as if containers had these CPUs")
    parser.add_argument(
        "--state-dir", metavar="DIR", help="with `off`: the daemon's state directory, if it does not run"
    )


def run(args: argparse.Namespace) -> int:
    """Ask the daemon; `off` is done here if none answers."""
    if args.cpus is not None and not (args.what == "on" and args.dry_run):
        raise ConfigError("--cpus needs `on --dry-run`: the shield keeps the CPUs that containers have")
    try:
        answer = _ask(args)
    except NoDaemon:
        if args.what != "off" or args.dry_run:
            raise
        said = _off_without_daemon(args)
        print(json.dumps({"on": False, "said": said}) if args.output == "json" else said)
        return 0
    if args.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        _show(answer, args)
    return 0


def _ask(args: argparse.Namespace) -> dict[str, Any]:  # Any: JSON of the daemon
    client = Client.of(args)
    if args.what == "status":
        return dict(client.get("/v1/shield"))
    body: dict[str, object] = {"on": args.what == "on", "dry_run": args.dry_run}
    return dict(client.post("/v1/shield", body if args.cpus is None else {**body, "cpus": args.cpus}))


def _show(answer: dict[str, Any], args: argparse.Namespace) -> None:  # Any: JSON of the daemon
    moves = answer["moves"]
    if args.dry_run:
        rows = [[move["place"], move["cpus"] or "inherited", move["then"] or "inherited"] for move in moves]
        print(format_table([Column("PLACE"), Column("CPUS"), Column("THEN")], rows) if rows else "nothing would move")
        return
    state = "on" if answer["on"] else "off"
    where = f"the host is kept off CPUs {answer['cpus']}" if answer["cpus"] else "the host uses all CPUs"
    print(f"shield {state}: {where}" + (f"; {len(moves)} moved" if moves else ""))
    for why in answer["refused"]:
        print(printable(f"not moved: {why}"))


def _off_without_daemon(args: argparse.Namespace) -> str:
    from pinfold.daemon.cleanup import undo_shield  # noqa: PLC0415 - only needed where no daemon answers
    from pinfold.daemon.directory import StateDirectory  # noqa: PLC0415

    directory = find_state(os.environ, os.geteuid(), args.state_dir).path
    if not directory.is_dir():  # a misspelt one must not look like success
        raise ConfigError(f"--state-dir {directory}: there is no such directory; name that of the daemon")
    with StateDirectory(directory):
        report = undo_shield(directory)
    if report.refused:
        raise ConfigError(f"not given back: {'; '.join(one.why for one in report.refused)}")
    return f"shield off: {len(report.moved)} given back" if report.moved else "shield off: nothing to give back"
