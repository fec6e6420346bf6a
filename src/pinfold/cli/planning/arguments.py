"""The options of `pinfold plan`: the machines, the settings of `serve` that decide about CPUs, and the questions.

Where a setting is the daemon's, its row in `settingstable` says how it is called and what it means.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.shapes import SHAPES
from pinfold.errors import PinfoldError, excerpt
from pinfold.settings.table import CPU_MANAGER, SETTINGS, TOPOLOGY_MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.settings.table import Setting

OUTPUTS: Final = ("table", "json", "yaml", "svg", "html")
_NOT_PLANNED: Final = ("reconcile_period", "cfs_quota", "cfs_period")
_EXAMPLE: Final = SHAPES["epyc-7303-2s"]
_MOST_ORDERS: Final = 1_000_000
_SEED: Final = 1


class BadQuestion(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """Flags that contradict each other, or do not describe a plan."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold plan`."""
    parser.add_argument("pods", nargs="*", metavar="PODS", help="Kubernetes YAML or JSON with pods; - is stdin")
    parser.add_argument(
        "-o", "--output", choices=OUTPUTS, default="table", help="table (the default), JSON, YAML, a picture or a page"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with 1 if a field is misspelt, or a container asks for whole CPUs but will share",
    )
    _add_machine(parser)
    _add_settings(parser, "CPU Manager", (row for row in CPU_MANAGER if row.name not in _NOT_PLANNED))
    _add_settings(parser, "Topology Manager", TOPOLOGY_MANAGER)
    _add_start(parser)
    _add_questions(parser)


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine", "this host, unless one of these is given")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--sysroot", metavar="DIR", type=Path, help="root directory of another machine: DIR/sys is read"
    )
    source.add_argument("--from", metavar="FILE", dest="file", help="lscpu -p, hwloc XML, cAdvisor or pinfold JSON")
    source.add_argument(
        "--preset",
        metavar="NAME|SHAPE",
        action="append",
        default=[],
        help=f"a built-in machine, or a shape such as {_EXAMPLE}; several are compared",
    )
    group.add_argument(
        "--as",
        dest="view",
        choices=("pinfold", "kubelet"),
        help="whose decisions: always sound ones (the default), or the kubelet's, with a warning where they are not; "
        "with --live the daemon's",
    )
    group.add_argument(
        "--devices",
        metavar="FILE",
        help="devices, memory and hugepages of each NUMA node, as YAML; sysfs reads those of this host or --sysroot",
    )
    group.add_argument(
        "--local-memory",
        action="store_true",
        help="as serve --local-memory: pods get memory of the NUMA nodes of their CPUs only; needs --devices",
    )
    group.add_argument("--config", dest="config_file", metavar="FILE", help=SETTINGS["config_file"].meaning)


def _add_settings(parser: argparse.ArgumentParser, title: str, rows: Iterable[Setting]) -> None:
    group = parser.add_argument_group(title)
    for row in rows:
        default = f" (default: {row.default})" if row.default else ""
        text = f"{row.meaning}{default}".replace("%", "%%")
        group.add_argument(*row.flags, dest=row.name, action="append", metavar=row.form, help=text)


def _add_start(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what runs already", "nothing, unless one of these is given")
    source = group.add_mutually_exclusive_group()
    source.add_argument("--state", metavar="FILE", help="a cpu_manager_state file: the CPUs that containers have")
    source.add_argument("--live", action="store_true", help="the node of the running daemon, with its pods")
    group.add_argument("--socket", metavar="PATH", help="the daemon's control socket (also PINFOLD_SOCKET)")


def _add_questions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what if")
    group.add_argument(
        "--without",
        metavar="POD",
        action="append",
        default=[],
        help="leave out a running pod, else one of a file; or all of a workload",
    )
    group.add_argument("--replicas", metavar="POD=N", action="append", default=[], help="with so many of a pod")
    group.add_argument(
        "--resize", metavar="POD/CONTAINER=N", action="append", default=[], help="with so many CPUs for a container"
    )
    group.add_argument(
        "--options",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="CPU Manager options to try instead of --policy-options; several are compared, '' is none",
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--recommend", action="store_true", help="try all valid options, and say which serves best and why"
    )
    kind.add_argument(
        "--repack", action="store_true", help="also show which containers policy dynamic would move, and what it brings"
    )
    kind.add_argument("--orders", metavar="N", type=_count, help="try N random orders of coming and going")
    kind.add_argument("--trace", metavar="FILE", help="replay a trace of pod events, CSV or JSON lines")
    kind.add_argument(
        "--journal", metavar="DIR", help="replay a daemon's journal, in its state directory or a copy of it"
    )
    group.add_argument("--since", metavar="TIME", help="of the journal: only entries since then, e.g. 7d")
    group.add_argument("--until", metavar="TIME", help="of the journal: only entries until then")
    group.add_argument("--seed", metavar="N", type=int, default=_SEED, help=f"of the random orders (default: {_SEED})")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST_ORDERS or len(text) > len(str(_MOST_ORDERS)):
        raise argparse.ArgumentTypeError(f"{excerpt(text)} is not a whole number from 1 to {_MOST_ORDERS:,}")
    return int(text)


def as_serve(args: argparse.Namespace) -> argparse.Namespace:
    """Return the flags as arguments of `serve`, in which a setting is one text or None."""
    given = {}
    for name, row in SETTINGS.items():
        texts = getattr(args, name, None) if name not in {"preset", "sysroot", "view", "config_file"} else None
        if texts and isinstance(texts, list):
            given[name] = ",".join(texts) if row.adds_up else texts[-1]
    nothing = dict.fromkeys(SETTINGS)
    return argparse.Namespace(**nothing | {"view": args.view, "config_file": args.config_file} | given, given={})
