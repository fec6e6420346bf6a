"""Where cgroup v2 is, and whether it can have the cpuset controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.unified import AVAILABLE, find_unified

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("below", [".", "unified"])
def test_it_is_found_at_the_path_or_in_its_directory(below: str, tmp_path: Path) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    (tmp_path / below / AVAILABLE).write_text("cpuset cpu\n")
    assert find_unified(tmp_path) == tmp_path / below


def test_a_group_above_can_hand_the_controller_down(tmp_path: Path) -> None:
    group = tmp_path / "user"
    group.mkdir()
    (group / AVAILABLE).write_text("")
    (tmp_path / AVAILABLE).write_text("cpuset\n")
    assert find_unified(group) == group


def test_without_it_or_without_the_controller_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(KindUnavailableError, match="it is not mounted at"):
        find_unified(tmp_path)
    (tmp_path / AVAILABLE).write_text("cpu memory\n")
    with pytest.raises(KindUnavailableError, match="has no cpuset controller; is it in use by cgroup v1"):
        find_unified(tmp_path)


def test_where_its_controllers_cannot_be_read_another_kind_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("cpuset\n")
    (tmp_path / AVAILABLE).symlink_to(tmp_path / "cgroup")
    with pytest.raises(KindUnavailableError, match=r"cgroup\.controllers: read → ELOOP"):
        find_unified(tmp_path)
