"""Power failures at every call, with every order of what reaches the disk: recoverable, nothing acknowledged undone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import PodUID
from pinfold.manager.saving.store import StateStore
from pinfold.manager.sources.kept import KeptWorkload, KeptWorkloads
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node import statefile
from tests.now import now
from tests.torture.powerless import RecordingOS, crashes
from tests.unit.manager.sources.test_supervisor import APP
from tests.unit.manager.test_manager import ADMITTER, FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.torture.powerless import Crash

POLICY = ADMITTER.policy
PODS = [replace(APP, uid=PodUID(f"u{number}"), name=f"p{number}") for number in range(4)]
COUNTS = (0, 1, 2, 4, 3, 1, 2)
"""How many pods there are after each change."""
STATES = [FIRST]
for _pod in PODS:
    STATES.append(ADMITTER.admit(STATES[-1], _pod).state)


def record(directory: Path, disk: RecordingOS) -> None:
    """Admit and delete pods: save the State, then the workloads, then acknowledge the change."""
    store, kept = StateStore(directory, POLICY), KeptWorkloads(directory, "boot")
    for change, count in enumerate(COUNTS):
        now(store.save(STATES[count]))
        now(kept.save([KeptWorkload(WorkloadKind.POD, pod) for pod in PODS[:count]]))
        disk.mark(str(change))


def violations(directory: Path, crash: Crash) -> list[str]:
    """Return which promises a power failure has broken."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, data in crash.files.items():
        (directory / name).write_bytes(data)
    loaded = StateStore(directory, POLICY).load({})
    rows, problem = KeptWorkloads(directory, "boot").load()
    found = [text for text in (loaded.problem, problem) if text is not None]
    if loaded.state not in STATES:
        found.append(f"{loaded.state} was never saved")
    since = int(crash.acknowledged[-1]) if crash.acknowledged else 0
    if len(rows) not in {*COUNTS[since:], *([] if crash.acknowledged else [0])}:
        found.append(f"{len(rows)} pods, although change {since} was acknowledged")
    return found


def all_violations(
    tmp_path: Path, disk: RecordingOS, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Crash, list[str]]]:
    """Yield each crash, and what it has broken."""
    directory = tmp_path / "recorded"
    directory.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(statefile, "os", disk)
        record(directory, disk)
    for crash in crashes(disk.calls):
        yield crash, violations(tmp_path / "crashed", crash)


def test_after_a_power_failure_at_any_call_the_files_are_whole_and_no_acknowledged_pod_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list(all_violations(tmp_path, RecordingOS(), monkeypatch))
    assert [(crash, broken) for crash, broken in tried if broken] == []
    assert len(tried) > 100


@pytest.mark.parametrize(
    "disk",
    [RecordingOS(fsync_files=False), RecordingOS(fsync_directories=False)],
    ids=["files are not synced", "directories are not synced"],
)
def test_the_check_notices_a_writer_that_leaves_a_sync_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: RecordingOS
) -> None:
    assert any(broken for _, broken in all_violations(tmp_path, disk, monkeypatch))
