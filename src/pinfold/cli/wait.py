"""`pinfold wait`: until pods run, or have ended."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Final

from pinfold.cli.arguments.names import PodArgument, add_namespace, pod_names
from pinfold.cli.asking.client import Client, add_output, add_socket
from pinfold.errors import PinfoldError, did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import FrameType

    from pinfold.cli.get import Rows

_RUNNING: Final = "running"


class WaitedTooLong(PinfoldError):  # noqa: N818 - the fact
    """The pods were not so in time."""

    exit_code = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold wait`."""
    add_socket(parser)
    add_output(parser)
    add_namespace(parser)
    parser.add_argument("pods", nargs="+", metavar="POD", help="also pod POD, pod/POD or NAMESPACE/POD")
    parser.add_argument(
        "--for", dest="until", choices=_UNTIL, default="ended", help="what to wait for (default: ended)"
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="give up after so long, with exit code 1")


def run(args: argparse.Namespace) -> int:
    """Look again after every event, until all pods are as they should be."""
    client, pods = Client.of(args), pod_names(args.pods, args.namespace)
    is_so = _UNTIL[args.until]
    waiting = pods
    if args.until != _RUNNING:
        _check_known(client, pods)
    try:
        if args.timeout is not None:
            signal.signal(signal.SIGALRM, _give_up)
            signal.setitimer(signal.ITIMER_REAL, max(args.timeout, 0.001))
        events = client.lines("/v1/events?follow=true")
        while waiting := [pod for pod in pods if not is_so(_containers(client, pod))]:
            if next(events, None) is None:
                raise PinfoldError("the daemon has ended")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeOver:
        names = ", ".join(pod.name for pod in waiting) if waiting else "the daemon"
        raise WaitedTooLong(f"waited {args.timeout:g} s for {names}; not {args.until} yet") from None
    if args.output == "json":
        print(json.dumps([{**pod._asdict(), "state": args.until} for pod in pods], indent=2))
    else:
        print(*(f"pod {pod.name}: {args.until}" for pod in pods), sep="\n")
    return 0


class _TimeOver(Exception):  # noqa: N818 - the fact
    """The alarm has rung."""


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeOver


def _check_known(client: Client, pods: list[PodArgument]) -> None:
    """Raise if a pod neither runs nor has run: the end of a misspelt pod has not come, it never will."""
    rows: Rows = [*client.get("/v1/containers"), *client.get("/v1/events")]
    known = {PodArgument(str(row["namespace"]), str(row["pod"])) for row in rows if "pod" in row and "namespace" in row}
    for pod in pods:
        if pod not in known:
            meant = did_you_mean(pod.name, (each.name for each in known))
            raise PinfoldError(f"there is no pod {pod.name} in namespace {pod.namespace}{meant}")


def _containers(client: Client, pod: PodArgument) -> Rows:
    rows: Rows = client.get("/v1/containers")
    return [row for row in rows if (row["namespace"], row["pod"]) == pod]


def _run(rows: Rows) -> bool:
    return any(row["state"] == _RUNNING for row in rows)


def _ended(rows: Rows) -> bool:
    return not rows


_UNTIL: Final[dict[str, Callable[[Rows], bool]]] = {_RUNNING: _run, "ended": _ended}
