"""Parsers: the CPU time of the worst input of 1 MB for each, of about 100 hostile ones.

Target: 100 ms for all that a daemon reads. Texts that only commands read may take longer.
"""

from __future__ import annotations

import argparse
from typing import Final

from benchmarks._targets import Target, verdict
from tests.fuzz.parsers import PARSERS, slowest

_TARGET: Final = 100


def main(arguments: list[str]) -> int:
    """Print the worst time of each parser; return 1 if a target is missed by far."""
    options = argparse.ArgumentParser(prog="python -m benchmarks parsers", description=__doc__)
    options.add_argument("--only", metavar="NAME", choices=PARSERS, help="one parser (default: all)")
    chosen = options.parse_args(arguments).only
    targets = []
    for name, parser in PARSERS.items():
        if chosen in {None, name}:
            seconds, end = slowest(name)
            where = f"read by commands only: {parser.command}" if parser.command else ""
            print(f"{name:15} {seconds * 1000:7.1f} ms  …{end:20} {where}".rstrip(), flush=True)
            targets += [] if parser.command else [Target(f"{name}, ms", seconds * 1000, _TARGET)]
    return verdict(targets)


if __name__ == "__main__":
    raise SystemExit(main([]))
