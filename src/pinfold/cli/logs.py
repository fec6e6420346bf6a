"""`pinfold logs`: what a container has printed, and what it prints."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from pinfold.cli.arguments.names import add_namespace, container_name
from pinfold.cli.asking.client import Client, add_output, add_socket

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

_LONGEST: Final = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold logs`."""
    add_socket(parser)
    add_output(parser)
    add_namespace(parser, "any")
    parser.add_argument("container", metavar="POD[/CONTAINER]", help="also NAMESPACE/POD[/CONTAINER]")
    parser.add_argument("-c", dest="of", metavar="CONTAINER", help="the container, if it is not part of the name")
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines too, until the pod ends")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of what it has printed")


def run(args: argparse.Namespace) -> int:
    """Print the output as it is."""
    query = {"container": container_name(args.container, args.namespace, args.of)}
    if args.follow:
        query["follow"] = "true"
    if args.tail is not None:
        query["tail"] = str(args.tail)
    sys.stdout.flush()
    if args.output == "json":
        for line in _lines(Client.of(args).parts(f"/v1/logs?{urlencode(query)}")):
            print(json.dumps({"line": line.decode(errors="replace")}), flush=args.follow)
        return 0
    for part in Client.of(args).parts(f"/v1/logs?{urlencode(query)}"):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
    return 0


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream that comes in parts of any size; of a line without an end, its first mebibyte."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest
