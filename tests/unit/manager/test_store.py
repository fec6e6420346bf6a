"""StateStore on a disk that is slow, and on files that cannot be used."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.errors import StateError
from pinfold.manager.store import FILE, StateStore
from tests.unit.manager.test_manager import ADMITTER, FIRST, ONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY = ADMITTER.policy
NEXT = ADMITTER.admit(FIRST, ONE).state


@contextmanager
def slow(directory: Path) -> Iterator[None]:
    """Make writing into a directory fail, as on a disk that does not answer."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def test_a_disk_that_keeps_us_waiting_is_an_error_and_the_last_state_stays(tmp_path: Path) -> None:
    store = StateStore(tmp_path, POLICY, patience=0.2)
    store.save(FIRST)
    before = store.path.read_text()
    with slow(tmp_path), pytest.raises(StateError, match="the disk has not taken it within"):
        store.save(NEXT)
    StateStore(tmp_path, POLICY, patience=30).save(FIRST)  # after all that waited for the disk
    assert store.path.read_text() == before


def test_a_damaged_file_is_kept_aside_and_running_containers_keep_their_cpus(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    running = {PodUID("u"): {"app": CPUSet.of(3)}}
    loaded = StateStore(tmp_path, POLICY).load(running)
    assert loaded.state.cpus(PodUID("u"), "app") == CPUSet.of(3)
    assert loaded.problem is not None
    assert loaded.aside == tmp_path / f"{FILE}.bad-1"


def test_a_running_container_that_the_file_does_not_know_keeps_its_cpus(tmp_path: Path) -> None:
    store = StateStore(tmp_path, POLICY)
    store.save(NEXT)
    running = {PodUID("u"): {"app": CPUSet.of(3)}}
    loaded = store.load(running)
    assert loaded.state.cpus(PodUID("u"), "app") == CPUSet.of(3)
    assert loaded.state.cpus(ONE.uid, "app") == NEXT.cpus(ONE.uid, "app")
    assert loaded.problem is None
