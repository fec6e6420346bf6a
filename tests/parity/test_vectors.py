"""All recorded cases, in both fidelities: the trimmed set, and the full set (slow) if it is beside the repository."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.parity import daemon
from tests.parity.node import Machines, read_cases
from tests.parity.replay import FAMILIES, files_in, main, replay_family

TRIMMED = Path(__file__).parent / "vectors"
FULL = Path(__file__).parents[2].parent / "shared" / "vectors"
SETS = {"trimmed": TRIMMED, "full": FULL}
every_set = pytest.mark.parametrize(
    "which", ["trimmed", *([pytest.param("full", marks=pytest.mark.slow)] if FULL.is_dir() else [])]
)


@pytest.mark.parametrize("family", [*FAMILIES, "hangs"])
@every_set
def test_every_case_equals_the_reference_or_is_sound_where_it_is_not(which: str, family: str) -> None:
    directory = SETS[which]
    machines = Machines(json.loads((directory / "topologies.json").read_text()))
    tallies = replay_family(family, read_cases(files_in(directory)[family]), machines)
    assert all(tally.passed for tally in tallies)
    failures = [f"{tally.fidelity} {case['id']}: {text}" for tally in tallies for case, text in tally.failures[:3]]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("family", ["static", "podlevel", "admit"])
@every_set
def test_dynamic_equals_the_reference_while_nothing_dynamic_happens(which: str, family: str) -> None:
    directory = SETS[which]
    machines = Machines(json.loads((directory / "topologies.json").read_text()))
    cases = (
        {**case, "policy": "dynamic"} if case.get("policy", "static") == "static" else case
        for case in read_cases(files_in(directory)[family])
    )
    tallies = replay_family(family, cases, machines)
    assert all(tally.passed for tally in tallies)
    assert not [f"{case['id']}: {text}" for tally in tallies for case, text in tally.failures[:3]]


@pytest.mark.parametrize("family", daemon.FAMILIES)
def test_the_daemon_gives_the_recorded_cpus_and_refusals_over_nri(family: str) -> None:
    machines = Machines(json.loads((TRIMMED / "topologies.json").read_text()))
    tallies = daemon.replay_some(family, read_cases(files_in(TRIMMED)[family]), machines, every=3)
    assert all(tally.passed for tally in tallies)
    failures = [f"{tally.fidelity} {case['id']}: {text}" for tally in tallies for case, text in tally.failures[:3]]
    assert not failures, "\n".join(failures)


def test_a_failure_is_shown_in_full_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"id": "wrong", "topology": "one", "available": "0-1", "n": 1, "algo": "packed", "sort": "packed"}
    machine = {"cpus": [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]}
    (tmp_path / "topologies.json").write_text(json.dumps({"one": machine}))
    (tmp_path / "take.jsonl").write_text(json.dumps({**case, "expect": {"cpus": "1"}}) + "\n")
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "take, kubelet: 0 passed, 1 failed" in out
    assert "expected 1, found 0" in out


def test_a_directory_without_vectors_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert "tests.parity" in sys.modules
