"""`pinfold apply`: pods whose containers have a command, run as processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pinfold.cli.asking.client import Client, RefusedByDaemon, add_output, add_socket
from pinfold.errors import ParseError
from pinfold.render.columns import named_cpus
from pinfold.render.explanation import format_refusal
from pinfold.settings.filetext import read_text

if TYPE_CHECKING:
    import argparse

_WHOLE: Final = 20_000
"""Characters of files with fewer values than a daemon reads at once."""
_FILES: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold apply`."""
    add_socket(parser)
    add_output(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help="Kubernetes YAML or JSON; - is standard input")
    parser.add_argument("-f", "--filename", action="append", default=[], metavar="FILE", help="the same, as in kubectl")


def run(args: argparse.Namespace) -> int:
    """Send the files, and print the outcome for each pod; a pod that runs already is changed, or left as it is."""
    names = [*args.files, *args.filename]
    if not names:
        raise ParseError("no file; name one, as in: pinfold apply pods.yaml")
    files = [{"source": _shown(name), "text": read_text(name), "directory": str(Path.cwd())} for name in names]
    answer = _answer(Client.of(args), files)
    rows = answer["pods"]
    if args.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        print(*(f"ignored {note}" for note in answer["ignored"]), *map(_line, rows), sep="\n")
    for warning in (*answer.get("warnings", []), *(missed for row in rows for missed in row.get("missed", []))):
        print(f"pinfold: warning: {warning}", file=sys.stderr)
    return RefusedByDaemon.exit_code if any("refused" in row for row in rows) else 0


def _answer(client: Client, files: list[dict[str, str]]) -> dict[str, Any]:  # Any: JSON of the daemon
    """Send the files as they are, or what is in them if the daemon would not read so much at once."""
    if sum(len(file["text"]) for file in files) <= _WHOLE and len(files) <= _FILES:
        answer: dict[str, Any] = client.post("/v1/pods", {"files": files})
        return answer
    from pinfold.cli.asking.pieces import apply_in_pieces  # noqa: PLC0415 - only large files are read here

    return apply_in_pieces(client, files)


def _shown(name: str) -> str:
    return "stdin" if name == "-" else name


def _line(row: dict[str, Any]) -> str:  # Any: JSON of the daemon
    if "refused" in row:
        return f"pod {row['pod']}: refused; {format_refusal(row['refused'])}"
    cpus = ", ".join(f"{container} on {named_cpus(cpus)}" for container, cpus in row["cpus"].items())
    return f"pod {row['pod']}: {row['done']}; {cpus or 'in the shared pool'}"
