"""Names of groups: one path component for any name, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.processgroups.names import decode, encode, marks, parse, read_marks, show

APP = ContainerRef(PodUID("u1"), "app")
# With halves of surrogate pairs, which JSON can bring.
anything = st.text(st.characters(exclude_categories=()))
likely = st.text("./%._-aA0", max_size=6) | st.sampled_from(
    ["tasks", "release_agent", "cpu.max", "cgroup.procs", "cpu."]
)


@given(anything | likely)
def test_every_name_is_one_harmless_component_and_is_read_back(name: str) -> None:
    component = encode(name)
    assert re.fullmatch(r"[A-Za-z0-9._%-]+", component)
    assert component not in {".", "..", "tasks", "notify_on_release", "release_agent"}
    assert not re.match(r"[a-z_]*\.", component)
    assert decode(component) == name


@given(anything | likely)
def test_what_is_decoded_is_encoded_the_same(component: str) -> None:
    name = decode(component)
    assert name is None or encode(name) == component


@pytest.mark.parametrize("name", ["web", "Web_1", "0b5d-41", "1.2.3", "v1.2"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert encode(name) == name


@pytest.mark.parametrize("component", ["", "a b", "%41", "%zz", "%2f", "cpu.max", "..", "%FF", "ü"])
def test_components_that_are_not_ours_have_no_name(component: str) -> None:
    assert decode(component) is None


@given(anything | likely, anything | likely)
def test_containers_are_read_back(pod: str, name: str) -> None:
    ref = ContainerRef(PodUID(pod), name)
    assert parse(show(ref)) == ref


@pytest.mark.parametrize("text", ["", "/", "u1", "u1/", "/app", "u1/a/b", "u1/a b"])
def test_what_is_no_container_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("exclusive", [True, False])
def test_marks_are_read_back(*, exclusive: bool) -> None:
    entries = [f"{name}={value}".encode() for name, value in marks("pinfold", APP, exclusive=exclusive).items()]
    assert read_marks("pinfold", [b"HOME=/", *entries, b""]) == (APP, exclusive)
    assert read_marks("another", entries) is None


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [b"PINFOLD_CONTAINER=u1/app"],
        [b"PINFOLD_GROUP=pinfold/shared"],
        [b"PINFOLD_CONTAINER=\xff/app", b"PINFOLD_GROUP=pinfold/shared"],
        [b"PINFOLD_CONTAINER", b"PINFOLD_GROUP"],
    ],
    ids=["none", "no-group", "no-container", "garbage", "no-values"],
)
def test_half_marks_are_no_marks(entries: list[bytes]) -> None:
    assert read_marks("pinfold", entries) is None
