"""`pinfold demo benefit`: what a CPU of its own is worth on this host, measured."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.benefit.measure import full_plan, measure, short_plan
from pinfold.benefit.picture import picture
from pinfold.benefit.report import page, short
from pinfold.cli.asking.client import Client, NoDaemon, add_socket
from pinfold.errors import ParseError, excerpt
from pinfold.node.machine.sysfs import discover

if TYPE_CHECKING:
    import argparse

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold demo`."""
    add_socket(parser)
    parser.add_argument("what", choices=("benefit",), help="the benefit of exclusive CPUs, under several policies")
    parser.add_argument(
        "--short",
        action="store_true",
        help="a few seconds: one program, policies none and static, for root also the shield",
    )
    parser.add_argument("--on", metavar="NAME", help="write the report, its picture and all figures as benefit-NAME.*")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="where to write (default: here)")
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="rounds of each policy (default 5)")
    parser.add_argument("--seconds", metavar="S", type=float, default=1.5, help="seconds of each run (default 1.5)")


def run(args: argparse.Namespace) -> int:
    """Measure, then print the report or write its files."""
    _check(args)
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the daemons of the measurement are ended
        signal.signal(number, signal.default_int_handler)
    machine = discover(Path("/"))
    plan = short_plan(machine) if args.short else full_plan(machine, args.rounds, args.seconds)
    results = measure(plan, lambda line: print(line, file=sys.stderr, flush=True))
    if args.on is None:
        print(short(results) if args.short else page(results, "this host", "benefit.svg"))
        return 0
    stem = args.out / f"benefit-{args.on}"
    files = {
        ".md": page(results, args.on, f"{stem.name}.svg"),
        ".svg": picture(results),
        ".json": json.dumps([run._asdict() for run in results.runs]),
    }
    for suffix, text in files.items():
        stem.with_name(stem.name + suffix).write_text(text, encoding="utf-8")
    print(f"written: {', '.join(f'{stem}{suffix}' for suffix in files)}")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise what is wrong with the call, or a daemon that this would disturb."""
    if args.on is not None and not _NAME.fullmatch(args.on):
        raise ParseError(
            f"--on: {excerpt(args.on)} is not a name; allowed: letters, digits, '.', '_' and '-', at most 63"
        )
    if not 2 <= args.rounds <= 1000:  # noqa: PLR2004 - in the message
        raise ParseError(f"--rounds: {args.rounds} is not within 2 to 1000; one round has no spread")
    if not 0.1 <= args.seconds <= 600:  # noqa: PLR2004 - in the message
        raise ParseError(f"--seconds: {args.seconds:g} is not within 0.1 to 600")
    # Before minutes of measuring, which would be lost.
    if args.on is not None and not (args.out.is_dir() and os.access(args.out, os.W_OK)):
        raise ParseError(f"--out: {args.out} is not a directory that can be written to")
    with suppress(NoDaemon):
        Client.of(args).get("/v1/node")
        raise ParseError(f"{args.socket}: a daemon manages this host, and would be disturbed; measure while it is off")
