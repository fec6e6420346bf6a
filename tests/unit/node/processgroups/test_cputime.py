"""Quotas and weights, on plain files where a kernel would have its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.node.processgroups.cputime import CPUTimeV1, CPUTimeV2
from pinfold.node.processgroups.subtree import Subtree

if TYPE_CHECKING:
    from pathlib import Path

APP = ContainerRef(PodUID("pod"), "app")
PERIOD = {"app/cpu.cfs_period_us": "100000"}
FILES = {
    1: ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    2: ("cpu.weight", "cpu.max"),
}


def make_groups(root: Path, *files: str) -> None:
    for group in ("", "own", "own/shared", "own/shared/pod", "own/shared/pod/app"):
        (root / group).mkdir(exist_ok=True)
        for file in files:
            (root / group / file).touch()


def time_of(version: int, root: Path) -> CPUTimeV1 | CPUTimeV2:
    tree = Subtree(root, "own")
    return CPUTimeV1(tree) if version == 1 else CPUTimeV2(tree, is_there=(root / "cpu.weight").exists())


def written(root: Path) -> dict[str, str]:
    """Return every file that has a content, by its place below the pod."""
    pod = root / "own/shared/pod"
    return {str(path.relative_to(pod)): text for path in pod.rglob("cpu.*") if (text := path.read_text())}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, {"cpu.shares": "512", "app/cpu.shares": "512", "app/cpu.cfs_quota_us": "50000", **PERIOD}),
        (2, {"cpu.weight": "20", "app/cpu.weight": "20", "app/cpu.max": "50000 100000"}),
    ],
)
def test_a_container_gets_weight_and_quota_and_its_pod_the_weight(
    tmp_path: Path, version: int, expected: dict[str, str]
) -> None:
    make_groups(tmp_path, *FILES[version])
    time_of(version, tmp_path).set_limit(tmp_path / "own/shared/pod/app", Limit(request=500, limit=500))
    assert written(tmp_path) == expected


@pytest.mark.parametrize(("version", "file", "most"), [(1, "cpu.shares", "262144"), (2, "cpu.weight", "10000")])
def test_a_pod_weighs_as_much_as_its_containers_but_no_more_than_the_kernel_takes(
    tmp_path: Path, version: int, file: str, most: str
) -> None:
    make_groups(tmp_path, *FILES[version])
    pod = tmp_path / "own/shared/pod"
    (pod / "helper").mkdir()
    for name in ("app", "helper"):
        (pod / name / file).write_text("30")
    time_of(version, tmp_path).weigh(pod)
    assert (pod / file).read_text() == "60"
    (pod / "app" / file).write_text(most)
    time_of(version, tmp_path).weigh(pod)
    assert (pod / file).read_text() == most


NEW = {
    1: {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    2: {"cpu.weight": "100", "cpu.max": "max 100000"},
}
"""What a kernel gives a new group."""
AS_NEW = {1: Limit(request=1000), 2: Limit(request=2550)}
WEIGHT = {1: "cpu.shares", 2: "cpu.weight"}


def make_new_groups(root: Path, version: int) -> None:
    make_groups(root, *FILES[version])
    for group in ("own/shared/pod", "own/shared/pod/app"):
        for name, value in NEW[version].items():
            (root / group / name).write_text(value)


@pytest.mark.parametrize("limit", [Limit(request=500, limit=500), Limit(request=250), Limit(1500, 2000, 50_000)])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_new_group_gets_the_same_as_one_that_was_there(
    tmp_path: Path, version: int, limit: Limit, *, is_first: bool
) -> None:
    found = []
    for name, begin in (("new", True), ("old", False)):
        root = tmp_path / name
        root.mkdir()
        make_groups(root, *FILES[version])  # a plain file is not shortened by a write, so they begin without content
        if not is_first:
            (root / "own/shared/pod/before").mkdir()
            (root / "own/shared/pod/before" / WEIGHT[version]).write_text("30")
        time = time_of(version, root)
        if begin:
            time.begin(APP, limit, is_first=is_first)
        else:
            time.keep_limit(APP, limit)
        given = {f"{group}{file}": value for group in ("", "app/") for file, value in NEW[version].items()}
        found.append(given | written(root))
    assert found[0] == found[1]


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_new_group_has_already_is_not_written(tmp_path: Path, version: int) -> None:
    make_groups(tmp_path, *FILES[version])
    time_of(version, tmp_path).begin(APP, AS_NEW[version], is_first=True)
    assert written(tmp_path) == {}


@pytest.mark.parametrize("version", [1, 2])
def test_a_second_container_adds_to_the_weight_of_its_pod_though_it_has_that_of_a_new_group(
    tmp_path: Path, version: int
) -> None:
    make_new_groups(tmp_path, version)
    pod, file = tmp_path / "own/shared/pod", WEIGHT[version]
    (pod / "before").mkdir()
    (pod / "before" / file).write_text("30")
    time_of(version, tmp_path).begin(APP, AS_NEW[version], is_first=False)
    assert (pod / file).read_text() == str(30 + int(NEW[version][file]))


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_that_is_right_is_not_written_again(tmp_path: Path, version: int) -> None:
    make_groups(tmp_path, *FILES[version])
    name, unlimited = {1: ("cpu.cfs_quota_us", "-1"), 2: ("cpu.max", "max 100000")}[version]
    (tmp_path / "own/shared/pod" / name).write_text(unlimited)
    time, limit = time_of(version, tmp_path), Limit(request=500, limit=500)
    time.keep_limit(APP, limit)
    before = written(tmp_path)
    files = [path for path in (tmp_path / "own/shared/pod").rglob("cpu.*") if path.is_file()]
    stamps = {path: path.stat().st_mtime_ns for path in files}
    time.keep_limit(APP, limit)
    assert {path: path.stat().st_mtime_ns for path in files} == stamps
    time.keep_limit(APP, limit._replace(request=250))
    assert written(tmp_path) != before


@pytest.mark.parametrize("version", [1, 2])
def test_without_a_cpu_controller_nothing_is_written_and_that_is_said(tmp_path: Path, version: int) -> None:
    make_groups(tmp_path)
    time = time_of(version, tmp_path)
    time.set_limit(tmp_path / "own/shared/pod/app", Limit(request=500, limit=500))
    time.weigh(tmp_path / "own/shared/pod")
    assert written(tmp_path) == {}
    assert time.weaker == ["CPU limits and weights are not applied: there is no cpu controller"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_kernel_without_quotas_still_gets_weights_and_that_is_said(tmp_path: Path, version: int) -> None:
    weight = FILES[version][0]
    make_groups(tmp_path, weight)
    time = time_of(version, tmp_path)
    time.set_limit(tmp_path / "own/shared/pod/app", Limit(request=500, limit=500))
    assert set(written(tmp_path)) == {weight, f"app/{weight}"}
    assert time.weaker == ["CPU limits are not applied: this kernel has no CPU quotas"]


def test_v1_says_when_other_groups_have_the_real_time_budget(tmp_path: Path) -> None:
    make_groups(tmp_path, *FILES[1])
    (tmp_path / "own/exclusive").mkdir()
    (tmp_path / "own/exclusive/cpu.rt_runtime_us").write_text("0\n")
    (reason,) = time_of(1, tmp_path).weaker
    assert reason.startswith("exclusive processes cannot have real-time priority")
