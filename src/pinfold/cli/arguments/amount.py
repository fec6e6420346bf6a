"""The option --cpus: how many CPUs, and how many a container may share, as users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    import argparse


def add_amount(parser: argparse.ArgumentParser) -> None:
    """Add --cpus and --qos."""
    parser.add_argument("--cpus", default="1", metavar="N", help="CPUs of its own: a whole number (default 1)")
    parser.add_argument(
        "--qos",
        choices=("guaranteed", "burstable", "besteffort"),
        default="guaranteed",
        help="guaranteed: CPUs of its own; burstable, besteffort: in the shared pool, --cpus is its share",
    )


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """Add --near and --local-memory."""
    parser.add_argument(
        "--near",
        action="append",
        default=[],
        metavar="DEVICE",
        help="CPUs at the NUMA node of this device: eth0, nvme0n1, gpu0 or 0000:3b:00.0; can be given again",
    )
    parser.add_argument(
        "--local-memory", action="store_true", help="memory of the NUMA nodes of its CPUs only, where there are cgroups"
    )


def wishes_body(args: argparse.Namespace) -> dict[str, object]:
    """Return the wishes as the daemon wants them, or raise what is wrong with them."""
    if args.qos != "guaranteed" and (args.near or args.local_memory):
        raise ParseError(f"--near and --local-memory are for CPUs of its own; leave out --qos {args.qos}")
    return {"near": args.near, "local_memory": args.local_memory}


def amount_body(args: argparse.Namespace) -> dict[str, object]:
    """Return the amount as the daemon wants it, or raise what is wrong with it."""
    shared = args.qos != "guaranteed"
    try:
        milli = Quantity.parse(args.cpus).milli
    except ParseError as error:
        said = f"--cpus: {excerpt(args.cpus)} is not a number of CPUs; expected 2, 0.5 or 500m"
        raise ParseError(said) from error
    if not shared and (milli < 1000 or milli % 1000):  # noqa: PLR2004 - one CPU
        problem = (
            f"--cpus {args.cpus}: CPUs of its own are whole, 1 or more; for a share of the pool add --qos burstable"
        )
        raise ParseError(problem)
    return {"milli": 0 if args.qos == "besteffort" else milli, "shared": shared}
