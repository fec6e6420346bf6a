"""The way back: into the group a process came from, or the nearest above; never out of the hierarchy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.processgroups.origin import Origin, move_back, origin_of
from pinfold.node.procfs import Procfs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files where a hierarchy would have them: user/one takes processes, as does the top."""
    for group in ("root", "root/user/one", "outside"):
        (tmp_path / group).mkdir(parents=True)
        (tmp_path / group / "cgroup.procs").write_text("")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("group", "lands"),
    [
        ("/user/one", "user/one"),
        ("/user/one/gone", "user/one"),
        ("/user/one (deleted)", ""),
        ("/", ""),
        ("", ""),
        ("/../outside", ""),
        ("//user//one", "user/one"),
    ],
)
def test_a_process_comes_to_the_nearest_group_that_takes_it(root: Path, group: str, lands: str) -> None:
    move_back(root, group, 7)
    assert {str(path.parent.relative_to(root.parent)) for path in root.parent.rglob("*.procs") if path.read_text()} == {
        str(Path("root") / lands)
    }


def test_if_none_takes_it_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CgroupError):
        move_back(tmp_path, "/a", 7)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    assert origin_of(Procfs(Path("/proc")), 1 << 22, "cpu", "") == Origin(("", ""))
    assert Origin().group(1) == ""


def test_a_thread_is_told_from_its_process() -> None:
    procfs = Procfs(Path("/proc"))
    assert procfs.leader(os.getpid()) == os.getpid()
    assert procfs.leader(1 << 22) is None
