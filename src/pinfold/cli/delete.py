"""`pinfold delete`: end pods, and give their CPUs back; an adopted process goes on where it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from pinfold.cli.asking.client import Client, add_socket

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold delete`."""
    add_socket(parser)
    parser.add_argument("-n", "--namespace", default="default", help="where the pods are (default: default)")
    parser.add_argument("pods", nargs="+", metavar="POD")


def run(args: argparse.Namespace) -> int:
    """Ask the daemon to end each."""
    client = Client.of(args)
    for pod in args.pods:
        answer = client.delete(f"/v1/pods/{quote(args.namespace, safe='')}/{quote(pod, safe='')}")
        lent = answer.get("given_back", [])
        print(f"pod {pod}: {f'given back; process {lent[0]} goes on' if lent else 'deleted'}")
    return 0
