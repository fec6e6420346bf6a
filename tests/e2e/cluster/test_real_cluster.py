"""pinfold on the node of a real cluster: API server, controllers, scheduler and kubelet 1.20, containerd 1.7."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.grpc.client import Channel
from pinfold.kubernetes.podresources import SOCKET
from pinfold.proto import podresources_pb2 as pb
from tests.e2e.cluster.api import APPLY, NotFound
from tests.e2e.cluster.cluster import BUSY, children, container, pod, show, spec
from tests.e2e.cluster.kubelet import NODE
from tests.e2e.containerd import allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import Sampler
from tests.needs import needs_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.cluster.api import Object
    from tests.e2e.cluster.cluster import Cluster, ClusterDaemon

    Serve = Callable[..., ClusterDaemon]

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_lab, needs_two_cpus]

OWN = ONLINE - RESERVED
ROUNDS = 5
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(RESERVED), "cpuManagerReconcilePeriod": "1s"}
"""Settings of a kubelet that assigns CPUs itself."""


# -- CPUs


def test_an_owner_has_its_cpus_before_its_first_instruction(cluster: Cluster, serve: Serve) -> None:
    serve()
    busy = children(cluster.run(pod("busy", container(0.5, command=BUSY, limited=False))).pid)
    late, looks, took = 0.0, 0, []
    for number in range(ROUNDS):
        with Sampler(busy) as sampler:
            began = time.monotonic()
            owner = cluster.run(pod(f"owner-{number}", container(SPARE)))
            took.append(time.monotonic() - began)
            time.sleep(0.5)
        assert allowed(owner.pid) == OWN
        assert owner.first.split()[-1] == str(OWN), owner
        late = max([late, *(found.late for found in sampler.overlaps(owner.pid, OWN))])
        looks += sampler.looks_after(owner.pid)
        cluster.remove(f"owner-{number}")
    show(
        f"{ROUNDS} owners beside a busy pod: {late:.3f} s of overlap in {looks} looks, running after {min(took):.1f} s"
    )
    assert (late, looks > 0) == (0.0, True)


@pytest.mark.parametrize(
    "source",
    ["auto", "api-server", "https://127.0.0.1:10250/pods", "http://127.0.0.1:10255/pods"],
    ids=["found by itself", "API server", "kubelet with a token", "read-only port"],
)
def test_a_pod_with_an_init_container_has_the_same_cpus_for_both(cluster: Cluster, serve: Serve, source: str) -> None:
    older = {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}  # nodes/pods: Kubernetes 1.33
    cluster.allow(more=(older,) if "10250" in source else ())
    daemon = serve("--pods-from", source)
    began = time.monotonic()
    init = container(SPARE, name="init", command="grep Cpus_allowed_list /proc/self/status")
    owner = cluster.run(pod("db", container(SPARE), init=(init,)))
    took = time.monotonic() - began
    assert (allowed(owner.pid), daemon.cpus("db")) == (OWN, OWN)
    assert cluster.printed(owner.uid, "init").split()[-1] == str(OWN)
    assert daemon.events("pod-in-parts", "refused") == []
    show(f"init and main on {SPARE} CPU, whole pod from {source}: running after {took:.1f} s")


def test_the_base_rights_are_too_few_for_the_pods_of_an_older_kubelet_and_that_is_told(
    cluster: Cluster, serve: Serve
) -> None:
    cluster.allow()
    daemon = serve("--pods-from", "https://127.0.0.1:10250/pods")
    cluster.run(pod("db", container(SPARE)))
    (told,) = daemon.events("pods-not-read")
    assert "nodes" in told["why"], told
    show(told["why"])


# -- refusals


def test_a_refused_pod_fails_and_stays_so_and_an_event_has_the_kubelets_reason(cluster: Cluster, serve: Serve) -> None:
    cluster.allow("fail-refused-pods")
    daemon = serve("--on-refusal", "fail")
    began = time.monotonic()
    cluster.api.create(pod("big", container(SPARE + 1)))
    wait_for(lambda: cluster.phase("big") == "Failed", "it fails", 60)
    took = time.monotonic() - began
    (event,) = wait_for(lambda: cluster.warnings("big"), "an event is made")
    seen, end = set(), time.monotonic() + 25  # a kubelet writes its own status back within 10 s
    while time.monotonic() < end:
        seen.add(cluster.phase("big"))
        time.sleep(0.2)
    final = cluster.status("big")
    assert seen == {"Failed"}, final
    assert (event["type"], event["reason"]) == ("Warning", "UnexpectedAdmissionError")
    assert len(daemon.events("pod-failed")) == 1
    # This kubelet removes reason and message; newer ones keep them. What the runtime said stays in both.
    (left,) = final["containerStatuses"]
    assert "UnexpectedAdmissionError" in left["state"]["waiting"]["message"], left
    kept = final.get("reason", "removed by the kubelet")
    show(f"Failed {took:.1f} s after it was made and for 25 s since; status.reason: {kept}; event: {event['message']}")


def test_a_deployment_whose_pods_are_refused_makes_few_of_them(cluster: Cluster, serve: Serve) -> None:
    cluster.allow("fail-refused-pods")
    # The node has room for two of these pods, as the scheduler and the kubelet count.
    gate = ("--feature-gates", "CPUManagerPolicyAlphaOptions=true")
    daemon = serve("--on-refusal", "fail", "--policy-options", f"min-shared-cpus={len(ONLINE)}", *gate)
    labels = {"app": "big"}
    template = {"metadata": {"labels": labels}, "spec": spec(container(SPARE))}
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    cluster.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "big"}, "spec": wanted})
    time.sleep(60)
    pods = cluster.api.all("Pod")
    phases = [one["status"]["phase"] for one in pods]
    told = [event["message"] for one in pods for event in cluster.warnings(one["metadata"]["name"])]
    show(f"a Deployment made {len(pods)} pods in 60 s: {', '.join(phases)}; pinfold: {told[-1:]}")
    assert 2 <= len(pods) <= 5
    refused = [(event["pod"], event["message"]) for event in daemon.events("refused")]
    names = [name for name, _ in refused]  # the kubelet may have refused others itself (OutOfcpu)
    assert len(names) == len(set(names)) >= 2, refused  # once for each pod, however often the kubelet tries
    assert any("stays Pending" in message for message in told), told


def test_by_default_a_refused_pod_waits_and_starts_when_there_is_room(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    first = cluster.run(pod("first", container(SPARE)))
    cluster.api.create(pod("second", container(SPARE, limited=True)))

    def waiting() -> str:
        statuses = cluster.status("second").get("containerStatuses", [])
        return str(statuses[0]["state"].get("waiting", {}).get("reason", "")) if statuses else ""

    wait_for(lambda: waiting() == "CreateContainerError", "it is refused", 60)
    assert allowed(first.pid) == OWN
    began = time.monotonic()
    cluster.remove("first")
    second = cluster.running("second")
    assert allowed(second.pid) == OWN
    refused = [(event["pod"], event["message"]) for event in daemon.events("refused")]
    assert len(refused) == 1, refused
    show(f"a pod that waited has the CPUs {time.monotonic() - began:.1f} s after the other was deleted")


# -- the node's topology for schedulers


def crd() -> Object:
    """Return a definition of NodeResourceTopology with the fields that are published."""
    text = {"type": "string"}
    named = {"type": "array", "items": {"type": "object", "properties": {"name": text, "value": text}}}
    costs = {"type": "array", "items": {"type": "object", "properties": {"name": text, "value": {"type": "integer"}}}}
    amount = {"x-kubernetes-int-or-string": True}
    amounts = {"name": text, "capacity": amount, "allocatable": amount, "available": amount}
    resources = {"type": "array", "items": {"type": "object", "properties": amounts}}
    zone = {"name": text, "type": text, "costs": costs, "resources": resources, "attributes": named}
    fields = {
        "attributes": named,
        "topologyPolicies": {"type": "array", "items": text},
        "zones": {"type": "array", "items": {"type": "object", "properties": zone}},
    }
    plural, kind = "noderesourcetopologies", "NodeResourceTopology"
    schema = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {
            "group": "topology.node.k8s.io",
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": "v1alpha2", "served": True, "storage": True, "schema": schema}],
        },
    }


def available(topology: Object) -> list[str]:
    return [zone["resources"][0]["available"] for zone in topology["zones"]]


def test_the_nodes_topology_is_told_absent_published_contested_and_removed(cluster: Cluster, serve: Serve) -> None:
    api = cluster.api
    cluster.allow("publish-topology")
    daemon = serve("--publish-topology")
    (told,) = wait_for(lambda: daemon.events("topology-not-published"), "it is told that there is no such kind")
    assert told["why"].endswith("install the NodeResourceTopology CRD")
    show(f"without the CRD: {told['why']}")
    daemon.kill(signal.SIGTERM)

    api.create(crd())
    wait_for(lambda: _is_served(cluster), "the kind is served", 60)
    daemon.start("--publish-topology")
    found = wait_for(lambda: api.find("NodeResourceTopology", NODE), "it is published")
    assert available(found) == [str(SPARE)]
    assert [one["manager"] for one in found["metadata"]["managedFields"]] == ["pinfold"]
    began = time.monotonic()
    cluster.run(pod("db", container(SPARE)))
    wait_for(lambda: available(api.get("NodeResourceTopology", NODE)) == ["0"], "it is current")
    show(f"published by server-side apply; current {time.monotonic() - began:.1f} s after an owner was made")
    daemon.kill(signal.SIGTERM)
    assert api.find("NodeResourceTopology", NODE) is not None  # the next daemon goes on with it
    daemon.start("--publish-topology")
    wait_for(lambda: daemon.verb("leave").returncode == 0, "it leaves")
    daemon.kill()
    assert api.find("NodeResourceTopology", NODE) is None

    path = f"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{NODE}?fieldManager=other"
    theirs = {**{key: found[key] for key in ("apiVersion", "kind", "zones")}, "metadata": {"name": NODE}}
    theirs["zones"][0]["resources"][0]["available"] = "77"
    api.send("PATCH", path, theirs, APPLY)
    daemon.start("--publish-topology")
    conflict = wait_for(
        lambda: [one for one in daemon.events("topology-not-published") if "other" in one["why"]], "told"
    )
    assert available(api.get("NodeResourceTopology", NODE)) == ["77"]
    show(f"beside another publisher: {conflict[0]['why'][:150]}")
    daemon.kill(signal.SIGTERM)
    assert available(api.get("NodeResourceTopology", NODE)) == ["77"]  # it is not ours to remove
    api.delete("CustomResourceDefinition", "noderesourcetopologies.topology.node.k8s.io")


def _is_served(cluster: Cluster) -> bool:
    try:
        return cluster.api.all("NodeResourceTopology") == []
    except NotFound:
        return False


# -- leaving


def test_after_leaving_new_pods_of_every_class_start_on_all_cpus(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    assert (allowed(owner.pid), allowed(sharer.pid)) == (OWN, RESERVED)
    said = daemon.verb("leave")
    assert said.returncode == 0, said
    new = [cluster.run(pod("best", container())), cluster.run(pod("burst", container(0.1, limited=False)))]
    assert {allowed(one.pid) for one in (owner, sharer, *new)} == {ONLINE}
    show(f"leave: {said.stdout.strip()}; new BestEffort and Burstable pods start on {ONLINE}")


@pytest.fixture
def none_kubelet(cluster: Cluster) -> Iterator[None]:
    """Have the kubelet as it was after a test that gives it another policy."""
    yield
    cluster.remove_all()
    cluster.kubelet.program.stop()
    (cluster.kubelet.directory / "cpu_manager_state").unlink(missing_ok=True)
    cluster.kubelet.start()


@pytest.mark.usefixtures("none_kubelet")
def test_a_static_kubelet_goes_on_with_what_pinfold_hands_back(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    cluster.kubelet.program.stop()
    said = daemon.verb("hand-back", "--kubelet-dir", str(cluster.kubelet.directory))
    assert said.returncode == 0, said
    cluster.kubelet.start(**STATIC)
    assert cluster.containerd.running() != []
    wait_for(lambda: (allowed(owner.pid), allowed(sharer.pid)) == (OWN, RESERVED), "the kubelet has taken over", 60)
    new = cluster.run(pod("best", container()))
    wait_for(lambda: allowed(new.pid) == RESERVED, "the kubelet narrows a new pod", 60)
    cluster.remove("db")
    other = cluster.run(pod("next", container(SPARE)))
    wait_for(lambda: allowed(other.pid) == OWN, "the kubelet assigns the CPUs again", 60)
    show(f"{said.stdout.splitlines()[0]}; the static kubelet kept {OWN} for db and gave it to the next owner")


@pytest.mark.usefixtures("none_kubelet")
def test_a_static_kubelet_that_starts_beside_pinfold_is_noticed_and_not_fought(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    owner = cluster.run(pod("db", container(SPARE)))
    cluster.kubelet.program.stop()
    (cluster.kubelet.directory / "cpu_manager_state").unlink()
    cluster.kubelet.start(**STATIC)
    began = time.monotonic()
    wait_for(lambda: daemon.client.get("/v1/node")["read_only"], "pinfold only watches", 30)
    took = time.monotonic() - began
    wait_for(lambda: daemon.cpus("db") == OWN, "the kubelet's assignment is shown", 30)
    assert allowed(owner.pid) == OWN
    cluster.remove("db")
    after = cluster.run(pod("next", container(SPARE)))
    wait_for(lambda: allowed(after.pid) == OWN, "the kubelet assigns", 60)
    wait_for(lambda: daemon.cpus("next") == OWN, "that is shown", 30)
    show(f"noticed {took:.1f} s after the static kubelet was ready; its assignments are shown, pinfold only watches")


# -- kills


def test_kills_of_pinfold_the_kubelet_and_containerd_move_nothing(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    owner, sharer = cluster.run(pod("db", container(SPARE))), cluster.run(pod("web", container()))
    before = [(owner.pid, OWN), (sharer.pid, RESERVED)]
    moved = []
    with Sampler([pid for pid, _ in before]) as sampler:
        daemon.kill()
        daemon.start()
        cluster.kubelet.program.stop(signal.SIGKILL)
        cluster.kubelet.start()
        links = daemon.links()
        cluster.containerd.kill()
        cluster.containerd.start()
        daemon.linked(links)
        daemon.settled()
        late = cluster.run(pod("late", container()))
        time.sleep(3)
    for _, thread, cpus in sampler.samples:
        moved += [(thread, cpus)] if cpus and (thread, cpus) not in before else []
    assert moved == []
    assert allowed(late.pid) == RESERVED
    assert {one.pid for one in cluster.containerd.running()} == {owner.pid, sharer.pid, late.pid}
    show(f"kill -9 of pinfold, kubelet and containerd: 0 moves in {len(sampler.samples)} looks, no container restarted")


# -- what the kubelet tells


def test_the_kubelets_podresources_are_read(cluster: Cluster, serve: Serve) -> None:
    daemon = serve()
    cluster.run(pod("db", container(SPARE)))
    assert daemon.events("hints-not-read") == []
    answer = asyncio.run(_listed(cluster.kubelet.directory / SOCKET))
    assert [(one.namespace, one.name, [part.name for part in one.containers]) for one in answer] == [
        ("default", "db", ["app"])
    ]
    show(f"PodResources v1 of the kubelet: {len(answer)} pod, {len(answer[0].containers)} container")


async def _listed(path: Path) -> list[pb.PodResources]:
    channel = Channel(str(path))
    try:
        found = await channel.call("/v1.PodResourcesLister/List", b"")
    finally:
        channel.close()
    return list(pb.ListPodResourcesResponse.FromString(found).pod_resources)
