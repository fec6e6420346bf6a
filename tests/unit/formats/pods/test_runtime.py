"""Pods from what a runtime alone says: QoS class, amounts, identity, and what else may be known."""

from __future__ import annotations

import pytest

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, QoS, Resources, exclusive_cpus
from pinfold.errors import ParseError
from pinfold.formats.pods.annotations import SHARED, Overrides
from pinfold.formats.pods.manifest import parse_pods
from pinfold.formats.pods.runtime import (
    MAX_SHARES,
    CgroupPlace,
    OverrideError,
    Phase,
    RuntimeContainer,
    RuntimePod,
    build_pod,
    is_workload,
    latest,
    milli_of_quota,
    milli_of_shares,
    parent_of,
    parse_parent,
    ref_of,
)

UID = "7b1e8d5c-2f4a-4c8e-9d3b-5a6f7e8d9c0b"
SLICE_UID = UID.replace("-", "_")
GUARANTEED = f"/kubepods/pod{UID}"
BURSTABLE = f"/kubepods/burstable/pod{UID}"
BEST_EFFORT = f"/kubepods/besteffort/pod{UID}"


def pod(parent: str = GUARANTEED) -> RuntimePod:
    return RuntimePod("s1", UID, "web", "default", parent)


def container(name: str, cpus: float = 2, *, quota: int | None = None, attempt: int = 0) -> RuntimeContainer:
    milli = round(cpus * 1000)
    return RuntimeContainer(
        f"{name}-{attempt}",
        "s1",
        name,
        Phase.CREATED,
        attempt=attempt,
        shares=max(2, min(MAX_SHARES, milli * 1024 // 1000)),
        quota=milli * 100 if quota is None else quota,
        period=100_000,
    )


def built(*containers: RuntimeContainer, parent: str = GUARANTEED, overrides: Overrides | None = None) -> Pod:
    found = build_pod(pod(parent), containers, overrides=overrides or Overrides())
    assert found is not None
    return found


def exclusive(pod: Pod) -> dict[str, int]:
    return {container.name: exclusive_cpus(pod, container) for container in pod.all_containers}


@pytest.mark.parametrize(
    ("parent", "qos"),
    [
        (GUARANTEED, QoS.GUARANTEED),
        (BURSTABLE, QoS.BURSTABLE),
        (BEST_EFFORT, QoS.BEST_EFFORT),
        (f"kubepods/pod{UID}", QoS.GUARANTEED),
        (f"{BURSTABLE}/", QoS.BURSTABLE),
        (f"/custom/kubepods/pod{UID}", QoS.GUARANTEED),
        (f"/a/b/kubepods/besteffort/pod{UID}", QoS.BEST_EFFORT),
        (f"/kubepods/burstable/podouter/kubelet/kubepods/pod{UID}", QoS.GUARANTEED),
        (f"kubepods-pod{SLICE_UID}.slice", QoS.GUARANTEED),
        (f"kubepods-burstable-pod{SLICE_UID}.slice", QoS.BURSTABLE),
        (f"kubepods-besteffort-pod{SLICE_UID}.slice", QoS.BEST_EFFORT),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice", QoS.BURSTABLE),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice", QoS.GUARANTEED),
        (f"custom-kubepods-besteffort-pod{SLICE_UID}.slice", QoS.BEST_EFFORT),
    ],
)
def test_the_parent_cgroup_tells_the_class(parent: str, qos: QoS) -> None:
    assert parse_parent(parent) == CgroupPlace(qos, UID)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "/",
        "/system.slice",
        "/kubepods",
        "/kubepods/burstable",
        "/mykubepods/pod1",
        "kubepods.slice",
        "kubepods-burstable.slice",
        "xkubepods-pod1.slice",
        "/kubepods/other/pod1",
        f"{GUARANTEED}/more",
        "/docker/0123456789ab",
    ],
)
def test_other_cgroups_are_not_of_kubernetes(parent: str) -> None:
    assert parse_parent(parent) is None
    assert build_pod(pod(parent), [container("app")]) is None


def test_a_static_pod_has_a_hash_for_a_uid() -> None:
    place = parse_parent("/kubepods/burstable/pod0f3e2d1c0b9a88776655443322110012")
    assert place == CgroupPlace(QoS.BURSTABLE, "0f3e2d1c0b9a88776655443322110012")


@pytest.mark.parametrize(
    ("path", "parent"),
    [
        (f"{BURSTABLE}/0123", BURSTABLE),
        (f"{GUARANTEED}/crio-0123", GUARANTEED),
        (f"kubepods-pod{SLICE_UID}.slice:cri-containerd:0123", f"kubepods-pod{SLICE_UID}.slice"),
        ("", ""),
    ],
)
def test_the_cgroup_of_a_container_tells_the_pods(path: str, parent: str) -> None:
    assert parent_of(path) == parent


def test_a_runtime_that_tells_no_parent_is_asked_by_its_containers() -> None:
    app = container("app")._replace(cgroups_path=f"{GUARANTEED}/0123")
    found = build_pod(pod(parent=""), [app])
    assert found is not None
    assert found.qos is QoS.GUARANTEED


def test_smallest_and_largest_amounts() -> None:
    assert milli_of_shares(2) <= 2
    assert milli_of_shares(0) == milli_of_shares(-5) == 0
    assert milli_of_shares(MAX_SHARES) == 256_000
    assert milli_of_quota(1000, 100_000) == 10


def test_a_whole_guaranteed_container_is_exclusive_and_a_fractional_one_is_not() -> None:
    assert exclusive(built(container("app", 2), container("log", 0.5))) == {"app": 2, "log": 0}


@pytest.mark.parametrize("quota", [0, -1])
def test_shares_decide_where_quotas_are_off(quota: int) -> None:
    found = built(container("app", 3, quota=quota), container("log", 1.5, quota=quota))
    assert exclusive(found) == {"app": 3, "log": 0}
    assert found.qos is QoS.GUARANTEED


def test_quotas_decide_where_shares_end() -> None:
    assert exclusive(built(container("app", 300))) == {"app": 300}


def test_quotas_decide_where_shares_are_not_told() -> None:
    assert exclusive(built(container("app", 3)._replace(shares=None))) == {"app": 3}


def test_a_smallest_quota_does_not_make_a_whole_cpu() -> None:
    # With a period of 1 ms the kubelet writes 1000 for everything below one CPU.
    half = container("app", 0.5)._replace(quota=1000, period=1000)
    assert exclusive(built(half)) == {"app": 0}


def test_a_burstable_container_has_its_request_and_limit_but_no_exclusive_cpus() -> None:
    found = built(container("app", 2), container("log", 0.25, quota=200_000), parent=BURSTABLE)
    assert exclusive(found) == {"app": 0, "log": 0}
    log = found.containers[1].resources
    assert (log.requests.cpu, log.limits.cpu) == (250, 2000)


def test_a_best_effort_container_has_no_amounts() -> None:
    found = built(container("app", 0, quota=0), parent=BEST_EFFORT)
    assert found.qos is QoS.BEST_EFFORT
    assert not found.containers[0].resources.is_set


def test_a_debug_container_does_not_change_the_class_of_a_guaranteed_pod() -> None:
    found = built(container("app", 2), RuntimeContainer("d", "s1", "debugger", shares=2))
    assert found.qos is QoS.GUARANTEED
    assert exclusive(found) == {"app": 2, "debugger": 0}


def test_nothing_told_of_amounts_is_never_exclusive() -> None:
    assert exclusive(built(RuntimeContainer("c", "s1", "app"))) == {"app": 0}


@pytest.mark.parametrize("period", [0, -1, None])
def test_a_missing_period_is_the_kernels(period: int | None) -> None:
    odd = container("app", 2)._replace(period=period, shares=None)
    found = built(odd)
    assert found.qos is QoS.GUARANTEED
    assert exclusive(found) == {"app": 0 if period == -1 else 2}


def test_a_pod_grows_as_containers_appear() -> None:
    first, second = container("app", 2), container("log", 1)
    assert exclusive(built(first)) == {"app": 2}
    assert exclusive(built(first, second)) == {"app": 2, "log": 1}


def test_labels_stand_in_for_names_that_are_not_told() -> None:
    labels = {"io.kubernetes.pod.uid": UID, "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "prod"}
    bare = RuntimePod("s1", cgroup_parent=GUARANTEED, labels=labels)
    app = container("")._replace(labels={"io.kubernetes.container.name": "app"})
    found = build_pod(bare, [app])
    assert found is not None
    assert (found.uid, found.name, found.namespace, found.containers[0].name) == (UID, "web", "prod", "app")


@pytest.mark.parametrize(
    "sandbox",
    [
        RuntimeContainer("s1", "s1", "POD", annotations={"io.kubernetes.cri.container-type": "sandbox"}),
        RuntimeContainer("s1", "s1", "POD", annotations={"io.kubernetes.cri-o.ContainerType": "sandbox"}),
        RuntimeContainer("s1", "s1", "POD", labels={"io.kubernetes.docker.type": "podsandbox"}),
        RuntimeContainer("s1", "s1"),
    ],
    ids=["containerd", "cri-o", "docker", "without a name"],
)
def test_the_sandbox_is_no_container(sandbox: RuntimeContainer) -> None:
    assert not is_workload(sandbox)
    assert exclusive(built(sandbox, container("app"))) == {"app": 2}


def test_a_restarted_container_keeps_its_identity() -> None:
    first, again = container("app", 2, attempt=0), container("app", 2, attempt=1)
    assert ref_of(pod(), first) == ref_of(pod(), again)
    assert exclusive(built(first, again)) == {"app": 2}


def test_the_restart_count_tells_the_latest_start() -> None:
    notes = [{"io.kubernetes.container.restartCount": count} for count in ("10", "9", "x", "9" * 5000)]
    starts = [container("app", 2)._replace(id=str(index), annotations=note) for index, note in enumerate(notes)]
    assert latest(starts)["app"].id == "0"


def test_without_a_count_the_attempt_and_the_time_tell_the_latest_start() -> None:
    old, new = container("app", attempt=1), container("app", attempt=2)
    assert latest([new, old])["app"] == new
    assert latest([new._replace(id="b", created=5), new])["app"].id == "b"


@pytest.mark.parametrize(
    "odd",
    [
        pod()._replace(uid="../../etc"),
        pod()._replace(uid=""),
        pod()._replace(uid="a" * 129),
        pod()._replace(name="a/b"),
        pod()._replace(namespace="A\n"),
    ],
)
def test_names_that_kubernetes_would_not_give_are_refused(odd: RuntimePod) -> None:
    with pytest.raises(ParseError, match=r"runtime: pod: .* of Kubernetes"):
        build_pod(odd, [container("app")])


def test_a_container_name_that_kubernetes_would_not_give_is_refused() -> None:
    with pytest.raises(ParseError, match=r'"\.\./x" is not a valid container name of Kubernetes'):
        build_pod(pod(), [container("../x")])


SPEC = """
kind: Pod
metadata: {name: web, uid: %s}
spec:
  initContainers:
  - {name: proxy, restartPolicy: Always, resources: {limits: {cpu: 1, memory: 1Gi}}}
  - {name: setup, resources: {limits: {cpu: 4, memory: 1Gi}}}
  containers:
  - {name: app, resources: {limits: {cpu: 3, memory: 2Gi}}}
"""


def known(text: str = SPEC % UID) -> Pod:
    return parse_pods(text).pods[0]


def test_a_known_pod_tells_init_containers_and_those_that_are_still_to_come() -> None:
    found = build_pod(pod(), [container("proxy", 1)], known=known())
    assert found is not None
    assert [(one.name, one.sidecar) for one in found.init] == [("proxy", True), ("setup", False)]
    assert exclusive(found) == {"proxy": 1, "setup": 4, "app": 3}


def test_the_runtime_is_right_about_amounts_after_a_resize() -> None:
    found = build_pod(pod(), [container("app", 5)], known=known())
    assert found is not None
    assert exclusive(found) == {"proxy": 1, "setup": 4, "app": 5}


def test_a_known_pod_of_another_class_tells_the_order_only() -> None:
    loose = known(SPEC.replace("memory: 2Gi", "") % UID)
    assert loose.qos is QoS.BURSTABLE
    found = build_pod(pod(), [container("app", 2)], known=loose)
    assert found is not None
    assert found.qos is QoS.GUARANTEED
    assert exclusive(found) == {"proxy": 0, "setup": 0, "app": 2}


def test_a_known_pod_tells_what_is_beyond_the_largest_shares() -> None:
    two = Amounts(300_000, 1 << 30)
    large = Pod(PodUID(UID), "web", containers=(Container("app", Resources(two, two)),))
    found = build_pod(pod(), [container("app", 300, quota=-1)], known=large)
    assert found is not None
    assert exclusive(found) == {"app": 300}


def test_pod_level_resources_give_no_exclusive_cpus_although_the_runtime_shows_the_pods_limit() -> None:
    spec = "{kind: Pod, metadata: {name: web}, spec: {resources: {limits: {cpu: 4, memory: 1Gi}}, containers: [%s]}}"
    whole = known(spec % "{name: a}, {name: b}")
    found = build_pod(pod(), [container("a", 4), container("b", 4)], known=whole)
    assert found is not None
    assert found.qos is QoS.GUARANTEED
    assert exclusive(found) == {"a": 0, "b": 0}
    with pytest.raises(OverrideError, match="pod-level resources"):
        build_pod(pod(), [container("a", 4)], known=whole, overrides=Overrides({"a": 1}))


def test_annotations_tell_init_containers_and_sidecars() -> None:
    overrides = Overrides(init=frozenset({"setup"}), sidecars=frozenset({"proxy"}))
    found = built(container("proxy", 1), container("setup", 4), container("app", 3), overrides=overrides)
    assert [(one.name, one.sidecar) for one in found.init] == [("proxy", True), ("setup", False)]
    assert [one.name for one in found.containers] == ["app"]


def test_an_annotation_keeps_a_container_in_the_shared_pool() -> None:
    overrides = Overrides({"app": SHARED, "log": SHARED})
    found = built(container("app", 2), container("log", 0.5), container("db", 1), overrides=overrides)
    assert exclusive(found) == {"app": 0, "log": 0, "db": 1}
    assert found.qos is QoS.GUARANTEED


def test_an_annotation_keeps_a_container_of_any_class_shared() -> None:
    for parent in (BURSTABLE, BEST_EFFORT):
        assert exclusive(built(container("app", 1), parent=parent, overrides=Overrides({"app": SHARED}))) == {"app": 0}


def test_an_annotation_gives_at_most_what_the_container_requests() -> None:
    assert exclusive(built(container("app", 2.5), overrides=Overrides({"app": 2}))) == {"app": 2}
    with pytest.raises(OverrideError, match=r'cpus\.app": 3 exclusive CPUs, but the container requests 2500m'):
        built(container("app", 2.5), overrides=Overrides({"app": 3}))


def test_an_annotation_tells_what_is_beyond_the_largest_shares() -> None:
    assert exclusive(built(container("app", 300, quota=-1), overrides=Overrides({"app": 300}))) == {"app": 300}


@pytest.mark.parametrize("parent", [BURSTABLE, BEST_EFFORT])
def test_an_annotation_gives_no_exclusive_cpus_outside_guaranteed_pods(parent: str) -> None:
    with pytest.raises(OverrideError, match=r"pod default/web: .*only Guaranteed pods can have them"):
        built(container("app", 2), parent=parent, overrides=Overrides({"app": 1}))
