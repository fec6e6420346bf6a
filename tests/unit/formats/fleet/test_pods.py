from __future__ import annotations

import pytest

from pinfold.errors import ParseError
from pinfold.formats.fleet.pods import MAX_WORKLOADS, parse_workloads
from pinfold.formats.pods.manifest import parse_pods
from pinfold.planning.shard import FleetWorkload

SPEC = "{containers: [{name: app, resources: {limits: {cpu: 2, memory: 1Gi}}}]}"


def owner(kind: str, api: str, count: str) -> str:
    return f"{{kind: {kind}, apiVersion: {api}, metadata: {{name: web}}, spec: {{{count}template: {{spec: {SPEC}}}}}}}"


def pod(name: str = "web", rest: str = "") -> str:
    return f"{{kind: Pod, metadata: {{name: {name}}}, spec: {SPEC}{rest}}}"


def workloads(text: str, times: int = 1) -> list[tuple[str, int]]:
    return [(found.name, found.replicas) for found in parse_workloads(text, times=times).workloads]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (pod(), 1),
        (owner("Deployment", "apps/v1", "replicas: 150000, "), 150_000),
        (owner("Deployment", "apps/v1", ""), 1),
        (owner("StatefulSet", "apps/v1", "replicas: 3, "), 3),
        (owner("ReplicaSet", "apps/v1", "replicas: 0, "), 0),
        (owner("ReplicationController", "v1", "replicas: 4, "), 4),
        (owner("Job", "batch/v1", "parallelism: 5, "), 5),
        (owner("Job", "batch/v1", "parallelism: 5, completions: 2, "), 2),
    ],
)
def test_each_kind_with_pods_is_one_workload(text: str, count: int) -> None:
    assert workloads(text) == [("web", count)]


def test_replicas_are_multiplied() -> None:
    assert workloads(owner("Deployment", "apps/v1", "replicas: 3, "), times=5) == [("web", 15)]


def test_lists_are_opened() -> None:
    assert workloads(f"{{kind: PodList, items: [{pod('a')}, {pod('b')}]}}") == [("a", 1), ("b", 1)]


def test_the_pod_is_the_one_that_podyaml_reads() -> None:
    text = owner("Deployment", "apps/v1", "")
    (found,) = parse_workloads(text).workloads
    (single,) = parse_pods(text).pods
    assert isinstance(found, FleetWorkload)
    assert (found.pod.containers, found.pod.qos) == (single.containers, single.qos)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("{kind: Service, metadata: {name: web}}", "document 1: skipped Service web: it contains no pods to place"),
        (pod(rest=", status: {phase: Succeeded}"), "document 1: skipped Pod web: it has ended (Succeeded)"),
        (owner("DaemonSet", "apps/v1", ""), "document 1: skipped DaemonSet web: the scheduler does not score"),
        (owner("Deployment", "example.com/v1", ""), "document 1: skipped Deployment web: it contains no pods"),
    ],
)
def test_what_adds_no_pods_is_noted(text: str, note: str) -> None:
    found = parse_workloads(text)
    assert found.workloads == ()
    assert found.ignored[0].startswith(note)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "pods.yaml: document 1: 5 where a Kubernetes object"),
        ("{metadata: {name: web}}", "pods.yaml: document 1: kind: missing"),
        (f"{pod()}\n---\n{pod()}", 'pods.yaml: document 2: metadata.name: Pod "default/web" is a duplicate'),
        (owner("Job", "batch/v1", "parallelism: x, "), 'pods.yaml: document 1: spec.parallelism: "x" where a whole'),
        (
            owner("Deployment", "apps/v1", "replicas: 9999999, "),
            "pods.yaml: document 1: spec.replicas: 9999999 is more",
        ),
        ("{kind: Job, metadata: {name: web}}", "pods.yaml: document 1: spec.template: missing; a pod template"),
        (pod().replace("cpu: 2", "cpu: x"), "pods.yaml: document 1: spec.containers[0].resources.limits.cpu"),
    ],
)
def test_what_is_wrong_is_said_with_file_document_field_and_value(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_workloads(text, source="pods.yaml")
    assert str(raised.value).startswith(message)


def test_too_many_workloads_are_refused() -> None:
    pods = [pod(f"p{number}") for number in range(MAX_WORKLOADS + 1)]
    with pytest.raises(ParseError, match=r"document 10001: more than 10,000 workloads"):
        parse_workloads("\n---\n".join(pods))
