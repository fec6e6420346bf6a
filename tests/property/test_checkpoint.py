"""Laws of checkpoints: a State comes back from its file, no file is answered with a foreign error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.formats.kubelet.checksums import data_checksum
from pinfold.formats.kubelet.fnv import OFFSET, PRIME, fnv1a

if TYPE_CHECKING:
    from collections.abc import Mapping

CPUS = st.integers(0, 2**80 - 1).map(CPUSet)
NAMES = st.text(max_size=12)
PODS = NAMES.map(PodUID)
CONTAINERS = st.dictionaries(NAMES, CPUS, max_size=3)
VERSIONS = st.sampled_from([2, 3, 4])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["policyName", "POLICYNAME", "defaultCpuSet", "entries", "podEntries", "baselines", "checksum", "data"]
)


@st.composite
def states(draw: st.DrawFn) -> State:
    """States of any shape; only that containers with a baseline are those with an Assignment."""
    assignments = draw(st.dictionaries(PODS, CONTAINERS, max_size=4))
    baselines = {pod: {name: draw(CPUS) for name in containers} for pod, containers in assignments.items()}
    return State(draw(CPUS), assignments, draw(st.dictionaries(PODS, CPUS, max_size=4)), baselines)


@given(NAMES, states())
def test_a_state_comes_back_from_version_4(policy: str, state: State) -> None:
    text = format_checkpoint(policy, state, pod_level=True, resize=True)
    assert parse_checkpoint(text, policy=policy, pod_level=True, resize=True) == state


@given(NAMES, states(), VERSIONS)
def test_assignments_come_back_from_every_version(policy: str, state: State, version: Literal[2, 3, 4]) -> None:
    text = format_checkpoint(policy, state, version=version)
    assert parse_checkpoint(text, policy=policy) == State(state.shared, state.assignments)


@given(NAMES, states())
def test_version_4_reads_as_version_2_without_its_data(policy: str, state: State) -> None:
    file = json.loads(format_checkpoint(policy, state, pod_level=True, resize=True))
    del file["data"], file["dataChecksum"]
    assert parse_checkpoint(json.dumps(file), policy=policy) == State(state.shared, state.assignments)


@given(states(), VERSIONS, st.data())
def test_a_file_changed_anywhere_is_read_or_refused(
    state: State, version: Literal[2, 3, 4], data: st.DataObject
) -> None:
    text = format_checkpoint("static", state, version=version, pod_level=True, resize=True)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    read_or_refuse(text[:start] + data.draw(st.text(max_size=3)) + text[end:])


@given(st.dictionaries(FIELDS, JSON))
def test_a_file_of_any_content_is_read_or_refused(content: Mapping[str, object]) -> None:
    believed = {"policyName": "static", **content}
    read_or_refuse(json.dumps(believed))
    data = json.dumps(believed)
    read_or_refuse(json.dumps({"data": data, "dataChecksum": data_checksum(data)}))


@given(st.text(st.characters(categories=None)))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@given(st.binary(max_size=80) | st.text(st.characters(codec="ascii")).map(str.encode), st.integers(1, 200), st.binary())
def test_the_hash_is_that_of_the_plain_loop(piece: bytes, times: int, cut: bytes) -> None:
    data = piece * times
    state = OFFSET
    for byte in data:
        state = (state ^ byte) * PRIME % 2**32
    assert fnv1a(data) == fnv1a(data, cut) == fnv1a(data, piece[1:2]) == state


def read_or_refuse(text: str) -> None:
    try:
        state = parse_checkpoint(text, policy="static", pod_level=True, resize=True)
    except PinfoldError:
        return
    again = format_checkpoint("static", state, pod_level=True, resize=True)
    assert parse_checkpoint(again, policy="static", pod_level=True, resize=True) == state
