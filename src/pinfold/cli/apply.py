"""`pinfold apply`: pods whose containers have a command, run as processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinfold.cli.asking.client import Client, RefusedByDaemon, add_socket
from pinfold.errors import ParseError
from pinfold.render.explanation import format_refusal

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold apply`."""
    add_socket(parser)
    parser.add_argument("files", nargs="+", metavar="FILE", help="Kubernetes YAML or JSON; - is standard input")


def run(args: argparse.Namespace) -> int:
    """Send the files, and print the outcome for each pod."""
    files = [{"source": name, "text": _read(name)} for name in args.files]
    answer = Client.of(args).post("/v1/pods", {"files": files})
    for ignored in answer["ignored"]:
        print(f"ignored {ignored}")
    return max(map(_show, answer["pods"]), default=0)


def _show(row: dict[str, Any]) -> int:  # Any: JSON of the daemon
    refused = row.get("refused")
    if refused is None:
        cpus = ", ".join(f"{container} on CPUs {cpus}" for container, cpus in row["cpus"].items())
        print(f"pod {row['pod']}: started; {cpus or 'in the shared pool'}")
        for missed in row.get("missed", []):
            print(f"pinfold: warning: {missed}", file=sys.stderr)
        return 0
    print(f"pod {row['pod']}: refused; {format_refusal(refused)}")
    return RefusedByDaemon.exit_code


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{name}: not UTF-8 text") from error
