"""Pods from YAML and JSON: which objects make pods, the API's defaults and checks, errors that say where."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import Amounts, QoS, Resources, exclusive_cpus
from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.pods.manifest import MAX_PODS, parse_pods

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Pod

GIB = 1 << 30
FULL = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: prod
  uid: 6f1c0e5e-0000-4000-8000-000000000001
  labels: {app: web}
  annotations:
    pinfold.dev/movable: "false"
spec:
  restartPolicy: OnFailure
  overhead: {cpu: 250m, memory: 1Mi}
  initContainers:
  - name: setup
    command: [sh, -c, "echo hi"]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
  - name: proxy
    restartPolicy: Always
    resources: {limits: {cpu: 1, memory: 64Mi}}
  containers:
  - name: app
    image: nginx:1.25
    command: [/app]
    args: ["--port", "80"]
    workingDir: /srv
    env:
    - {name: A, value: "1"}
    - {name: EMPTY}
    - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
    resources:
      requests: {cpu: "2", memory: 1Gi}
      limits: {cpu: 2.0, memory: 1Gi, nvidia.com/gpu: 1}
"""


def pod_text(container: str = "{name: app}", spec: str = "", metadata: str = "{name: web}") -> str:
    return f"kind: Pod\nmetadata: {metadata}\nspec:\n  containers: [{container}]\n  {spec}\n"


def with_limits(amounts: str) -> str:
    return pod_text(f"{{name: app, resources: {{limits: {{{amounts}}}}}}}")


def only_pod(text: str) -> Pod:
    (pod,) = parse_pods(text).pods
    return pod


def problems(text: str, source: str = "") -> list[str]:
    with pytest.raises(ParseError) as caught:
        parse_pods(text, source=source)
    error = caught.value
    return [str(problem) for problem in error.problems] if isinstance(error, DocumentError) else [str(error)]


def test_every_field_of_use_is_read() -> None:
    pod = only_pod(FULL)
    assert (pod.name, pod.namespace, pod.uid) == ("web", "prod", "6f1c0e5e-0000-4000-8000-000000000001")
    assert (pod.labels, pod.annotations) == ({"app": "web"}, {"pinfold.dev/movable": "false"})
    assert (pod.restart_policy, pod.overhead) == ("OnFailure", Amounts(250, 1 << 20))
    assert [(container.name, container.sidecar) for container in pod.init] == [("setup", False), ("proxy", True)]
    assert pod.init[0].command == ("sh", "-c", "echo hi")
    (app,) = pod.containers
    assert (app.command, app.args, app.working_dir) == (("/app",), ("--port", "80"), "/srv")
    assert app.env == (("A", "1"), ("EMPTY", ""))
    assert app.resources == Resources(Amounts(2000, GIB), Amounts(2000, GIB))
    assert (pod.qos, exclusive_cpus(pod, app)) == (QoS.GUARANTEED, 2)


def test_requests_default_to_limits() -> None:
    pod = only_pod(with_limits("cpu: 2, memory: 1Gi"))
    assert pod.containers[0].resources.requests == Amounts(2000, GIB)
    assert pod.qos is QoS.GUARANTEED


def test_limits_do_not_default_to_requests() -> None:
    pod = only_pod(pod_text("{name: app, resources: {requests: {cpu: 2, memory: 1Gi}}}"))
    assert pod.containers[0].resources.limits == Amounts()
    assert pod.qos is QoS.BURSTABLE


@pytest.mark.parametrize(
    ("amount", "milli"), [("2", 2000), ("0.5", 500), ('"2"', 2000), ("250m", 250), ("1e1", 10_000), ("0.0001", 1)]
)
def test_an_amount_may_be_a_number_or_text(amount: str, milli: int) -> None:
    assert only_pod(with_limits(f"cpu: {amount}")).containers[0].resources.limits.cpu == milli


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        pytest.param("{limits: {cpu: 4, memory: 2Gi}}", Amounts(1000, 2 * GIB), id="containers', then limits"),
        pytest.param("{limits: {memory: 2Gi}}", Amounts(1000, 2 * GIB), id="one limit brings the containers' cpu"),
        pytest.param("{requests: {cpu: 3}, limits: {cpu: 4}}", Amounts(3000, None), id="what is set stays"),
        pytest.param("{requests: {cpu: 3}}", Amounts(3000, None), id="without limits nothing is defaulted"),
    ],
)
def test_pod_level_requests_default_to_the_containers_requests_then_to_limits(
    resources: str, requests: Amounts
) -> None:
    pod = only_pod(pod_text("{name: app, resources: {requests: {cpu: 1}}}", f"resources: {resources}"))
    assert pod.resources is not None
    assert pod.resources.requests == requests


@pytest.mark.parametrize("resources", ["{}", "null", "{limits: {}}"])
def test_empty_pod_level_resources_are_none(resources: str) -> None:
    assert only_pod(pod_text(spec=f"resources: {resources}")).resources is None


def workload(kind: str, version: str = "apps/v1", extra: str = "", name: str = "db") -> str:
    template = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: app}]}}"
    spec = f"{{{template}{extra}}}"
    if kind == "CronJob":
        spec = f"{{jobTemplate: {{spec: {spec}}}}}"
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: prod}}\nspec: {spec}\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(workload("Deployment"), 1, id="Deployment"),
        pytest.param(workload("Deployment", extra=", replicas: 3"), 3, id="Deployment of three"),
        pytest.param(workload("Deployment", extra=", replicas: 0"), 0, id="Deployment of none"),
        pytest.param(workload("StatefulSet", extra=", replicas: 2"), 2, id="StatefulSet"),
        pytest.param(workload("ReplicaSet", extra=", replicas: 2"), 2, id="ReplicaSet"),
        pytest.param(workload("ReplicationController", "v1", ", replicas: 2"), 2, id="ReplicationController"),
        pytest.param(workload("DaemonSet", extra=", replicas: 5"), 1, id="DaemonSet, one to a node"),
        pytest.param(workload("Job", "batch/v1"), 1, id="Job"),
        pytest.param(workload("Job", "batch/v1", ", parallelism: 4"), 4, id="Job in parallel"),
        pytest.param(workload("Job", "batch/v1", ", parallelism: 4, completions: 2"), 2, id="Job with less to do"),
        pytest.param(workload("CronJob", "batch/v1", ", parallelism: 2"), 2, id="CronJob"),
    ],
)
def test_a_workload_gives_its_replicas(text: str, count: int) -> None:
    pods = parse_pods(text).pods
    assert [pod.name for pod in pods] == [f"db-{index}" for index in range(count)]
    assert len({pod.uid for pod in pods}) == count
    assert all(pod.namespace == "prod" and pod.labels == {"a": "b"} for pod in pods)


def test_a_kind_of_another_group_is_ignored() -> None:
    pods, ignored, *_ = parse_pods(workload("Job", "batch.volcano.sh/v1alpha1"))
    assert pods == ()
    assert ignored == ("document 1: skipped Job prod/db: it contains no pods",)


def test_other_objects_and_ended_pods_are_ignored_and_named() -> None:
    service = "kind: Service\nmetadata: {name: web}\n"
    ended = pod_text(metadata="{name: old}") + "status: {phase: Succeeded}\n"
    pods, ignored, *_ = parse_pods(f"{service}---\n{pod_text()}---\n{ended}---\nkind: Thing\n", source="all.yaml")
    assert [pod.name for pod in pods] == ["web"]
    assert ignored == (
        "all.yaml: document 1: skipped Service web: it contains no pods",
        "all.yaml: document 3: skipped Pod old: it has ended (Succeeded)",
        "all.yaml: document 4: skipped Thing: it contains no pods",
    )


@pytest.mark.parametrize(("kind", "meant"), [("pod", "Pod"), ("Pods", "Pod"), ("Statefulset", "StatefulSet")])
def test_a_kind_that_is_spelt_wrong_is_skipped_with_the_right_one(kind: str, meant: str) -> None:
    (ignored,) = parse_pods(f"kind: {kind}\nmetadata: {{name: web}}\n").ignored
    assert ignored.endswith(f"skipped {kind} web: it contains no pods; did you mean kind: {meant}?")


def test_containers_that_are_no_list_are_one_problem() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_pods("kind: Pod\nmetadata: {name: web}\nspec: {containers: {name: a}}\n")
    assert [problem.problem for problem in caught.value.problems] == ["a mapping where a list is expected"]


def test_lists_are_opened_in_order() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app"}]}}
    inner = {"kind": "List", "items": [{"kind": "Pod", **pod, "metadata": {"name": "b"}}]}
    last = {"kind": "Pod", **pod, "metadata": {"name": "c"}}
    text = json.dumps({"kind": "List", "items": [{"kind": "PodList", "items": [pod]}, inner, last]})
    assert [pod.name for pod in parse_pods(text).pods] == ["a", "b", "c"]


def test_a_problem_in_a_list_is_placed() -> None:
    text = json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": {"containers": [{}]}}]})
    assert problems(text) == ["document 1: items[0].spec.containers[0].name: missing; a name is expected"]


def test_a_uid_is_made_from_namespace_and_name_and_stays_the_same() -> None:
    one, again = only_pod(pod_text()), only_pod("\n" + pod_text())
    other = only_pod(pod_text(metadata="{name: web, namespace: prod}"))
    assert one.uid == again.uid
    assert one.uid != other.uid
    assert len(one.uid) == 36


def test_workloads_and_pods_of_one_name_keep_apart() -> None:
    texts = [workload("Deployment"), workload("StatefulSet"), pod_text(metadata="{name: db-0, namespace: prod}")]
    pods = parse_pods("---\n".join(texts)).pods
    assert [pod.name for pod in pods] == ["db-0"] * 3
    assert len({pod.uid for pod in pods}) == 3


def test_aliases_and_merge_keys_share_resources() -> None:
    text = pod_text("{name: a, resources: &r {limits: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {<<: *r}}")
    assert only_pod(text).qos is QoS.GUARANTEED


def test_ten_thousand_containers_are_fine() -> None:
    text = json.dumps({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a"}] * 2}})
    many = ", ".join(f'{{"name": "c{index}"}}' for index in range(10_000))
    assert len(only_pod(text.replace('{"name": "a"}, {"name": "a"}', many)).containers) == 10_000


@pytest.mark.parametrize("text", ["", "---\n---\n", "# nothing\n"])
def test_an_empty_file_is_a_mistake(text: str) -> None:
    with pytest.raises(DocumentError, match=r"^pods\.yaml: is empty; Kubernetes YAML or JSON with pods is expected$"):
        parse_pods(text, source="pods.yaml")


def test_a_misspelt_field_is_warned_of_once_and_in_every_place() -> None:
    spec = "{initContainer: [], containers: [{name: a, resource: {}, env: [{name: A, val: b}]}]}"
    found = parse_pods(f"{{kind: Deployment, metadata: {{name: a}}, spec: {{replica: 2, template: {{spec: {spec}}}}}}}")
    assert [warning.partition("; was ")[2] for warning in found.warnings] == [
        "replicas meant?",
        "initContainers meant?",
        "resources meant?",
    ]


def test_very_many_unknown_fields_cost_little() -> None:
    start = time.process_time()
    hostile = {f"resourc{number}": 1 for number in range(20_000)}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", **hostile}]}}
    assert len(parse_pods(json.dumps(pod)).warnings) <= 1000
    assert time.process_time() - start < 10


def test_the_example_of_the_design_is_refused_word_for_word() -> None:
    text = f"kind: Service\n---\n{pod_text('{name: a}, {name: b, resources: {limits: {cpu: -1}}}')}"
    where = "pods.yaml: document 2: spec.containers[1].resources.limits.cpu"
    assert problems(text, "pods.yaml") == [f'{where}: "-1" is negative; a CPU amount is 0 or more, e.g. 500m or 2']


@pytest.mark.parametrize(
    ("amount", "problem"),
    [
        ("-1", '"-1" is negative; a CPU amount is 0 or more, e.g. 500m or 2'),
        ("1e30", '"1e30" is above 2^63-1; a CPU amount'),
        ("2 CPUs", '"2 CPUs" has an unknown unit; a CPU amount'),
        ("NaN", '"NaN" has no digits'),
        ('""', '"" has no digits'),
        (".nan", '".nan" is not a plain decimal number'),
        (".inf", '".inf" is not a plain decimal number'),
        ("0x10", '"0x10" is not a plain decimal number'),
        ("1_000", '"1_000" is not a plain decimal number'),
        ("010", '"010" is not a plain decimal number'),
        ('"1_000"', '"1_000" has an unknown unit'),
        ("yes", "true where an amount is expected"),
        ("null", "missing; an amount is expected"),
        ("[1]", "a list where an amount is expected"),
        ("{a: 1}", "a mapping where an amount is expected"),
        ("7" * 100, f'"{"7" * 40}…" is longer than 64 characters'),
    ],
)
def test_a_wrong_amount_is_refused_with_its_field(amount: str, problem: str) -> None:
    (text,) = problems(with_limits(f"cpu: {amount}"))
    assert text.startswith(f"document 1: spec.containers[0].resources.limits.cpu: {problem}")


def test_json_numbers_are_checked_likewise() -> None:
    text = '{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","resources":{"limits":%s}}]}}'
    assert only_pod(text % '{"cpu": 0.5, "memory": 1073741824}').containers[0].resources.limits == Amounts(500, GIB)
    assert '"-0.5" is negative' in problems(text % '{"cpu": -0.5}')[0]
    assert '"Infinity" is not a plain decimal number' in problems(text % '{"cpu": Infinity}')[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[]", "a list where a Kubernetes object with kind, metadata and spec is expected", id="list"),
        pytest.param("hello", '"hello" where a Kubernetes object', id="text"),
        pytest.param("a: b", "kind: missing; a kind such as Pod or Deployment is expected", id="no kind"),
        pytest.param("kind: 3", "kind: 3 where text in quotes is expected", id="number as kind"),
        pytest.param("kind: Pod", "metadata.name: missing; a name is expected", id="no metadata"),
        pytest.param("kind: Pod\nmetadata: []", "metadata: a list where a mapping is expected", id="list as metadata"),
        pytest.param("kind: Pod\nmetadata: {name: a}", "spec.containers: missing; a pod has at least", id="no spec"),
        pytest.param(
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: {}}",
            "spec.containers: a mapping where a list is expected",
            id="mapping as containers",
        ),
        pytest.param(
            pod_text("app"), 'spec.containers[0]: "app" where a container is expected', id="text as container"
        ),
        pytest.param(pod_text("{}"), "spec.containers[0].name: missing; a name is expected", id="no name"),
        pytest.param(
            pod_text("{name: 1}"), "spec.containers[0].name: 1 where a name in quotes is expected", id="number as name"
        ),
        pytest.param(
            pod_text("{name: My_App}"),
            'spec.containers[0].name: "My_App" is not a valid name; at most 63 lower-case letters and digits, with "-"',
            id="upper-case name",
        ),
        pytest.param(pod_text(f"{{name: {'a' * 64}}}"), "is not a valid name; at most 63", id="long container name"),
        pytest.param(pod_text('{name: "a\\n"}'), '"a\\n" is not a valid name', id="newline in a name"),
        pytest.param(pod_text('{name: ""}'), '"" is not a valid name', id="empty name"),
        pytest.param(
            pod_text(metadata="{name: -a}"), 'metadata.name: "-a" is not a valid name; at most', id="pod name"
        ),
        pytest.param(pod_text(metadata="{name: a..b}"), '"a..b" is not a valid name', id="dots"),
        pytest.param(
            pod_text(metadata="{name: a, namespace: b.c}"),
            'metadata.namespace: "b.c" is not a valid name',
            id="namespace",
        ),
        pytest.param(
            pod_text(metadata="{name: a, uid: ../../etc}"),
            'metadata.uid: "../../etc" is not a valid UID',
            id="path as UID",
        ),
        pytest.param(
            pod_text("{name: a}, {name: a}"),
            'spec.containers[1].name: "a" is already the name of spec.containers[0]',
            id="container twice",
        ),
        pytest.param(
            pod_text("{name: a}", "initContainers: [{name: a}]"),
            'spec.containers[0].name: "a" is already the name of spec.initContainers[0]',
            id="container as init container",
        ),
        pytest.param(
            pod_text(metadata="{name: a, labels: {x: 1}}"),
            "metadata.labels.x: 1 where text in quotes is expected",
            id="number as label",
        ),
        pytest.param(
            pod_text(metadata="{name: a, annotations: {x: yes}}"),
            "metadata.annotations.x: true where text in quotes is expected",
            id="bool as annotation",
        ),
        pytest.param(
            pod_text("{name: a, args: [8080]}"),
            "spec.containers[0].args[0]: 8080 where text in quotes is expected",
            id="number as argument",
        ),
        pytest.param(pod_text('{name: a, args: ["x\\0"]}'), 'args[0]: "x\\x00" has a NUL', id="NUL in an argument"),
        pytest.param(pod_text("{name: a, env: [{name: A=B}]}"), 'env[0].name: "A=B" where a name with', id="variable"),
        pytest.param(
            pod_text("{name: a, restartPolicy: Sometimes}"),
            'restartPolicy: "Sometimes" is not one of Always, OnFailure, Never',
            id="restart policy",
        ),
        pytest.param(
            with_limits("cpus: 2"), 'resources.limits.cpus: "cpus" is not a resource; resources are cpu', id="cpus"
        ),
        pytest.param(with_limits("nvidia.com/gpu: x"), 'limits.nvidia.com/gpu: "x" has no digits', id="other resource"),
        pytest.param(
            pod_text("{name: a, resources: {requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 1500m, memory: 3Gi}}}"),
            'resources.requests.cpu: "2" must be less than or equal to cpu limit of "1500m"',
            id="request above limit",
        ),
        pytest.param(
            pod_text("{name: a, resources: {requests: {memory: 2Gi}}}", "resources: {requests: {memory: 1Gi}}"),
            'requests.memory: "1Gi" must be greater than or equal to aggregate container requests of "2Gi"',
            id="pod request below containers",
        ),
        pytest.param(
            pod_text("{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 1}}}", "resources: {limits: {cpu: 2}}"),
            'spec.containers[0].resources.limits.cpu: "4" must be less than or equal to pod limits of "2"',
            id="container limit above pod limit",
        ),
        pytest.param(
            "kind: Deployment\nmetadata: {name: a}", "spec.template: missing; a pod template is expected", id="template"
        ),
        pytest.param(
            workload("Deployment", extra=", replicas: -1"), "spec.replicas: -1 where a whole number", id="replicas"
        ),
        pytest.param(
            workload("CronJob", "batch/v1", ", parallelism: x"),
            'spec.jobTemplate.spec.parallelism: "x" where a whole number is expected',
            id="parallelism",
        ),
        pytest.param(
            f"{pod_text()}---\n{pod_text()}",
            'document 2: metadata.name: Pod "default/web" is a duplicate',
            id="pod twice",
        ),
        pytest.param(
            f"{pod_text(metadata='{name: a, uid: x}')}---\n{pod_text(metadata='{name: b, uid: x}')}",
            'document 2: metadata.uid: "x" is already the UID of another pod',
            id="UID twice",
        ),
        pytest.param("kind: List\nitems: [1]", "items[0]: 1 where a Kubernetes object", id="number in a list"),
        pytest.param('{"kind": "Pod\\ud800"}', "has a NUL or broken Unicode", id="half a surrogate pair"),
    ],
)
def test_a_wrong_object_is_refused_with_its_field(text: str, problem: str) -> None:
    assert any(problem in found for found in problems(text)), problems(text)
    assert all(found.startswith("document ") for found in problems(text))


def test_notes_and_paths_stay_short_and_printable() -> None:
    long = "x" * 1000
    (note,) = parse_pods(f'kind: "\\e[31m{long}"\nmetadata: {{name: {long}}}').ignored
    assert note.isprintable()
    assert len(note) < 200
    (problem,) = problems(pod_text(metadata=f'{{name: a, labels: {{"\\e{long}": 1}}}}'))
    assert problem.isprintable()
    assert len(problem) < 200


def test_all_problems_are_reported_together_and_the_first_is_shown() -> None:
    text = f"{pod_text('{name: A}, {name: b, resources: {limits: {cpu: x}}}')}---\n{pod_text('{}')}"
    found = problems(text, "pods.yaml")
    assert [line.split(": ")[1:3] for line in found] == [
        ["document 1", "spec.containers[0].name"],
        ["document 1", "spec.containers[1].resources.limits.cpu"],
        ["document 2", "metadata.name"],
        ["document 2", "spec.containers[0].name"],
    ]
    with pytest.raises(DocumentError) as caught:
        parse_pods(text, source="pods.yaml")
    assert str(caught.value) == f"{found[0]} (and 3 more)"
    assert str(caught.value.within("dir")) == f"dir: {found[0]} (and 3 more)"


def test_reading_stops_at_a_hundred_problems() -> None:
    containers = ", ".join(["{name: A}"] * 5000)
    assert len(problems(pod_text(containers))) == 100


@pytest.mark.parametrize(
    "text",
    [
        workload("Deployment", extra=f", replicas: {MAX_PODS + 1}"),
        workload("Deployment", extra=", replicas: 999999999999999999"),
        f"{workload('Deployment', extra=f', replicas: {MAX_PODS}')}---\n{workload('Deployment', name='b')}",
    ],
)
def test_more_than_ten_thousand_pods_are_refused_at_once(text: str) -> None:
    assert problems(text)[-1].endswith("spec.replicas: more than 10,000 pods in all; split the text or ask for fewer")


def test_ten_thousand_replicas_are_fine() -> None:
    assert len(parse_pods(workload("Deployment", extra=f", replicas: {MAX_PODS}")).pods) == MAX_PODS


def test_lists_in_lists_are_read_without_recursion() -> None:
    depth = 200
    assert parse_pods('{"kind":"List","items":[' * depth + "]}" * depth).pods == ()


def test_lists_in_lists_without_end_are_refused() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_pods('{"kind":"List","items":[' * 200_000)
