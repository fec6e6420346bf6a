"""`pinfold resize`: more or fewer exclusive CPUs for a container, while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from pinfold.cli.asking.client import Client, add_output, add_socket
from pinfold.core.events.entries import Subject
from pinfold.render.columns import named_cpus

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold resize`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument("--cpus", type=int, required=True, metavar="N", help="how many CPUs it is to have")
    parser.add_argument(
        "container", metavar="POD/CONTAINER", help="which one; NAMESPACE/POD/CONTAINER outside of default"
    )


def run(args: argparse.Namespace) -> int:
    """Ask the daemon to resize it."""
    subject = Subject.parse(args.container)
    body: dict[str, object] = {"cpus": args.cpus}
    if subject.container is not None:
        body["container"] = subject.container
    place = f"{quote(subject.namespace or 'default', safe='')}/{quote(subject.pod, safe='')}"
    answer = Client.of(args).post(f"/v1/pods/{place}/resize", body)
    if args.output == "json":
        print(json.dumps({"namespace": subject.namespace or "default", "pod": subject.pod, **answer}, indent=2))
        return 0
    print(f"{subject.pod}/{answer['container']} has {named_cpus(answer['cpus'])}")
    return 0
