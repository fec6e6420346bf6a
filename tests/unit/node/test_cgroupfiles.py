"""One cgroup file: written in one call, read back, and the kernel's objections in words."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from tests.needs import lacking, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = Path("/sys/fs/cgroup/cpuset")
needs_v1 = pytest.mark.skipif(
    not ((V1 / "tasks").exists() and os.access(V1, os.W_OK)), reason="no writable cgroup v1 cpuset is mounted here"
)


@pytest.fixture
def group() -> Iterator[Path]:
    path = V1 / f"pinfold-test-{uuid.uuid4().hex[:12]}"
    path.mkdir()
    yield path
    for below in (*path.iterdir(), path):
        if below.is_dir():
            below.rmdir()


@pytest.fixture
def everything() -> CPUSet:
    return files.read_cpus(V1 / "cpuset.cpus")


def fill(group: Path, cpus: CPUSet) -> None:
    files.write(group / "cpuset.mems", (V1 / "cpuset.mems").read_text().strip())
    files.write_cpus(group / "cpuset.cpus", cpus)


def test_what_is_not_kept_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    file.write_text("0123456789")  # an ordinary file keeps its tail, a cgroup file never does
    with pytest.raises(CgroupError) as error:
        files.write(file, "max")
    assert str(error.value) == f'{file}: max → the kernel kept "max3456789"'
    assert (error.value.path, error.value.value, error.value.name) == (file, "max", "")


def test_cpus_are_kept_however_the_kernel_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "cpuset.cpus"
    file.write_text("")
    files.write_cpus(file, CPUSet.of(0, 1, 2))
    assert files.read_cpus(file) == CPUSet.of(0, 1, 2)


def test_a_file_that_may_not_widen_only_shrinks(tmp_path: Path) -> None:
    file = tmp_path / "cpuset.cpus"
    for listed in ("0-1", "1-2"):
        file.write_text(listed)
        assert files.change_cpus(str(file), CPUSet.of(0, 1), lambda: False) == (listed == "0-1")
        assert file.read_text() == listed
    assert files.change_cpus(str(file), CPUSet.of(0, 1), lambda: True)
    assert file.read_text() == "0-1"
    with pytest.raises(CgroupError, match=r'cpuset.cpus: 0 → the kernel kept "0-1"'):  # as above
        files.change_cpus(str(file), CPUSet.of(0), lambda: False)


def test_nothing_is_created_by_writing(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match=r"cpuset.cpus: 1 → ENOENT: there is no such group") as error:
        files.write_cpus(tmp_path / "cpuset.cpus", CPUSet.of(1))
    assert isinstance(error.value.__cause__, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("x")
    with pytest.raises(CgroupError, match="ELOOP"):
        files.write(tmp_path / "cpu.max", "max")
    assert (tmp_path / "precious").read_text() == "x"


def test_a_nul_in_a_path_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="null"):
        files.read(tmp_path / "a\0b")


def test_long_files_are_read_whole_and_pids_sorted(tmp_path: Path) -> None:
    pids = list(range(1, 50_000))
    (tmp_path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in reversed([0, 0, *pids, 7])))
    assert files.read_pids(tmp_path) == pids


def test_groups_are_made_once_and_missing_ones_are_removed_silently(tmp_path: Path) -> None:
    assert [files.make_group(tmp_path / "a"), files.make_group(tmp_path / "a")] == [True, False]
    (tmp_path / "tasks").write_text("")
    with pytest.raises(CgroupError, match="make the group → EEXIST: something else has that name"):
        files.make_group(tmp_path / "tasks")
    assert files.groups_below(tmp_path) == [tmp_path / "a"]
    assert [files.has_below(path) for path in (tmp_path, tmp_path / "a", tmp_path / "missing")] == [True, False, False]
    files.remove_group(tmp_path / "a")
    files.remove_group(tmp_path / "a")
    assert files.groups_below(tmp_path / "a") == []


@needs_root
def test_a_missing_permission_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("")
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            os.chmod(tmp_path, 0o755)  # noqa: PTH101, S103
            os.chdir(tmp_path)
            os.setuid(65534)
            files.write(Path("cpuset.cpus"), "0")
        except CgroupError as error:
            status = 0 if "cpuset.cpus: 0 → EACCES: not permitted" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_v1
def test_a_cpu_that_does_not_exist(group: Path) -> None:
    with pytest.raises(CgroupError) as error:
        files.write_cpus(group / "cpuset.cpus", CPUSet.of(60_000))
    assert str(error.value) == f"{group}/cpuset.cpus: 60000 → ERANGE: no such CPU"
    assert (error.value.name, error.value.meaning) == ("ERANGE", "no such CPU")


@needs_v1
def test_a_process_in_a_group_without_cpus(group: Path) -> None:
    with pytest.raises(CgroupError, match=r"ENOSPC: the group has no CPUs or no NUMA nodes yet"):
        files.add_process(group, os.getpid())


@needs_v1
def test_a_group_with_processes_keeps_a_cpu(group: Path, everything: CPUSet) -> None:
    fill(group, everything)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        while True:
            os.sched_yield()
    try:
        files.add_process(group, child)
        with pytest.raises(CgroupError) as error:
            files.write_cpus(group / "cpuset.cpus", CPUSet())
        assert str(error.value).endswith("(nothing) → ENOSPC: the group has processes and would have no CPU")
        assert files.read_cpus(group / "cpuset.cpus") == everything
        with pytest.raises(CgroupError, match="remove the group → EBUSY: it has processes"):
            files.remove_group(group)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    with pytest.raises(CgroupError, match=f"cgroup.procs: {child} → ESRCH: there is no such process"):
        files.add_process(group, child)
    files.add_unless_gone(group, child)


@needs_v1
def test_children_stay_within_their_parents(group: Path, everything: CPUSet) -> None:
    below = group / "below"
    below.mkdir()
    first = CPUSet.of(everything.lowest)
    fill(group, first)
    if everything == first:
        lacking("two CPUs")
    with pytest.raises(CgroupError, match="EACCES: the group above does not have all of these CPUs"):
        fill(below, everything)
    fill(group, everything)
    fill(below, everything)
    path = f"{group}/cpuset.cpus"
    for write in (files.write_cpus, lambda path, cpus: files.change_cpus(path, cpus, lambda: False)):
        with pytest.raises(CgroupError, match="EBUSY: a group below has CPUs that would be taken away"):
            write(path, first)
    assert files.change_cpus(f"{below}/cpuset.cpus", first, lambda: False)
    assert files.read_cpus(below / "cpuset.cpus") == first
    with pytest.raises(CgroupError, match="EBUSY"):
        files.remove_group(group)
