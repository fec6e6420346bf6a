"""Benefit: latency and throughput beside noisy neighbours, under none, static and the options that this machine has.

python -m benchmarks benefit [--docs] [--on NAME] [--out DIR] [--rounds N] [--seconds S] [--short]

The same as `pinfold demo benefit`; docs/explanation/benefit.md says what the figures mean. `--docs` measures for about
9 minutes and writes docs/reference/benefit.md and its picture, whole: run it as root on a quiet machine, with Debian's
packages redis-server and postgresql.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pinfold.benefit.measure import full_plan, measure
from pinfold.benefit.picture import picture
from pinfold.benefit.report import page
from pinfold.cli.main import main as pinfold
from pinfold.node.machine.sysfs import discover

DOCS: Final = Path(__file__).parents[1] / "docs"
_ROUNDS, _SECONDS = 5, 1.5


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    if arguments != ["--docs"]:
        return pinfold(["demo", "benefit", *arguments])
    plan = full_plan(discover(Path("/")), _ROUNDS, _SECONDS)
    results = measure(plan, lambda line: print(line, file=sys.stderr, flush=True))
    name = f"a machine with {len(os.sched_getaffinity(0))} CPUs"
    (DOCS / "reference/benefit.md").write_text(page(results, name, "../images/benefit.svg"), encoding="utf-8")
    (DOCS / "images/benefit.svg").write_text(picture(results), encoding="utf-8")
    print("written: docs/reference/benefit.md, docs/images/benefit.svg")
    return 0
