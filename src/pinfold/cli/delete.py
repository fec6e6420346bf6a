"""`pinfold delete`: end pods, and give their CPUs back; an adopted process goes on where it was before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from pinfold.cli.arguments.names import add_namespace, pod_names
from pinfold.cli.asking.client import Client, add_output, add_socket

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold delete`."""
    add_socket(parser)
    add_namespace(parser)
    add_output(parser)
    parser.add_argument("pods", nargs="+", metavar="POD", help="also pod POD, pod/POD or NAMESPACE/POD")


def run(args: argparse.Namespace) -> int:
    """Ask the daemon to end each."""
    client = Client.of(args)
    rows = []
    for pod in pod_names(args.pods, args.namespace):
        answer = client.delete(f"/v1/pods/{quote(pod.namespace, safe='')}/{quote(pod.name, safe='')}")
        rows.append({"namespace": pod.namespace, **answer})
        lent = answer.get("given_back", [])
        if args.output == "text":
            print(f"pod {pod}: {f'given back; process {lent[0]} goes on' if lent else 'deleted'}")
    if args.output == "json":
        print(json.dumps(rows, indent=2))
    return 0
