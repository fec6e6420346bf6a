"""`pinfold top`: the machine map, coloured by owner, as things change."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pinfold.cli.asking.client import Client, NoDaemon, add_socket
from pinfold.cli.get import format_rows
from pinfold.cli.output.terminal import look
from pinfold.core.machine.cpuset import CPUSet
from pinfold.formats.machine.topologyjson import parse_topology_json
from pinfold.render.columns import printable
from pinfold.render.map import format_map

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"
_COLOURS: Final = ("42;30", "44;37", "45;37", "46;30", "43;30", "41;37")
_RESERVED: Final = "2"
_SHORTEST, _LONGEST = 0.1, 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold top`."""
    add_socket(parser)
    parser.add_argument("--interval", type=_interval, default=1.0, metavar="SECONDS", help="how often (default 1)")
    parser.add_argument("--once", action="store_true", help="print it once and end")


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not _SHORTEST <= seconds <= _LONGEST:  # nor is nan
        problem = f"{text[:40]!r} is no number of seconds from {_SHORTEST} to {_LONGEST:.0f}"
        raise argparse.ArgumentTypeError(problem)
    return seconds


def run(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; once if stdout is not a terminal."""
    client = Client.of(args)
    if args.once or not sys.stdout.isatty():
        print(draw(client))
        return 0
    while True:
        height = shutil.get_terminal_size().lines
        print(_HOME_AND_CLEAR + "\n".join(glance(client).splitlines()[: height - 1]), end="", flush=True)
        time.sleep(args.interval)


def glance(client: Client) -> str:
    """Return the node as text, or that there is no daemon; a restarted daemon is found again."""
    try:
        return draw(client)
    except NoDaemon as error:
        return f"no daemon; waiting\n\n{printable(str(error))}"


def draw(client: Client) -> str:
    """Return the node as text: its pools, its containers, and the map."""
    # The machine too is read every time: CPUs go offline and come back.
    topology = parse_topology_json(json.dumps(client.get("/v1/topology")))
    node, rows = client.get("/v1/node"), client.get("/v1/containers")
    owners = [row for row in rows if row["exclusive"]]
    styles = dict.fromkeys(CPUSet.parse(node["pools"]["reserved"]), _RESERVED)
    for number, row in enumerate(owners):
        styles |= dict.fromkeys(CPUSet.parse(row["cpus"]), _COLOURS[number % len(_COLOURS)])
    drawn = format_map(topology, replace(look(sys.stdout), styles=styles))
    return f"{_pools(node['pools'], topology)}\n\n{_owners(rows)}\n\n{drawn}"


def _pools(pools: dict[str, str], topology: Topology) -> str:
    shown = [f"{name} {cpus or '-'}" for name, cpus in pools.items() if name != "online"]
    apart = {"offline": topology.offline, "isolated": topology.isolated}
    return printable("  ".join([*shown, *(f"{name} {cpus}" for name, cpus in apart.items() if cpus)]))


def _owners(rows: list[dict[str, Any]]) -> str:  # Any: JSON of the daemon
    if not rows:
        return "no containers"
    cells = [
        {
            "namespace": row["namespace"],
            "pod": row["pod"],
            "container": row["container"],
            "cpus": row["cpus"] if row["exclusive"] else "shared",
            "state": row["state"],
        }
        for row in rows
    ]
    return format_rows(cells)
