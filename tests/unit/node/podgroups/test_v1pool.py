"""How the pods and containers of the pool are set on v1; their names are listed again when they may have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.balance import BalanceFlags
from pinfold.node.podgroups.v1pool import V1Pool

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.node.cgroupfiles import Directory

CPUS = "cpuset.cpus"
# Lists of the same length, as a plain file keeps what a shorter one leaves.
EVERY, MORE, SOME = CPUSet.parse("0-3"), CPUSet.parse("0-2"), CPUSet.parse("0-1")


@pytest.fixture
def above(tmp_path: Path) -> Path:
    add(tmp_path, "pod1", "pod1/a", "pod1/b", "pod2", "pod2/a")
    return tmp_path


def add(above: Path, *names: str) -> None:
    for name in names:
        (above / name).mkdir()
        (above / name / CPUS).write_text("0-3")


def share(pool: V1Pool, above: Path, cpus: CPUSet, **which: object) -> bool:
    """Share, where no container has groups below it."""
    return pool.share(above, cpus, pytest.fail, **which)  # type: ignore[arg-type]


def cpus_of(above: Path) -> dict[str, str]:
    return {str(path.parent.relative_to(above)): path.read_text() for path in sorted(above.rglob(CPUS))}


def make_pool(above: Path) -> V1Pool:
    return V1Pool(BalanceFlags(above))


def test_all_pods_are_set_or_those_that_are_named(above: Path) -> None:
    pool = make_pool(above)
    assert share(pool, above, SOME, pods=["pod2"])
    assert cpus_of(above) == {"pod1": "0-3", "pod1/a": "0-3", "pod1/b": "0-3", "pod2": "0-1", "pod2/a": "0-1"}
    assert share(pool, above, SOME)
    assert set(cpus_of(above).values()) == {"0-1"}


def test_a_pod_that_is_not_settled_keeps_what_it_has_and_that_is_told(above: Path) -> None:
    assert not share(make_pool(above), above, SOME, settled=[above / "pod2"])
    assert cpus_of(above) == {"pod1": "0-3", "pod1/a": "0-1", "pod1/b": "0-1", "pod2": "0-1", "pod2/a": "0-1"}


def test_containers_with_groups_below_them_are_left_to_the_caller_when_there_is_room_above(above: Path) -> None:
    pool = make_pool(above)
    share(pool, above, SOME)
    add(above, "pod1/a/inner")
    seen = []

    def move(container: Path) -> None:
        seen.append((container, (container.parent / CPUS).read_text()))

    pool.share(above, EVERY, move)
    assert seen == [(above / "pod1" / "a", "0-3")]
    assert {name: cpus for name, cpus in cpus_of(above).items() if cpus != "0-3"} == {"pod1/a": "0-1"}


def test_names_are_listed_once_while_there_are_as_many(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(above)
    share(pool, above, SOME)
    with monkeypatch.context() as patched:
        patched.delattr(cgroupfiles, "names_below")
        share(pool, above, EVERY, pods=["pod1"])
    add(above, "pod1/c")
    share(pool, above, SOME)
    assert set(cpus_of(above).values()) == {"0-1"}


def test_where_a_name_is_gone_they_are_listed_again(above: Path) -> None:
    pool = make_pool(above)
    share(pool, above, SOME)
    (above / "pod1/a").rename(above / "pod1/c")
    share(pool, above, EVERY)
    assert set(cpus_of(above).values()) == {"0-3"}


def test_what_is_taken_from_all_is_written_without_a_look_before(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(above)
    share(pool, above, EVERY)
    monkeypatch.delattr(cgroupfiles, "change_cpus")
    share(pool, above, SOME)
    assert set(cpus_of(above).values()) == {"0-1"}


def moved(pool: V1Pool, above: Path, cpus: CPUSet) -> list[Path]:
    seen: list[Path] = []
    pool.share(above, cpus, seen.append)
    return seen


def test_containers_that_widen_in_a_pod_that_shrinks_are_looked_at(above: Path) -> None:
    pool = make_pool(above)
    share(pool, above, EVERY)
    assert not share(pool, above, SOME, settled=[])
    add(above, "pod1/a/inner")
    assert moved(pool, above, MORE) == [above / "pod1" / "a"]


def test_containers_of_a_pod_that_can_have_owners_are_looked_at(above: Path) -> None:
    pool = make_pool(above)
    share(pool, above, EVERY, pods=["pod1"])
    add(above, "pod1/a/inner")
    (above / "pod1/a" / CPUS).write_text("0-1")  # it has had these CPUs for itself
    seen: list[Path] = []
    pool.share(above, MORE, seen.append, pods=["pod1"])
    assert seen == [above / "pod1" / "a"]


def test_after_an_error_containers_are_looked_at(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(above)
    share(pool, above, EVERY)
    write = cgroupfiles.write_cpus

    def write_until(path: str, cpus: CPUSet, directory: Directory) -> None:
        if path.startswith("pod1/b"):
            raise CgroupError(above / path, str(cpus), "EIO", "the test says so")
        write(path, cpus, directory)

    with monkeypatch.context() as patched:
        patched.setattr(cgroupfiles, "write_cpus", write_until)
        with pytest.raises(CgroupError, match="EIO"):
            share(pool, above, SOME)
    assert (above / "pod1/a" / CPUS).read_text() == "0-1"
    add(above, "pod1/a/inner")
    assert moved(pool, above, MORE) == [above / "pod1" / "a"]


def test_a_container_that_came_since_is_looked_at(above: Path) -> None:
    pool = make_pool(above)
    share(pool, above, EVERY)
    add(above, "pod1/c", "pod1/c/inner")
    (above / "pod1/c" / CPUS).write_text("0-1")
    assert moved(pool, above, MORE) == [above / "pod1" / "c"]


def test_groups_that_are_gone_are_passed_over(above: Path) -> None:
    pool = make_pool(above)
    assert share(pool, above / "gone", SOME)
    assert share(pool, above, SOME, pods=["gone", "pod2"], settled=[above / "pod2"])
    assert cpus_of(above)["pod2"] == "0-1"


def test_a_pod_whose_file_cannot_be_read_is_an_error(above: Path) -> None:
    (above / "pod1" / CPUS).unlink()
    with pytest.raises(CgroupError, match=r"pod1/cpuset\.cpus: open → ENOENT"):
        share(make_pool(above), above, SOME)
