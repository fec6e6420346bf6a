"""Partitions on plain files, which keep what is written; what a kernel says is tried in the guest (partition_scene)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node import cgroupfiles
from pinfold.node.processgroups.partitions import Partitions
from pinfold.node.processgroups.subtree import Subtree

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"cpuset.cpus.partition": "member", "cpuset.cpus.exclusive": "", "cpuset.cpus": "", "cpuset.cpus.effective": ""}


class Groups:
    """A subtree of plain files."""

    def __init__(self, root: Path) -> None:
        self.tree = Subtree(root, "pinfold")
        for group in (self.tree.top, self.tree.shared, self.tree.exclusive):
            make(group)
        self.partitions = Partitions(self.tree)
        self.partitions.kind = "root"
        self.told: list[str] = []
        self.partitions.told = self.told.append

    def owner(self, name: str, cpus: str, effective: str = "") -> Path:
        group = self.tree.exclusive / name / "app"
        make(group.parent)
        make(group)
        (group / "cpuset.cpus").write_text(cpus)
        (group / "cpuset.cpus.effective").write_text(effective or cpus)
        return group

    def tighten(self, name: str, cpus: str, effective: str = "") -> Path:
        group = self.owner(name, cpus, effective)
        self.partitions.tighten(group, CPUSet.parse(cpus))
        return group

    def named(self) -> list[str]:
        """Return the CPUs that the top and the pool of owners set aside."""
        return [(group / "cpuset.cpus.exclusive").read_text().strip() for group in (self.tree.top, self.tree.exclusive)]


def make(group: Path) -> None:
    if not group.is_dir():
        group.mkdir()
        for name, text in FILES.items():
            (group / name).write_text(text)


def state(group: Path) -> str:
    return (group / "cpuset.cpus.partition").read_text().strip()


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(cgroupfiles, "write_once", lambda path, text: path.write_text(text))  # a kernel keeps no rest
    return Groups(tmp_path)


def remove(group: Path) -> None:
    for directory in (group, group.parent):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def test_an_owner_is_a_partition_and_all_groups_above_set_its_cpus_aside(groups: Groups) -> None:
    first, second = groups.tighten("u", "2-3"), groups.tighten("v", "5")
    assert (state(first), state(second)) == ("root", "root")
    assert groups.named() == ["2-3,5"] * 2
    assert groups.partitions.weaker == groups.told == []


def test_what_is_set_aside_is_given_back_when_the_owner_has_gone(groups: Groups) -> None:
    remove(groups.tighten("u", "2-3"))
    groups.tighten("v", "5")
    groups.partitions.trim()
    assert groups.named() == ["5"] * 2


def test_a_partition_whose_cpus_change_is_given_up_first_and_one_whose_cpus_stay_is_not(groups: Groups) -> None:
    group = groups.tighten("u", "2-3")
    groups.partitions.loosen(group, CPUSet.parse("2-3"))
    assert state(group) == "root"
    groups.partitions.loosen(group, CPUSet.parse("2-4"))
    assert state(group) == "member"
    assert groups.named() == [""] * 2


def test_a_kernel_that_refuses_leaves_a_plain_cpuset_and_that_is_told_once(groups: Groups) -> None:
    group = groups.tighten("u", "2-3", effective="0-7")
    assert state(group) == "member"
    assert groups.named() == [""] * 2
    why = "container u/app has a plain cpuset and no scheduler partition: the kernel lets it run on 0-7"
    groups.partitions.trim()
    assert groups.told == groups.partitions.weaker == [why]
    assert groups.partitions.lost() == ""


def test_what_was_refused_is_tried_again_when_cpus_are_given_back(groups: Groups) -> None:
    group = groups.tighten("u", "2-3", effective="0-7")
    (group / "cpuset.cpus.effective").write_text("2-3")
    groups.partitions.trim()
    assert state(group) == "root"
    assert groups.partitions.weaker == []


@pytest.mark.parametrize("found", ["member", "root invalid (Parent is not a partition root)"])
def test_a_partition_that_another_program_undoes_is_named_and_made_again(groups: Groups, found: str) -> None:
    group = groups.tighten("u", "2-3")
    (group / "cpuset.cpus.partition").write_text(found)
    assert groups.partitions.lost() == f"{group}/cpuset.cpus.partition is {found}"
    groups.partitions.restore()
    assert state(group) == "root"


def test_a_daemon_without_the_option_undoes_what_an_earlier_one_has_left(groups: Groups) -> None:
    group = groups.tighten("u", "2-3")
    groups.partitions.kind = "member"
    groups.partitions.settle()
    assert state(group) == "member"
    assert groups.named() == [""] * 2


def test_a_daemon_with_the_option_makes_partitions_of_what_an_earlier_one_has_left(groups: Groups) -> None:
    group = groups.owner("u", "2-3")
    groups.partitions.settle()
    assert state(group) == "root"


def test_a_kernel_without_them_is_named(groups: Groups) -> None:
    (groups.tree.top / "cpuset.cpus.exclusive").unlink()
    group = groups.tighten("u", "2-3")
    assert state(group) == "member"
    assert "Linux 6.7 has" in groups.partitions.weaker[0]
