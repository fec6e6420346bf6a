"""Which driver this machine needs, and what it does where a controller is missing; the rest is in tests/contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.podgroups import groups as podgroups
from pinfold.node.podgroups.settings import Quota

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def make(root: Path, *groups: str) -> list[Path]:
    for group in groups:
        (root / group).mkdir(parents=True)
    return [root / group for group in groups]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ({"cgroup.controllers": "cpuset cpu memory"}, "cgroup v2"),
        ({"unified/cgroup.controllers": "cpuset cpu"}, "cgroup v2"),
        ({"unified/cgroup.controllers": "pids", "cpuset/tasks": "", "cpuset/cpuset.cpus": "0"}, "cgroup v1"),
        ({"cgroup.controllers": "memory"}, None),
        ({}, None),
    ],
    ids=["v2", "unified", "hybrid", "no-cpuset", "nothing"],
)
def test_the_version_that_has_the_cpuset_controller_is_used(
    root: Path, tmp_path: Path, made: dict[str, str], kind: str | None
) -> None:
    root.mkdir()
    for name, text in made.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    if kind is None:
        with pytest.raises(KindUnavailableError, match=r"cgroup v2, cgroup v1 cannot be used: .*; no cpuset"):
            podgroups.discover(root, tmp_path)
    else:
        assert podgroups.discover(root, tmp_path).kind == kind


def test_a_controller_that_a_group_above_does_not_have_is_said(root: Path, tmp_path: Path) -> None:
    burstable, *_ = make(root, "kubepods/burstable")
    for group, has in ((root, "cpuset"), (burstable.parent, "cpu")):
        (group / "cgroup.controllers").write_text(has)
        (group / "cgroup.subtree_control").write_text(has)
    groups = podgroups.discover(root, tmp_path)
    with pytest.raises(CgroupError, match=r"kubepods/cgroup\.controllers: cpuset → a group above does not have it"):
        groups.set_pool(CPUSet.of(0))


def test_without_the_cpu_controller_nothing_is_limited_and_nothing_to_lift(root: Path, tmp_path: Path) -> None:
    make(root, "kubepods/pod1/app", "cpuset/kubepods/pod1/app")
    (root / "cgroup.controllers").write_text("cpuset")
    groups = podgroups.discover(root, tmp_path)
    assert groups.quota(root / "kubepods/pod1/app") == Quota(None)
    assert groups.set_quota(root / "kubepods/pod1", Quota(None)) == ()
    (root / "cgroup.controllers").unlink()
    for file in ("tasks", "cpuset.cpus"):
        (root / "cpuset" / file).write_text("")
    groups = podgroups.discover(root, tmp_path)
    assert groups.quota(root / "cpuset/kubepods/pod1/app") == Quota(None)
    assert groups.set_quota(root / "cpuset/kubepods/pod1", Quota(1000)) == ()
