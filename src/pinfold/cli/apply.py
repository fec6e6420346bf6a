"""`pinfold apply`: pods whose containers have a command, run as processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.cli.client import Client, Refused, add_socket
from pinfold.errors import ParseError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold apply`."""
    add_socket(parser)
    parser.add_argument("files", nargs="+", metavar="FILE", help="Kubernetes YAML or JSON; - is standard input")


def run(args: argparse.Namespace) -> int:
    """Send the files, and print what became of each pod."""
    client = Client.of(args)
    code = 0
    for name in args.files:
        answer = client.post("/v1/pods", {"text": _read(name), "source": name})
        for ignored in answer["ignored"]:
            print(f"{name}: ignored {ignored}")
        for row in answer["pods"]:
            refused = row.get("refused")
            if refused is None:
                cpus = ", ".join(f"{container} on CPUs {cpus}" for container, cpus in row["cpus"].items())
                print(f"pod {row['pod']}: started; {cpus or 'in the shared pool'}")
            else:
                code = Refused.exit_code
                print(f"pod {row['pod']}: refused; {refused['reason']}: {refused['message']}")
                for line in (*refused.get("steps", ()), refused.get("explanation")):
                    if line:
                        print(f"  {line}")
    return code


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{name}: not UTF-8 text") from error
