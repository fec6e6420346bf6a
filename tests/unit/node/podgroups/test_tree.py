"""Finding the groups of pods in a directory tree, and which paths are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.node.grouperrors import GroupError
from pinfold.node.podgroups.files import Directories
from pinfold.node.podgroups.paths import GroupPathError, NotInAPodError
from pinfold.node.podgroups.tree import AmbiguousKubepodsError, PodTree

UID = "7d2c0e6a-0f3b-4b8e-9a53-1f4f7c1f2a10"
SLICED = UID.replace("-", "_")
ID = "4f" * 32
HOSTILE = [
    "",
    "/",
    "//",
    "/.",
    "/..",
    "/kubepods/../../etc",
    "/kubepods/pod1/..",
    "/kubepods//pod1/app",
    "/kubepods/pod1/app/",
    "/kubepods/pod1/\0",
    "/kubepods/pod1/a\nb",
    "/kubepods/pod1/\ud800",
    "/kubepods/pod1/" + "x" * 256,
    "/kubepods/pod1" + "/x" * 3000,
    "kubepods/pod1/app",
    "../kubepods/pod1/app",
    "::",
    "a:b",
    "a.slice:b:",
    "a.slice:b:c:d",
    "a:b:c",
    "-a.slice:b:c",
    "a--b.slice:b:c",
    "a/b.slice:b:c",
    "../a.slice:b:c",
    "a.slice:../../b:c",
    "a.slice:b:../c",
    "a.slice:b:c/../../d",
    "-.slice:b:\0",
    ".slice:b:c",
    "a-" * 5000 + "b.slice:c:d",
]
PLACES = {
    f"/kubepods/burstable/pod{UID}/{ID}": f"kubepods/burstable/pod{UID}/{ID}",
    f"/kubepods/pod{UID}/crio-{ID}": f"kubepods/pod{UID}/crio-{ID}",
    f"/a/b/kubepods/besteffort/pod{UID}/{ID}": f"a/b/kubepods/besteffort/pod{UID}/{ID}",
    f"kubepods-pod{SLICED}.slice:cri-containerd:{ID}": (
        f"kubepods.slice/kubepods-pod{SLICED}.slice/cri-containerd-{ID}.scope"
    ),
    f"kubepods-burstable-pod{SLICED}.slice:crio:{ID}": (
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice/crio-{ID}.scope"
    ),
    f"kubelet-kubepods-besteffort-pod{SLICED}.slice::{ID}": (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
        f"/kubelet-kubepods-besteffort-pod{SLICED}.slice/{ID}.scope"
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> PodTree:
    return PodTree(Directories(root, unified=True, proc=tmp_path / "proc"))


def make(root: Path, *groups: str) -> list[Path]:
    for group in groups:
        (root / group).mkdir(parents=True)
    return [root / group for group in groups]


def say(proc: Path, pid: int, text: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cgroup").write_text(text)


@pytest.mark.parametrize(("told", "place"), PLACES.items(), ids=lambda text: text[:24])
def test_a_container_is_where_its_runtime_says(tree: PodTree, root: Path, told: str, place: str) -> None:
    container = tree.paths.container(told)
    assert container == root / place
    assert tree.paths.checked_container(container) == container
    assert tree.paths.checked_pod(container.parent) == tree.paths.checked(container.parent) == container.parent
    parent = told.partition(":")[0] if ":" in told else str(Path(told).parent)
    assert tree.paths.pod(parent) == tree.paths.pod(f"/{Path(place).parent}") == container.parent


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: ascii(path[:30]))
def test_a_hostile_path_is_an_error_of_ours(tree: PodTree, path: str) -> None:
    with pytest.raises(GroupPathError, match="cgroup path") as refusal:
        tree.paths.container(path)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200
    with pytest.raises(GroupPathError, match="cgroup path"):
        tree.paths.pod(path)


@given(st.text() | st.text(alphabet="/.:-ab").map(lambda text: f"/kubepods{text}"))
def test_no_path_leads_out_of_the_hierarchy(text: str) -> None:
    tree = PodTree(Directories(Path("/root/of/it"), unified=True))
    for find in (tree.paths.container, tree.paths.pod):
        try:
            found = find(text)
        except GroupError:
            continue
        assert Path(os.path.normpath(found)) == found
        assert found.is_relative_to(tree.root)
        assert found != tree.root


@pytest.mark.parametrize(
    "path",
    [
        "/system.slice/ssh.service",
        "/kubepods",
        "/kubepods/burstable",
        "/kubepods/pod1",
        "/kubepods/pod/app",
        "/kubepods/burst/pod1/app",
        "/docker/pod1/app",
        "kubepods-pod.slice:a:b",
        "system.slice:docker:x",
        "kubepods.slice:a:b",
        ":a:b",
    ],
)
def test_what_is_no_container_of_a_pod_is_not_touched(tree: PodTree, path: str) -> None:
    with pytest.raises(NotInAPodError, match="is not the group of a pod's container below kubepods"):
        tree.paths.container(path)


@pytest.mark.parametrize("parent", ["/kubepods", "/kubepods/pod1/app", "kubepods.slice", "/x/pod1"])
def test_what_is_no_pod_is_not_taken_for_one(tree: PodTree, parent: str) -> None:
    with pytest.raises(NotInAPodError, match="is not the group of a pod below kubepods"):
        tree.paths.pod(parent)


def test_a_group_that_is_not_below_the_hierarchy_is_refused(tree: PodTree, root: Path) -> None:
    for group in (Path("/etc"), root, root / "..", root / "kubepods/../../x", Path("kubepods/pod1/app")):
        with pytest.raises(GroupPathError):
            tree.paths.checked(group)


def test_a_process_is_found_in_its_container_and_in_groups_that_it_made(
    tree: PodTree, root: Path, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    say(proc, 1, "0::/init.scope\n")
    say(proc, 2, f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    say(proc, 3, f"0::/kubepods/burstable/pod{UID}/{ID}/container/x (deleted)\n")
    say(proc, 4, f"0::/kubepods/burstable/pod{UID}\n")
    say(proc, 5, "0::/../../kubepods/pod1/app\n")
    container = root / f"kubepods/burstable/pod{UID}/{ID}"
    assert [tree.of_process(pid) for pid in (1, 2, 3, 4, 99)] == [None, container, container, None, None]
    with pytest.raises(GroupPathError, match="outside of our cgroup namespace"):
        tree.of_process(5)


@pytest.mark.parametrize(
    ("kubepods", "burstable"),
    [
        ("kubepods", "burstable"),
        ("kubepods.slice", "kubepods-burstable.slice"),
        ("a/b/kubepods", "burstable"),
        ("kubelet.slice/kubelet-kubepods.slice", "kubelet-kubepods-burstable.slice"),
    ],
)
def test_the_groups_of_all_pods_are_found_wherever_they_are(
    tree: PodTree, root: Path, kubepods: str, burstable: str
) -> None:
    make(root, "system.slice/x.service/kubepods", "docker/1/2/3/kubepods")
    assert (tree.kubepods(), tree.pooled()) == (None, [])
    (pooled,) = make(root, f"{kubepods}/{burstable}")
    assert (tree.kubepods(), tree.pooled()) == (root / kubepods, [pooled])


def test_the_one_nearest_to_the_top_is_the_kubelets(tree: PodTree, root: Path) -> None:
    (top, _) = make(root, "z/kubepods", "a/b/kubepods")
    assert tree.kubepods() == top


def test_of_two_kubelets_one_must_be_named(tree: PodTree, root: Path) -> None:
    _, second, *_ = make(root, "a/kubepods", "b/kubepods", "b/kubepods/burstable")
    with pytest.raises(
        AmbiguousKubepodsError, match=r"more than one kubelet: .*a/kubepods, .*b/kubepods; choose one with"
    ):
        tree.kubepods()
    named = PodTree(Directories(root, unified=True), "/b/kubepods")
    assert (named.kubepods(), named.pooled()) == (second, [second / "burstable"])
    assert PodTree(Directories(root, unified=True), "c-kubepods.slice").kubepods() is None


def test_pods_and_containers_are_listed_without_what_is_neither(tree: PodTree, root: Path) -> None:
    pooled, pod, container, *_ = make(
        root, "kubepods/burstable", "kubepods/burstable/pod1", "kubepods/burstable/pod1/app", "kubepods/burstable/other"
    )
    (inner,) = make(root, "kubepods/burstable/pod1/app/inner")
    assert tree.pods_and_containers(pooled) == [pod, container]
    assert tree.pods_and_containers(pod) == tree.containers(pod) == [container]
    assert tree.below(pooled)[-1] == inner
    assert [tree.paths.levels(group) for group in (pooled, pod, container, inner)] == [2, 1, 0, -1]


def test_members_are_those_of_all_groups_below(tree: PodTree, root: Path) -> None:
    container, inner = make(root, "kubepods/pod1/app", "kubepods/pod1/app/inner")
    (container / "cgroup.procs").write_text("7\n3\n")
    (inner / "cgroup.procs").write_text("5\n0\n")
    assert tree.members(container) == [3, 5, 7]
    assert tree.members(root / "kubepods/pod1/gone") == []
