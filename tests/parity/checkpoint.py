"""Replays the recorded cases of checkpoints: the bytes a kubelet writes, and what it makes of a file at start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.core.validation import StateMismatch, validate
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.formats.kubelet.checkpointerrors import CheckpointError, CheckpointTooOld, MalformedCheckpoint
from pinfold.formats.kubelet.fnv import fnv1a

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.topology import Topology

_POD_LEVEL: Final = "PodLevelResourceManagers"
_RESIZE: Final = "InPlacePodVerticalScalingExclusiveCPUs"
_VERSIONS: Final[Mapping[int, Literal[2, 3, 4]]] = {2: 2, 3: 3, 4: 4}

Case = dict[str, Any]  # Any: what JSON holds; the cases are ours


class _Gates(TypedDict):
    pod_level: bool
    resize: bool


def replay(case: Case, machines: Mapping[str, Topology]) -> str | None:
    """Return how pinfold differs from the kubelet on this case, None if it does not."""
    if case["kind"] == "restore":
        return _replay_restore(case, machines[case["topology"]])
    return _replay_version_1(case) if case["version"] == 1 else _replay_write(case)


def _replay_write(case: Case) -> str | None:
    state = State(
        CPUSet.parse(case["defaultCpuSet"]),
        _containers(case.get("entries", {})),
        {PodUID(pod): CPUSet.parse(cpus) for pod, cpus in case.get("podEntries", {}).items()},
        _containers(case.get("baselines", {})),
    )
    text = format_checkpoint(case["policyName"], state, version=_VERSIONS[case["version"]], **_gates(case))
    return _difference("file", case["expect"]["file"], text)


def _replay_version_1(case: Case) -> str | None:
    """No kubelet writes this any more: the file must be known for what it is, and the hash must be the recorded one."""
    expect = case["expect"]
    recorded = json.loads(expect["file"])["checksum"]
    if (found := fnv1a(expect["hashed"].encode())) != recorded:
        return f"checksum: expected {recorded}, got {found}"
    try:
        parse_checkpoint(expect["file"], policy=case["policyName"])
    except CheckpointTooOld:
        return None
    return "a file of version 1 was taken"


def _replay_restore(case: Case, machine: Topology) -> str | None:
    expect = case["expect"]
    try:
        read, state = _start(case, machine)
    except CheckpointError as error:
        return _difference_of_errors(expect, "load", error.reference, _parser_words(error))
    except StateMismatch as error:
        return _difference_of_errors(expect, "start", error.reference, "")
    if expect["error"] is not None:
        return f"expected the error {expect['error']!r}, got {state}"
    text = case.get("file") if state == read else format_checkpoint(case["policy"], state, **_gates(case))
    after = expect.get("file_after", case.get("file"))
    return _difference_of_states(expect, state) or _difference("file afterwards", after, text)


def _start(case: Case, machine: Topology) -> tuple[State | None, State]:
    """Return the State that was read, None without a file, and the State to start with."""
    gates = _gates(case)
    read = parse_checkpoint(case["file"], policy=case["policy"], **gates) if "file" in case else None
    state = State(EMPTY) if read is None else read
    if case["policy"] == "none":
        return read, state
    strict = case["options"].get("strict-cpu-reservation") == "true"
    reserved = CPUSet.parse(case["reserved"]["cpus"])
    return read, validate(state, online=machine.online, reserved=reserved, strict=strict)


def _gates(case: Case) -> _Gates:
    gates = case.get("gates", {})
    return {"pod_level": gates.get(_POD_LEVEL, False), "resize": gates.get(_RESIZE, False)}


def _containers(entries: Mapping[str, Mapping[str, str]]) -> dict[PodUID, dict[str, CPUSet]]:
    return {
        PodUID(pod): {name: CPUSet.parse(cpus) for name, cpus in containers.items()}
        for pod, containers in entries.items()
    }


def _parser_words(error: CheckpointError) -> str:
    """The part of the error that quotes a JSON parser, whose words are its own."""
    return str(error.problem) if isinstance(error, MalformedCheckpoint) else ""


def _difference_of_errors(expect: Case, stage: str, reference: str, words: str) -> str | None:
    wanted = expect["error"] or ""
    before, after = reference.split(words, 1) if words else (reference, "")
    same = wanted == reference or (bool(words) and wanted.startswith(before) and wanted.endswith(after))
    if same and expect.get("stage") == stage:
        return None
    return f"error: expected {wanted!r} at {expect.get('stage')}, got {reference!r} at {stage}"


def _difference_of_states(expect: Case, state: State) -> str | None:
    found = {
        "default": str(state.shared),
        "assignments": _texts(state.assignments),
        "pod_assignments": {pod: str(cpus) for pod, cpus in state.pods.items()},
        "baselines": _texts(state.baselines),
    }
    for key, value in found.items():
        if (difference := _difference(key, expect.get(key, {}), value)) is not None:
            return difference
    return None


def _texts(assignments: Mapping[PodUID, Mapping[str, CPUSet]]) -> dict[str, dict[str, str]]:
    return {pod: {name: str(cpus) for name, cpus in containers.items()} for pod, containers in assignments.items()}


def _difference(what: str, expected: object, found: object) -> str | None:
    return None if expected == found else f"{what}: expected {expected!r}, got {found!r}"
