"""`pinfold version`: this version, the Kubernetes whose decisions it equals, and what it runs on."""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING

import pinfold
from pinfold.cli.asking.client import add_output

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold version`."""
    parser.add_argument("-v", "--verbose", action="store_true", help="also what it runs on")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the versions."""
    found = {"pinfold": pinfold.__version__, "decides as": pinfold.KUBERNETES}
    if args.verbose:
        import yaml  # noqa: PLC0415 - only its version is wanted

        found |= {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "yaml": f"PyYAML {yaml.__version__}{' with libyaml' if yaml.__with_libyaml__ else ''}",
            "kernel": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        }
    print(json.dumps(found, indent=2) if args.output == "json" else "\n".join(map(" ".join, found.items())))
    return 0
