"""PodPaths: the paths of pods and containers, remembered while these are there."""

from __future__ import annotations

from pathlib import Path

from pinfold.node.podgroups.podpaths import PodPaths

PODS = [f"/kubepods/pod{number:08}" for number in range(200)]


def test_paths_of_pods_that_are_gone_are_forgotten() -> None:
    paths = PodPaths(Path("/sys/fs/cgroup"))
    for pod in PODS:
        paths.pod(pod)
        paths.container(f"{pod}/c")
    paths.trim(pods=200, containers=200)
    assert paths.pod.cache_info().currsize == paths.container.cache_info().currsize == 200
    paths.trim(pods=200, containers=20)
    assert (paths.pod.cache_info().currsize, paths.container.cache_info().currsize) == (200, 0)
    assert paths.container(f"{PODS[0]}/c") == Path("/sys/fs/cgroup/kubepods/pod00000000/c")
