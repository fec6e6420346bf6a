"""Benefit: latency and throughput beside noisy neighbours, under none, static and the options that this machine has.

python -m benchmarks benefit [--on NAME] [--out DIR] [--rounds N] [--seconds S] [--short]

The same as `pinfold demo benefit`; docs/explanation/benefit.md says what the figures mean.
"""

from __future__ import annotations

from pinfold.cli.main import main as pinfold


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    return pinfold(["demo", "benefit", *arguments])
