"""When the flags of containers are cleared to move them quickly on cgroup v1, and when they get them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.node.podgroups.balance import FLAG, BalanceFlags

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "b")


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    pod = tmp_path / "pod1"
    for group in (tmp_path, pod, *(pod / name for name in NAMES)):
        group.mkdir(exist_ok=True)
        (group / FLAG).write_text("1\n")
    return pod


def flags(pod: Path) -> dict[str, str]:
    return {path.name: (path / FLAG).read_text().strip() for path in (pod, *sorted(pod.iterdir())) if path.is_dir()}


def add(pod: Path, name: str) -> None:
    (pod / name).mkdir()
    (pod / name / FLAG).write_text("1\n")


def clear(group: Path) -> None:
    (group / FLAG).write_text("0\n")


def test_containers_lose_the_flag_while_their_pod_balances_and_the_pod_keeps_it(pod: Path) -> None:
    BalanceFlags(pod.parent).spare(pod, NAMES)
    assert flags(pod) == {"pod1": "1", "a": "0", "b": "0"}


def test_a_flag_is_cleared_once_and_that_of_a_new_container_when_it_comes(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod, NAMES)
    (pod / "a" / FLAG).write_text("untouched")
    add(pod, "c")
    balance.spare(pod, [*NAMES, "c"])
    assert flags(pod) == {"pod1": "1", "a": "untouched", "b": "0", "c": "0"}


def test_where_no_group_above_balances_containers_have_their_flags(pod: Path) -> None:
    for group in (pod.parent, pod, pod / "a"):  # the last by an earlier daemon, while another balanced
        clear(group)
    BalanceFlags(pod.parent).spare(pod, NAMES)
    assert flags(pod) == {"pod1": "0", "a": "1", "b": "1"}


def test_flags_come_back_when_nothing_above_balances_any_more(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod, NAMES)
    clear(pod)
    balance.heed(list)
    assert flags(pod) == {"pod1": "0", "a": "0", "b": "0"}, "the top group balances, so no flag below means anything"
    clear(pod.parent)
    balance.heed(list)
    assert flags(pod) == {"pod1": "0", "a": "1", "b": "1"}


def test_a_pod_that_has_lost_its_flag_too_gets_it_back_with_its_containers(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod.parent, [pod.name])
    balance.spare(pod, NAMES)
    assert flags(pod) == {"pod1": "0", "a": "0", "b": "0"}
    clear(pod.parent)
    balance.heed(list)
    assert flags(pod) == {"pod1": "1", "a": "1", "b": "1"}


def test_flags_that_an_earlier_daemon_has_cleared_come_back_too_and_are_looked_for_once(pod: Path) -> None:
    looked: list[int] = []

    def others() -> list[Path]:
        looked.append(1)
        return [pod, *(pod / name for name in NAMES)]

    balance = BalanceFlags(pod.parent)
    for group in (pod.parent, pod, pod / "a"):
        clear(group)
    for _ in range(3):
        balance.heed(others)
    assert (flags(pod), looked) == ({"pod1": "1", "a": "1", "b": "1"}, [1])


def test_flags_stay_cleared_while_the_pods_own_still_means_something(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod, NAMES)
    clear(pod.parent)
    balance.heed(list)
    assert flags(pod) == {"pod1": "1", "a": "0", "b": "0"}


def test_a_flag_is_given_back_whichever_daemon_has_cleared_it(pod: Path) -> None:
    clear(pod / "a")
    for name in NAMES:
        BalanceFlags(pod.parent).give_back(pod / name)
    assert flags(pod) == {"pod1": "1", "a": "1", "b": "1"}


def test_the_flag_of_an_owner_is_given_back_only_where_it_means_nothing(pod: Path) -> None:
    clear(pod / "a")
    BalanceFlags(pod.parent).give_back(pod / "a", is_owner=True)
    assert flags(pod) == {"pod1": "1", "a": "1", "b": "1"}
    for group in (pod.parent, pod, pod / "a"):
        clear(group)
    BalanceFlags(pod.parent).give_back(pod / "a", is_owner=True)
    assert flags(pod) == {"pod1": "0", "a": "0", "b": "1"}


def test_groups_that_are_gone_and_kernels_without_the_flag_are_no_error(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod, [*NAMES, "gone"])
    balance.give_back(pod / "gone")
    for name in NAMES:
        (pod / name / FLAG).unlink()
    (pod / FLAG).unlink()
    balance.spare(pod, NAMES)
    balance.spare(pod / "gone", NAMES)
    assert not any(path.name == FLAG for path in pod.rglob("*"))


def test_pods_that_are_gone_are_forgotten_and_the_others_kept(pod: Path) -> None:
    balance = BalanceFlags(pod.parent)
    balance.spare(pod, NAMES)
    for number in range(1000):
        other = f"other{number}"
        add(pod.parent, other)
        balance.spare(pod.parent, [other])
        (pod.parent / other / FLAG).unlink()
        (pod.parent / other).rmdir()
    assert len(balance._cleared) < 300  # noqa: SLF001 - nothing else shows it
    (pod / "a" / FLAG).write_text("untouched")
    balance.spare(pod, NAMES)
    assert flags(pod)["a"] == "untouched"
