"""`pinfold top`: the machine map, coloured by owner, as things change."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pinfold.cli.client import Client, add_socket
from pinfold.cli.get import table
from pinfold.cli.terminal import look
from pinfold.core.cpuset import CPUSet
from pinfold.formats.topologyjson import parse_topology_json
from pinfold.formats.topologymap import format_map

if TYPE_CHECKING:
    import argparse

    from pinfold.core.topology import Topology

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"
_COLOURS: Final = ("42;30", "44;37", "45;37", "46;30", "43;30", "41;37")
_RESERVED: Final = "2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold top`."""
    add_socket(parser)
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="how often (default 1)")
    parser.add_argument("--once", action="store_true", help="print it once and end")


def run(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; once if this is no terminal."""
    client = Client.of(args)
    topology = parse_topology_json(json.dumps(client.get("/v1/topology")))
    once = args.once or not sys.stdout.isatty()
    while True:
        picture = draw(client, topology)
        if once:
            print(picture)
            return 0
        height = shutil.get_terminal_size().lines
        print(_HOME_AND_CLEAR + "\n".join(picture.splitlines()[: height - 1]), end="", flush=True)
        time.sleep(max(args.interval, 0.1))


def draw(client: Client, topology: Topology) -> str:
    """Return the node as text: its pools, who is where, and the map."""
    node, rows = client.get("/v1/node"), client.get("/v1/containers")
    owners = [row for row in rows if row["exclusive"]]
    styles = dict.fromkeys(CPUSet.parse(node["pools"]["reserved"]), _RESERVED)
    for number, row in enumerate(owners):
        styles |= dict.fromkeys(CPUSet.parse(row["cpus"]), _COLOURS[number % len(_COLOURS)])
    drawn = format_map(topology, replace(look(sys.stdout), styles=styles))
    pools = "  ".join(f"{name} {cpus or '-'}" for name, cpus in node["pools"].items() if name != "online")
    return f"{pools}\n\n{_owners(rows)}\n\n{drawn}"


def _owners(rows: list[dict[str, Any]]) -> str:  # Any: JSON of the daemon
    cells = [
        [row["pod"], row["container"], row["cpus"] if row["exclusive"] else "shared", row["state"]] for row in rows
    ]
    return table(["POD", "CONTAINER", "CPUS", "STATE"], cells) if cells else "no containers"
