"""`pinfold delete`: end pods, and give their CPUs back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from pinfold.cli.client import Client, add_socket

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
        client.delete(f"/v1/pods/{quote(args.namespace, safe='')}/{quote(pod, safe='')}")
        print(f"pod {pod}: deleted")
    return 0
