"""The objects that make pods: reading them one by one or by the workload gives the same."""

from __future__ import annotations

import pytest

from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.fleet.pods import parse_workloads
from pinfold.formats.pods.manifest import parse_pods
from pinfold.formats.pods.objects import PodObjects, read_template

SPEC = "{containers: [{name: app}]}"
WRONG = {
    "no object": "5",
    "no kind": "{metadata: {name: web}}",
    "version": f"{{kind: Pod, apiVersion: 5, metadata: {{name: web}}, spec: {SPEC}}}",
    "name": f"{{kind: Pod, metadata: {{name: We}}, spec: {SPEC}}}",
    "namespace": f"{{kind: Pod, metadata: {{name: web, namespace: a.b}}, spec: {SPEC}}}",
    "no template": "{kind: Deployment, metadata: {name: web}}",
    "number as template": "{kind: Deployment, metadata: {name: web}, spec: {template: 5}}",
    "replicas": f"{{kind: Deployment, metadata: {{name: web}}, spec: {{replicas: x, template: {{spec: {SPEC}}}}}}}",
    "in a list": "{kind: PodList, items: [{metadata: {name: web}}]}",
    "twice": f"{{kind: List, items: [{', '.join([f'{{kind: Pod, metadata: {{name: web}}, spec: {SPEC}}}'] * 2)}]}}",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_the_same_for_pods_and_workloads(text: str) -> None:
    said = []
    for parse in (parse_pods, parse_workloads):
        with pytest.raises(ParseError) as caught:
            parse(text, source="f")
        assert isinstance(caught.value, DocumentError)
        said.append([str(problem) for problem in caught.value.problems])
    assert said[0] == said[1]
    assert len(set(said[0])) == len(said[0])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet", "Job", "Service", "Pod"])
@pytest.mark.parametrize("group", ["", "apps/", "batch/", "extensions/", "example.com/"])
def test_a_kind_makes_pods_for_both_or_for_neither(kind: str, group: str) -> None:
    inner = SPEC if kind == "Pod" else f"{{template: {{spec: {SPEC}}}}}"
    text = f"{{kind: {kind}, apiVersion: {group}v1, metadata: {{name: web}}, spec: {inner}}}"
    assert bool(parse_pods(text).pods) is bool(parse_workloads(text).workloads)


def test_objects_come_in_order_with_the_kind_that_their_list_gives_them() -> None:
    objects = PodObjects()
    text = "{kind: List, items: [{kind: JobList, items: [{}, {kind: Pod}]}, {kind: Service}]}\n---\n---\n{kind: Pod}"
    found = [(each.kind, each.field.where) for each in objects.read(text, "f")]
    assert found == [
        ("Job", "f: document 1: items[0].items[0]"),
        ("Pod", "f: document 1: items[0].items[1]"),
        ("Service", "f: document 1: items[1]"),
        ("Pod", "f: document 3"),
    ]
    assert objects.problems.found == []


@pytest.mark.parametrize(
    ("kind", "spec", "replicas", "counted"),
    [
        ("Deployment", "{replicas: 3, template: {}}", 3, "spec.replicas"),
        ("DaemonSet", "{replicas: 3, template: {}}", 1, ""),
        ("Job", "{parallelism: 3, completions: 2, template: {}}", 2, "spec.parallelism"),
        ("CronJob", "{jobTemplate: {spec: {parallelism: 3, template: {}}}}", 3, "spec.jobTemplate.spec.parallelism"),
    ],
)
def test_a_template_is_counted_where_its_kind_says(kind: str, spec: str, replicas: int, counted: str) -> None:
    (found,) = PodObjects().read(f"{{kind: {kind}, spec: {spec}}}", "")
    row = found.pod_kind()
    assert row is not None
    template = read_template(found.field, row)
    assert template is not None
    assert (template.replicas, template.counted.path) == (replicas, counted)
