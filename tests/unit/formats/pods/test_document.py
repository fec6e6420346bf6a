"""A Pod as a document: reading the document gives the same Pod, for any Pod."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import Amounts, Container, Identity, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.pods.document import document_pod, pod_document
from pinfold.formats.pods.manifest import parse_pods

LABEL = r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?"
labels = st.from_regex(LABEL, fullmatch=True)
# Any text that a command line can hold: no NUL, no half of a surrogate pair.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
words = st.lists(texts, max_size=3).map(tuple)
amounts = st.builds(Amounts, st.none() | st.integers(0, 256_000), st.none() | st.integers(0, 1 << 45))


@st.composite
def resources(draw: st.DrawFn) -> Resources:
    """Resources as the API server leaves them: a request that is not set is the limit, and none is above it."""
    requests, limits = draw(amounts), draw(amounts)
    pairs = [(limit if request is None else request, limit) for request, limit in zip(requests, limits, strict=True)]
    lower = [request if limit is None or request is None else min(request, limit) for request, limit in pairs]
    return Resources(Amounts(*lower), limits)


def containers(*, init: bool) -> st.SearchStrategy[Container]:
    names = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1, max_size=8)
    return st.builds(
        Container,
        name=labels,
        resources=resources(),
        sidecar=st.booleans() if init else st.just(value=False),
        command=words,
        args=words,
        env=st.lists(st.tuples(names, texts), max_size=3).map(tuple),
        working_dir=texts,
    )


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Any pod without pod-level resources."""
    every = draw(st.lists(containers(init=True), min_size=1, max_size=4, unique_by=lambda one: one.name))
    apps = draw(st.integers(1, len(every)))
    return Pod(
        uid=PodUID(draw(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?", fullmatch=True))),
        name=draw(st.from_regex(rf"{LABEL}(\.{LABEL}){{0,3}}", fullmatch=True)),
        namespace=draw(labels),
        init=tuple(every[apps:]),
        containers=tuple(replace(one, sidecar=False) for one in every[:apps]),
        overhead=draw(amounts),
        restart_policy=draw(st.sampled_from(["Always", "OnFailure", "Never"])),
        annotations=draw(st.dictionaries(texts, texts, max_size=2)),
        labels=draw(st.dictionaries(texts, texts, max_size=2)),
    )


def again(pod: Pod) -> Pod:
    (found,) = parse_pods(json.dumps(pod_document(pod))).pods
    return found


@given(pods())
def test_every_pod_is_read_back_as_it_was(pod: Pod) -> None:
    assert again(pod) == pod
    assert again(pod).qos == pod.qos
    assert document_pod(json.loads(json.dumps(pod_document(pod)))) == pod


@pytest.mark.parametrize("extras", [(), (("hugepages-2Mi", 1 << 21), ("nvidia.com/gpu", 2))])
def test_what_a_container_has_beside_cpus_is_read_back(extras: tuple[tuple[str, int], ...]) -> None:
    app = Container("app", identity=Identity(5, None, (6, 7)), extras=extras)
    pod = Pod(PodUID("u"), "web", containers=(app,), resources=Resources(limits=Amounts(cpu=500)), labels={"a": "b"})
    assert document_pod(json.loads(json.dumps(pod_document(pod)))) == pod


@given(pods())
def test_every_pod_is_read_back_from_yaml_too(pod: Pod) -> None:
    try:
        found = parse_pods(yaml.safe_dump(pod_document(pod), allow_unicode=False)).pods
    except PinfoldError:
        found = ()  # a text that YAML cannot hold is refused, never changed
    assert found in [(), (pod,)]


@given(resources(), resources())
def test_pod_level_resources_are_read_back_wherever_they_are_allowed(level: Resources, own: Resources) -> None:
    pod = Pod(PodUID("u"), "web", containers=(Container("app", own, command=("true",)),), resources=level)
    text = json.dumps(pod_document(pod))
    try:
        (first,) = parse_pods(text).pods
    except PinfoldError:
        return  # the API server would not let it in
    assert again(first) == first


@pytest.mark.parametrize("empty", [Resources(), None])
def test_resources_that_are_not_set_are_left_out(empty: Resources | None) -> None:
    pod = Pod(PodUID("u"), "web", containers=(Container("app"),), resources=empty)
    assert pod_document(pod)["spec"] == {"restartPolicy": "Always", "containers": [{"name": "app"}]}


def test_zero_is_kept_apart_from_not_set() -> None:
    zero = Resources(Amounts(0, None), Amounts(0, None))
    pod = Pod(PodUID("u"), "web", containers=(Container("app", zero),))
    assert again(pod) == pod
