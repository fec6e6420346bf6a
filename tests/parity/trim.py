"""Makes a small vectors directory out of a full one: `python -m tests.parity.trim FROM TO`.

A case is kept if it is the first to show something (a machine, a set of options, a kind of error, a quirk, a gate),
and every so often another one.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.parity.node import Case, read_cases
from tests.parity.replay import files_in

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLE = 100


def shows(case: Case) -> Iterator[str]:
    """Yield what can be seen in a case."""
    yield f"machine {case.get('topology')} {case.get('algo')} {case.get('sort')} {case.get('uncore')}"
    yield f"options {sorted(case.get('options', {}).items())} {sorted(case.get('gates', {}).items())}"
    yield f"kind {case.get('kind')} {case.get('version')} {case.get('note')} {case.get('tm_policy')}"
    yield f"topology manager {[case.get('tm', {}).get(key) for key in ('policy', 'scope', 'options')]}"
    yield from (f"quirk {quirk}" for quirk in case.get("quirk", ()))
    for text in re.findall(r'"(?:error|reason)": "([^"]{0,60})', json.dumps(case)):
        yield "error " + re.sub(r"[0-9]+", "0", text)


def trimmed(cases: list[Case]) -> list[Case]:
    """Return the cases that show something for the first time, and a sample of the others."""
    seen: set[str] = set()
    kept = []
    step = max(1, len(cases) // _SAMPLE)
    for number, case in enumerate(cases):
        new = set(shows(case)) - seen
        if new or number % step == 0:
            seen |= new
            kept.append(case)
    return kept


def main(source: Path, target: Path) -> None:
    """Write the small directory."""
    target.mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    for family, path in files_in(source).items():
        cases = trimmed(list(read_cases(path)))
        used |= {case["topology"] for case in cases if "topology" in case}
        lines = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
        # No time stamp: the same cases always make the same file.
        (target / f"{family}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    catalogue = json.loads((source / "topologies.json").read_text())
    small = {name: machine for name, machine in catalogue.items() if name in used}
    (target / "topologies.json").write_text(json.dumps(small, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
