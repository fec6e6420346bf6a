"""`pinfold get`: pods, containers, CPUs and pools of a daemon, as a table or JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.cli.arguments.names import PodArgument, add_namespace, pod_name
from pinfold.cli.asking.client import Client, add_socket
from pinfold.cli.output.terminal import unbroken
from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError, PinfoldError, did_you_mean
from pinfold.render.columns import WIDEST, Column, format_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    Rows = list[dict[str, Any]]  # Any: JSON of the daemon

WHAT: Final = ("containers", "pods", "cpus", "pools", "node")
_OF_PODS: Final = ("pods", "containers")
_LISTS: Final = {"cpus": 8, "allowed": 8, "exclusive": 9, "refused": 9}
"""The least widths of columns that continue in the next line on a narrow terminal."""
_NAMES: Final = {"namespace": 9, "pod": 10, "container": 9, "owner": 12}
"""The least widths of columns that are cut there, if nothing else helps."""
_LEFT_OUT: Final = ("pid", "qos", "kind", "age")
"""The columns that are left out before that."""
_SHORT: Final = {"po": "pods", **{what.removesuffix("s"): what for what in WHAT}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold get`."""
    add_socket(parser)
    parser.add_argument(
        "what",
        nargs="?",
        type=_kind,
        choices=_Kinds(WHAT),
        default="containers",
        help="default: containers; also in the singular",
    )
    parser.add_argument("names", nargs="*", metavar="POD", help="only these pods; also NAMESPACE/POD")
    add_namespace(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "json"),
        default="table",
        help="wide: also what others used of exclusive CPUs",
    )
    parser.add_argument("-w", "--watch", action="store_true", help="print again when something has happened")


def run(args: argparse.Namespace) -> int:
    """Print the pods or the node, once or again and again."""
    client = Client.of(args)
    wanted = _wanted(args)
    print(show(client, wanted, args.output), flush=True)
    if args.watch:
        for _ in client.lines(f"/v1/events?follow=true&after={_last(client)}"):
            print("\n" + show(client, wanted, args.output), flush=True)
    return 0


class Query(NamedTuple):
    """What to show, and of which pods; of all if none is named."""

    what: str
    pods: tuple[PodArgument, ...] = ()
    namespace: str | None = None

    def choose(self, rows: Rows) -> Rows:
        """Return the rows of the named pods, or raise if one is not there."""
        for pod in self.pods:
            if not any((row["namespace"], row["pod"]) == pod for row in rows):
                meant = did_you_mean(pod.name, (row["pod"] for row in rows if row["namespace"] == pod.namespace))
                raise PinfoldError(f"there is no pod {pod.name} in namespace {pod.namespace}{meant}")
        chosen = [row for row in rows if not self.pods or (row["namespace"], row["pod"]) in self.pods]
        return [row for row in chosen if self.namespace in {None, row["namespace"]}]


def _wanted(args: argparse.Namespace) -> Query:
    what, slash, name = args.what.partition("/")
    names = [name, *args.names] if slash else args.names
    if (names or args.namespace) and what not in _OF_PODS:
        raise ParseError(f"get {what} takes no pods; get {' and get '.join(_OF_PODS)} do")
    return Query(what, tuple(pod_name(text, args.namespace) for text in names), args.namespace)


def _kind(word: str) -> str:
    """Return what to show; pod/NAME as of kubectl stays as it is, with the kind spelled out."""
    kind, slash, name = word.partition("/")
    return f"{_SHORT.get(kind, kind)}{slash}{name}"


class _Kinds(tuple[str, ...]):
    """The kinds as choices, which pods/NAME is too."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and super().__contains__(word.partition("/")[0])


def show(client: Client, wanted: Query, output: str) -> str:
    """Return the answer as text."""
    what, data, width = wanted.what, _data(client, wanted.what, output), unbroken(sys.stdout).width
    if isinstance(data, list) and what in _OF_PODS:
        data = wanted.choose(data)
    if output == "json":
        return json.dumps(data, indent=2)
    if isinstance(data, dict):
        values = [row for name, value in data.items() for row in _lines(name, value)]
        return format_table([Column(""), Column("", least=20)], values, width)
    if not data:
        return f"no {what}"
    return format_rows(_without_namespace(data), width, left_out=() if output == "wide" else _LEFT_OUT)


def format_rows(rows: Rows, width: int = WIDEST, left_out: Sequence[str] = _LEFT_OUT) -> str:
    """Return *rows* as a table with the names of their fields as heads; there is at least one row.

    If that is wider than *width*, lists continue in the next line. If that is not enough, columns are left out, and
    then names are cut.
    """
    text = ""
    for step in range(len(left_out) + 2):
        least = _LISTS if step <= len(left_out) else _LISTS | _NAMES
        heads = [name for name in rows[0] if name not in left_out[:step]]
        columns = [Column(name.upper(), least.get(name, 0), cut=name in _NAMES) for name in heads]
        text = format_table(columns, ([_cell(row[name]) for name in heads] for row in rows), width)
        if max(map(len, text.splitlines())) <= width:
            break
    return text


def _without_namespace(rows: Rows) -> Rows:
    """Return the rows as people want to see them: their namespace only if there is more than one."""
    if len({row["namespace"] for row in rows if row["namespace"]}) > 1:
        return rows
    return [{name: value for name, value in row.items() if name != "namespace"} for row in rows]


def _data(client: Client, what: str, output: str = "table") -> Rows | dict[str, Any]:
    node = client.get("/v1/node")
    if what == "pools":
        return dict(node["pools"])
    if what == "node":
        return dict(node)
    rows: Rows = client.get("/v1/containers")
    if what == "cpus":
        return _cpus(node, rows)
    if what == "pods":
        return _pods(rows, client.get("/v1/pods"))
    return [
        {
            "namespace": row["namespace"],
            "pod": row["pod"],
            "container": row["container"],
            "qos": row["qos"],
            "cpus": row["cpus"] if row["exclusive"] else "shared",
            "allowed": row["allowed"],
            "state": row["state"],
            "pid": row["pid"],
            "age": _age(row["since"]),
            **({"exclusivity": row.get("exclusivity")} if output == "json" else {}),
            **(_exclusivity(row.get("exclusivity")) if output == "wide" else {}),
        }
        for row in rows
    ]


def _exclusivity(score: dict[str, Any] | None) -> dict[str, str | None]:  # Any: JSON of the daemon
    """Return what others have used of a container's exclusive CPUs since it got them."""
    if score is None:
        return dict.fromkeys(("foreign", "interrupts", "preempted", "throttled"))
    return {
        "foreign": f"{score['foreign']:.3f}s of {score['seconds']:.0f}s",
        "interrupts": str(score["interrupts"]),
        "preempted": str(score["preempted"]),
        "throttled": f"{score['throttled']:.3f}s",
    }


def _pods(rows: Rows, listed: Rows) -> Rows:
    """Return the pods with containers, then those that were refused and have none."""
    pods: dict[tuple[str, str], Rows] = {}
    for row in rows:
        pods.setdefault((row["namespace"], row["pod"]), []).append(row)
    refused = {(row["namespace"], row["name"]): row for row in listed if row["refused"]}
    here = [
        {
            "namespace": namespace,
            "pod": pod,
            "qos": of[0]["qos"],
            "kind": of[0]["kind"],
            "running": f"{sum(row['state'] == 'running' for row in of)}/{len(of)}",
            "exclusive": str(_union(row["cpus"] for row in of if row["exclusive"])),
            "restarts": sum(row["restarts"] for row in of),
            "refused": refused.get((namespace, pod), {}).get("refused", ""),
        }
        for (namespace, pod), of in pods.items()
    ]
    nothing = {"kind": "-", "running": "0/0", "exclusive": "", "restarts": 0}
    return here + [
        {"namespace": namespace, "pod": pod, "qos": row["qos"], **nothing, "refused": row["refused"]}
        for (namespace, pod), row in refused.items()
        if (namespace, pod) not in pods
    ]


def _cpus(node: dict[str, Any], rows: Rows) -> Rows:
    owner = {
        cpu: (row["namespace"], f"{row['pod']}/{row['container']}")
        for row in rows
        if row["exclusive"]
        for cpu in CPUSet.parse(row["cpus"])
    }
    reserved = CPUSet.parse(node["pools"]["reserved"])
    return [
        {
            "cpu": cpu,
            "pool": "exclusive" if cpu in owner else "reserved" if cpu in reserved else "shared",
            "namespace": owner.get(cpu, ("", ""))[0],
            "owner": owner.get(cpu, ("", ""))[1],
        }
        for cpu in CPUSet.parse(node["pools"]["online"])
    ]


def _union(texts: Any) -> CPUSet:  # noqa: ANN401 - any texts of CPU lists
    cpus = CPUSet()
    for text in texts:
        cpus |= CPUSet.parse(text)
    return cpus


def _lines(name: str, value: object) -> list[list[str]]:
    """Return the rows of one value: a line for each element of a list."""
    cells = [*map(str, value)] if isinstance(value, list) else [_cell(value)]
    return [[name if not number else "", cell or "-"] for number, cell in enumerate(cells or [""])]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in value.items() if text)
    return str(value)


def _age(since: float) -> str:
    seconds = int(time.time() - since)
    return f"{seconds}s" if seconds < 120 else f"{seconds // 60}m" if seconds < 7200 else f"{seconds // 3600}h"  # noqa: PLR2004


def _last(client: Client) -> int:
    events = client.get("/v1/events")
    return int(events[-1]["number"]) if events else 0
