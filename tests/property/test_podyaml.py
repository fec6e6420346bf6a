"""Laws of reading pods: broken text gives pods or our error, and JSON and YAML say the same."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import exclusive_cpus
from pinfold.errors import PinfoldError
from pinfold.formats.pods.manifest import PodDocuments, parse_pods

TEXT = """apiVersion: v1
kind: Pod
metadata: &meta
  name: web
  labels: {app: web}
spec:
  resources: {limits: {cpu: "4", memory: 4Gi}}
  initContainers:
  - {name: proxy, restartPolicy: Always, resources: &one {limits: {cpu: 1, memory: 1Gi}}}
  containers:
  - name: app
    command: ["sh", "-c", 'exit 0']
    env: [{name: A, value: "1"}]
    resources:
      <<: *one
      requests:
        cpu: 500m
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: prod}
spec:
  replicas: 3
  template:
    spec:
      containers: [{name: db}]
"""
SPARKS = [
    "",
    "\t",
    "\n",
    "---\n",
    "- ",
    ": ",
    "&a ",
    "*one",
    "!!str ",
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    "#",
    "|",
    "-1",
    "1e30",
]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(["2", "1Gi"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def outcome(text: str) -> PodDocuments | PinfoldError:
    try:
        return parse_pods(text, source="f")
    except PinfoldError as error:
        return error


def check(text: str) -> None:
    """Read *text*; any error but ours fails the test."""
    match outcome(text):
        case PinfoldError() as error:
            assert str(error).startswith("f: ")
            assert str(error).isprintable()
        case PodDocuments(pods):
            for pod in pods:
                for container in pod.all_containers:
                    assert exclusive_cpus(pod, container) * 1000 <= (container.resources.requests.cpu or 0)


@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.sampled_from(SPARKS) | st.text(max_size=8))
def test_text_with_a_piece_replaced_gives_pods_or_our_error(at: int, length: int, piece: str) -> None:
    check(TEXT[:at] + piece + TEXT[at + length :])


@given(st.lists(st.sampled_from(TEXT.splitlines(keepends=True) + SPARKS), max_size=40).map("".join))
def test_lines_in_any_order_give_pods_or_our_error(text: str) -> None:
    check(text)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_pods_or_our_error(text: str) -> None:
    check(text)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every value in *value*."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


DOCUMENT = json.dumps({"kind": "List", "items": list(yaml.safe_load_all(TEXT))})
PLACES = [place for place in places(json.loads(DOCUMENT)) if place]


@given(st.sampled_from(PLACES), values)
def test_a_field_of_any_type_gives_pods_or_our_error(place: tuple[str | int, ...], value: object) -> None:
    document = json.loads(DOCUMENT)
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    check(json.dumps(document))
    check(yaml.safe_dump(document, allow_unicode=True))


amounts = st.integers(1, 64_000).map(lambda milli: f"{milli}m")


@given(st.lists(amounts, min_size=1, max_size=4))
def test_json_and_yaml_say_the_same(cpus: list[str]) -> None:
    containers = [
        {"name": f"c{index}", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} for index, cpu in enumerate(cpus)
    ]
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert parse_pods(json.dumps(pod)) == parse_pods(yaml.safe_dump(pod))
