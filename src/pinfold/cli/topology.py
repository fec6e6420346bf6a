"""`pinfold topology`: a machine as a map, a table, JSON, a picture or lscpu's text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pinfold.cli.arguments import machine
from pinfold.cli.output.terminal import look
from pinfold.formats.machine.lscpu import format_lscpu
from pinfold.formats.machine.topologyjson import format_topology_json
from pinfold.render.machine.map import format_map
from pinfold.render.machine.svg import format_svg
from pinfold.render.machine.table import format_topology

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pinfold.core.machine.topology import Topology

_MOST_WARNINGS: Final = 10

_OUTPUTS: Final[Mapping[str, Callable[[Topology, str], str]]] = {
    "map": lambda topology, _: format_map(topology, look(sys.stdout)),
    "table": lambda topology, _: format_topology(topology),
    "json": lambda topology, _: format_topology_json(topology),
    "svg": format_svg,
    "lscpu": lambda topology, _: format_lscpu(topology),
}
_WITH_WARNINGS: Final = ("map", "table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold topology`."""
    machine.add_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=tuple(_OUTPUTS),
        default="map",
        help="map (the default), one row for each CPU, JSON, a picture, or text as of lscpu -p",
    )


def run(args: argparse.Namespace) -> int:
    """Print the machine."""
    topology = machine.read_machine(args)
    print(_OUTPUTS[args.output](topology, machine.machine_name(args)), end="", flush=True)
    if args.output in _WITH_WARNINGS:
        _warn(topology)
    return 0


def _warn(topology: Topology) -> None:
    for warning in topology.warnings[:_MOST_WARNINGS]:
        print(f"pinfold: warning: {warning}", file=sys.stderr)
    more = len(topology.warnings) - _MOST_WARNINGS
    if more > 0:
        print(f"pinfold: warning: and {more} more; see -o json", file=sys.stderr)
