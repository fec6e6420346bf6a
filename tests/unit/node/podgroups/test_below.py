"""The names of the groups below others, which are listed again when they may have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node import cgroupfiles
from pinfold.node.podgroups import files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    add(tmp_path, "a", "b")
    return tmp_path


def add(pod: Path, *names: str) -> None:
    for name in names:
        (pod / name).mkdir()
        (pod / name / "cpuset.cpus").write_text("1")


def test_names_are_listed_once_while_there_are_as_many(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = files.Below()
    assert list(below.names(str(pod))) == ["a", "b"]
    with monkeypatch.context() as patched:
        patched.delattr(cgroupfiles, "names_below")
        assert list(below.names(str(pod))) == ["a", "b"]
    add(pod, "c")
    assert list(below.names(str(pod))) == ["a", "b", "c"]


def test_a_name_that_is_gone_is_told_of_so_that_they_are_listed_again(pod: Path) -> None:
    below = files.Below()
    names = below.names(str(pod))
    (pod / "a").rename(pod / "c")
    assert below.names(str(pod)) is names, "as many as before"
    left, complete = files.set_below(pod, names, CPUSet.of(0), CPUSet.of(1))
    assert (left, complete) == ([], False)
    below.forget(str(pod))
    assert files.set_below(pod, below.names(str(pod)), CPUSet.of(0), CPUSet.of(1)) == ([], True)
    assert {path.read_text() for path in pod.glob("*/cpuset.cpus")} == {"0"}


def test_of_a_group_that_is_gone_nothing_is_set_and_nothing_left(pod: Path) -> None:
    assert list(files.Below().names(f"{pod}/gone")) == []
    assert files.set_below(pod / "gone", ["a"], CPUSet.of(0), CPUSet.of(1)) == ([], False)
