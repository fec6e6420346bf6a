"""Replays every family of a vectors directory: `python -m tests.parity.replay DIR [FAMILY…]`.

Fidelity `kubelet` must equal the reference in every case. Fidelity `pinfold` must equal it wherever the kubelet
fidelity reports no defect; elsewhere its answers must be sound.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.allocators.order import Fidelity
from tests.parity import admit, checkpoint, discover, hints, merge, options, static, take
from tests.parity.node import Case, Machines, Outcome, read_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SHOWN = 3


def _replay_merge(case: Case, _machines: Machines, _fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:  # noqa: ARG001 - as all replays
    return Outcome(merge.replay(case))


def _replay_checkpoint(case: Case, machines: Machines, _fidelity: Fidelity, *, laws_only: bool = False) -> Outcome:  # noqa: ARG001 - as all replays
    return Outcome(checkpoint.replay(case, machines.topologies))


FAMILIES: dict[str, Callable[..., Outcome]] = {
    "take": take.replay,
    "static": static.replay,
    "podlevel": static.replay,
    "hints": hints.replay,
    "merge": _replay_merge,
    "admit": admit.replay,
    "options": options.replay,
    "checkpoint": _replay_checkpoint,
    "discover": discover.replay,
}


class Tally(NamedTuple):
    """What came of a family in one fidelity."""

    family: str
    fidelity: Fidelity
    passed: int
    failures: list[tuple[Case, str]]
    with_defects: int = 0

    def __str__(self) -> str:
        note = f" ({self.with_defects} where the reference has a defect)" if self.with_defects else ""
        return f"{self.family}, {self.fidelity}: {self.passed} passed, {len(self.failures)} failed{note}"


def replay_both(family: str, case: Case, machines: Machines) -> tuple[Outcome, Outcome]:
    """Return what comes of a case in the fidelities kubelet and pinfold."""
    replay = FAMILIES[family]
    exact = replay(case, machines, Fidelity.KUBELET)
    if "hang" in case.get("expect", {}) and not exact.defects:
        exact = Outcome("the reference never returns, but no defect is reported")
    return exact, replay(case, machines, Fidelity.PINFOLD, laws_only=bool(exact.defects))


def replay_family(family: str, cases: Iterator[Case], machines: Machines) -> list[Tally]:
    """Return the tallies of a family, a fidelity each."""
    failures: dict[Fidelity, list[tuple[Case, str]]] = {Fidelity.KUBELET: [], Fidelity.PINFOLD: []}
    count = defects = 0
    for case in cases:
        count += 1
        outcomes = dict(zip(failures, replay_both(case.get("family", family), case, machines), strict=True))
        defects += bool(outcomes[Fidelity.KUBELET].defects)
        for fidelity, outcome in outcomes.items():
            if outcome.difference is not None:
                failures[fidelity].append((case, outcome.difference))
    return [Tally(family, fidelity, count - len(failed), failed, defects) for fidelity, failed in failures.items()]


def files_in(directory: Path) -> dict[str, Path]:
    """Return the files of cases in a vectors directory by family; `hangs` has cases of several."""
    found = {path.name.partition(".")[0]: path for path in sorted(directory.glob("*.jsonl*"))}
    return {family: found[family] for family in [*FAMILIES, "hangs"] if family in found}


def main(arguments: list[str]) -> int:
    """Replay all, or the families named, and print what came of it."""
    if not arguments:
        print("usage: python -m tests.parity.replay DIR [FAMILY…]", file=sys.stderr)  # noqa: T201 - a command
        return 2
    directory, wanted = Path(arguments[0]), arguments[1:]
    files = files_in(directory)
    if not files:
        print(f"{directory}: no vectors there (*.jsonl, *.jsonl.gz)", file=sys.stderr)  # noqa: T201 - a command
        return 2
    machines = Machines(json.loads((directory / "topologies.json").read_text()))
    failed = 0
    for family, path in files.items():
        if wanted and family not in wanted:
            continue
        for tally in replay_family(family, read_cases(path), machines):
            failed += len(tally.failures)
            print(tally, flush=True)  # noqa: T201 - a command
            for case, difference in tally.failures[:_SHOWN]:
                print(f"  {case['id']}: {difference}\n  {json.dumps(case)}")  # noqa: T201 - a command
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
