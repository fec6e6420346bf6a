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

CPUS = "cpuset.cpus"
# Lists of the same length, as a plain file keeps what a shorter one leaves.
EVERY, SOME = CPUSet.parse("0-3"), CPUSet.parse("0-1")


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


def test_groups_that_are_gone_are_passed_over(above: Path) -> None:
    pool = make_pool(above)
    assert share(pool, above / "gone", SOME)
    assert share(pool, above, SOME, pods=["gone", "pod2"], settled=[above / "pod2"])
    assert cpus_of(above)["pod2"] == "0-1"


def test_a_pod_whose_file_cannot_be_read_is_an_error(above: Path) -> None:
    (above / "pod1" / CPUS).unlink()
    with pytest.raises(CgroupError, match=r"pod1/cpuset\.cpus: open → ENOENT"):
        share(make_pool(above), above, SOME)
