"""Power failures at every call of the writers of the smaller files: the claim, the shield's and the stopped processes.

Of the last it may leave anything, for it means nothing after a boot; of the journal it may take the entries since the
last sync, and no others.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pinfold.core.events.entries import Entry
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.shield import ChangedPlace
from pinfold.daemon.claim import Claim, read_claim
from pinfold.node import statefile
from pinfold.node.journal import journal as journals
from pinfold.node.journal.files import find_segments, read_segment
from pinfold.node.journal.journal import Journal
from pinfold.node.processgroups.halted import Halted
from pinfold.node.procfs import Process, Procfs
from pinfold.node.shield.record import ShieldRecord
from tests.torture.powerless import RecordingOS, crashes

if TYPE_CHECKING:
    from collections.abc import Callable

PLACES = [
    {f"irq/{number}": ChangedPlace(CPUSet.parse("0-3"), CPUSet.of(0), CPUSet.parse("0-3")) for number in range(count)}
    for count in (1, 3, 2)
]


class Written(NamedTuple):
    """A file of the state directory: writes its contents one after the other, and reads what a crash has left."""

    contents: list[object]
    write: Callable[[Path, object], None]
    read: Callable[[Path], object]
    """Raises if the file is damaged; None if there is no file."""


FILES = {
    "claim": Written(
        [Claim("processes", group_name=name) for name in ("a", "much-longer", "b")],
        lambda directory, claim: claim.keep(directory),  # type: ignore[attr-defined]
        read_claim,
    ),
    "shield": Written(
        list(PLACES),
        lambda directory, places: ShieldRecord(directory, "boot").save(places),  # type: ignore[arg-type]
        lambda directory: ShieldRecord(directory, "boot").load() or None,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_of_a_file_a_power_failure_leaves_the_last_content_or_one_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, disk, recorded = FILES[name], RecordingOS(), tmp_path / "recorded"
    recorded.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(statefile, "os", disk)
        for number, content in enumerate(file.contents):
            file.write(recorded, content)
            disk.mark(str(number))
    tried = 0
    for crash in crashes(disk.calls):
        directory = laid_out(tmp_path / "crashed", crash.files)
        since = int(crash.acknowledged[-1]) if crash.acknowledged else None
        allowed = file.contents[since or 0 :] + ([None] if since is None else [])
        assert file.read(directory) in allowed, crash
        tried += 1
    assert tried > 10


def test_of_the_stopped_processes_it_may_leave_anything_and_none_of_them_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, recorded, proc = RecordingOS(), tmp_path / "recorded", Procfs(Path("/proc"))
    recorded.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(statefile, "os", disk)
        for count in (2, 4, 3):
            Halted(recorded, proc).write([Process(number, 0) for number in range(count)])
    tried = 0
    for crash in crashes(disk.calls):
        directory = laid_out(tmp_path / "crashed", crash.files)
        assert Halted(directory, proc).read() == [], crash
        tried += 1
    assert tried > 10


def laid_out(directory: Path, files: object) -> Path:
    """Make a directory with what a crash has left."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    assert isinstance(files, dict)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


# -- the journal


def journal_of(directory: Path, told: list[str]) -> Journal:
    # Room for about two entries in each file, and for all files.
    return Journal(directory, clock=lambda: 1000.0, tell=told.append, max_bytes=64 * 300)


def entries_in(directory: Path) -> list[int]:
    """Return the numbers of all entries that can be read."""
    return [entry.number for segment in find_segments(directory) for entry in read_segment(segment.path).entries]


def test_of_the_journal_a_power_failure_takes_only_entries_since_the_last_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, disk, recorded = list[str](), RecordingOS(), tmp_path / "recorded"
    with monkeypatch.context() as patched:
        patched.setattr(journals, "os", disk)
        journal = journal_of(recorded, told)
        for number in range(1, 8):
            journal.append(Entry(number, 1000.0 + number, "note", {"text": "x" * 100}))
            if number in {2, 5, 6}:
                journal.sync()
                disk.mark(str(number))
        journal.close()
    assert told == []
    assert len(find_segments(recorded)) > 2
    for crash in crashes(disk.calls):
        directory = laid_out(tmp_path / "crashed", crash.files)
        found, synced = entries_in(directory), int(crash.acknowledged[-1]) if crash.acknowledged else 0
        assert found == sorted(set(found)), crash
        assert set(range(1, synced + 1)) <= set(found) <= set(range(1, 8)), crash
        again = journal_of(directory, told)
        assert all("kept as" in text for text in told)  # a file of zeros is kept aside, and said
        again.append(Entry(100, time.time(), "note", {}))
        assert entries_in(directory)[-1] == 100
        again.close()
