"""cpuset.mems of the groups of plain processes, in files as both cgroup versions have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.memory import set_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def group(tmp_path: Path) -> Path:
    (tmp_path / "cpuset.mems").write_text("0-1")
    (tmp_path / "group").mkdir()
    (tmp_path / "group/cpuset.mems").write_text("   ")
    return tmp_path / "group"


def test_v2_has_the_nodes_and_none_of_its_own_again(group: Path) -> None:
    (group / "cpuset.mems").write_text("0")
    set_memory([group], CPUSet.of(1))
    assert (group / "cpuset.mems").read_text() == "1"
    set_memory([group], None)
    assert (group / "cpuset.mems").read_text().strip() == ""


def test_v1_moves_memory_and_gets_the_nodes_above_back(group: Path) -> None:
    (group / "cpuset.memory_migrate").write_text("0")
    (group / "cpuset.mems").write_text("0")
    set_memory([group], CPUSet.of(1))
    assert (group / "cpuset.memory_migrate").read_text() == "1"
    assert (group / "cpuset.mems").read_text() == "1"
    set_memory([group], None)
    assert (group / "cpuset.mems").read_text() == "0-1"


def test_without_cgroups_it_is_refused() -> None:
    set_memory([], None)
    with pytest.raises(GroupError, match="needs cgroups"):
        set_memory([], CPUSet.of(0))
