"""What a kubelet asks for: the values, and that pinfold reads the pod back from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod, build_pod
from pinfold.node.podgroups.paths import parse_cgroup_parent, parse_cgroups_path
from pinfold.runtimes.simulated.kubelet import CgroupDriver, Kubelet
from pinfold.runtimes.simulated.record import NotInRecord, Spec
from tests.unit.runtimes.simulated.scripts import GIB, NOW, burstable, exactly, guaranteed

BEST_EFFORT = Pod(PodUID("u-job"), "job", containers=(Container("app"),))
LIMITS_ALONE = Pod(PodUID("u-a"), "a", containers=(Container("app", Resources(limits=Amounts(1500, GIB))),))
POD_LEVEL = replace(BEST_EFFORT, resources=Resources(Amounts(3000, GIB), Amounts(3000, GIB)))
NO_LIMIT = Pod(PodUID("u-b"), "b", containers=(Container("app", Resources(Amounts(cpu=250))),))


@pytest.mark.parametrize(
    ("pod", "spec"),
    [
        (guaranteed(), Spec(2048, 200_000, 100_000, GIB)),
        (burstable(), Spec(512, 100_000, 100_000)),
        (BEST_EFFORT, Spec(2, 0, 100_000)),
        (LIMITS_ALONE, Spec(1536, 150_000, 100_000, GIB)),
        (NO_LIMIT, Spec(256, 0, 100_000)),
        (guaranteed(milli=1), Spec(2, 1000, 100_000, GIB)),
        (guaranteed(milli=300_000), Spec(262_144, 30_000_000, 100_000, GIB)),
        (POD_LEVEL, Spec(3072, 300_000, 100_000, GIB)),
    ],
    ids=["guaranteed", "burstable", "best effort", "limits alone", "no limit", "tiny", "huge", "pod level"],
)
def test_resources_are_what_the_kubelet_writes(pod: Pod, spec: Spec) -> None:
    assert Kubelet().spec(pod, "app") == spec


def test_without_cfs_quota_there_is_no_quota_and_no_period() -> None:
    kubelet = Kubelet(cfs_quota=False)
    assert kubelet.spec(guaranteed(), "app") == Spec(2048, memory=GIB)
    assert kubelet.pod_quota(guaranteed()).quota is None


@pytest.mark.parametrize(
    ("pod", "quota"),
    [(guaranteed(), 200_000), (burstable(), 100_000), (BEST_EFFORT, None), (NO_LIMIT, None), (POD_LEVEL, 300_000)],
    ids=["guaranteed", "burstable", "best effort", "no limit", "pod level"],
)
def test_pod_is_limited_if_all_its_containers_are(pod: Pod, quota: int | None) -> None:
    assert Kubelet().pod_quota(pod).quota == quota


def test_init_containers_count_for_the_pods_limit_only_where_they_need_more() -> None:
    pod = replace(guaranteed(), init=(exactly("setup", 5000),))
    assert Kubelet().pod_quota(pod).quota == 500_000
    assert Kubelet().pod_quota(replace(pod, init=(exactly("setup", 500),))).quota == 200_000


@pytest.mark.parametrize("driver", CgroupDriver)
@pytest.mark.parametrize("root", ["", "kubelet"])
@pytest.mark.parametrize("pod", [guaranteed(), burstable(), BEST_EFFORT], ids=lambda pod: pod.qos)
def test_pinfold_reads_the_pod_back_from_what_the_kubelet_writes(pod: Pod, root: str, driver: CgroupDriver) -> None:
    kubelet = Kubelet(driver, root)
    sandbox = kubelet.sandbox(pod, "s1", 0, NOW)
    container = kubelet.container(sandbox, "app", "c1", 0, NOW)
    spec = container.spec
    told = RuntimePod("s1", cgroup_parent=sandbox.cgroup_parent, labels=sandbox.labels)
    made = RuntimeContainer(
        "c1", "s1", labels=container.labels, shares=spec.shares, quota=spec.quota, period=spec.period
    )
    built = build_pod(told, [made])
    assert built is not None
    assert (built.uid, built.name, built.namespace, built.qos) == (pod.uid, pod.name, pod.namespace, pod.qos)
    [found] = built.containers
    assert (found.name, found.resources.requests.cpu) == ("app", pod.containers[0].resources.requests.cpu)


def test_container_is_in_the_group_of_its_pod_and_the_pod_in_that_of_its_class() -> None:
    for driver in CgroupDriver:
        kubelet = Kubelet(driver)
        sandbox = kubelet.sandbox(burstable(), "s1", 0, NOW)
        container = kubelet.container(sandbox, "app", "c1", 0, NOW)
        pod = parse_cgroup_parent(sandbox.cgroup_parent)
        assert parse_cgroups_path(container.cgroups_path)[:-1] == pod
        assert pod[:-1] in {parse_cgroup_parent(group) for group in kubelet.groups()}


def test_container_that_the_pod_does_not_have_is_refused() -> None:
    sandbox = Kubelet().sandbox(guaranteed(), "s1", 0, NOW)
    with pytest.raises(NotInRecord, match="no container of pod db is web; it has app"):
        Kubelet().container(sandbox, "web", "c1", 0, NOW)
