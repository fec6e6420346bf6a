"""Checkpoints: the bytes a kubelet writes, what it accepts, what it refuses and how."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from pinfold.formats.kubelet.checkpointerrors import (
    CheckpointError,
    CheckpointTooOld,
    CorruptCheckpoint,
    MalformedCheckpoint,
    OtherPolicy,
    UnreadableCPUs,
)
from pinfold.formats.kubelet.checksums import data_checksum
from pinfold.formats.kubelet.fnv import fnv1a

POD = PodUID("p1")
STATE = State(
    CPUSet.parse("4-7"),
    {POD: {"b": CPUSet.parse("2-3"), "a": CPUSet.parse("0-1")}, PodUID("P2"): {"c": CPUSet.parse("8,10")}},
    {POD: CPUSet.parse("0-3")},
    {POD: {"a": CPUSet.of(0), "b": CPUSet.parse("2-3")}, PodUID("P2"): {"c": CPUSet.parse("8,10")}},
)
BEFORE = "could not restore state from checkpoint: "
AFTER = (
    ", please drain this node and delete the CPU manager checkpoint file "
    '"/var/lib/kubelet/cpu_manager_state" before restarting Kubelet'
)


def version_2(**fields: object) -> str:
    """A file without a checksum, which is believed."""
    return json.dumps({"policyName": "static", "defaultCpuSet": "4-7", **fields})


def version_4(data: str, **fields: object) -> str:
    return json.dumps({"data": data, "dataChecksum": data_checksum(data), **fields})


def read(text: str) -> State:
    return parse_checkpoint(text, policy="static", pod_level=True, resize=True)


def test_version_2_is_written_as_recorded() -> None:
    containers = {"container2": CPUSet.parse("1-3"), "container1": CPUSet.parse("4-6")}
    state = State(CPUSet.parse("1-3"), {PodUID("pod"): containers})
    assert format_checkpoint("static", state, version=2) == (
        '{"policyName":"static","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},'
        '"checksum":1209379947}'
    )


def test_version_3_is_written_as_recorded() -> None:
    pod = PodUID("74f3c9e6-5a1b-5ab7-12b5-4abc361ef9aa")
    state = State(CPUSet.parse("0-62"), {pod: {"init": CPUSet.of(63)}}, {pod: CPUSet.of(63)})
    assert format_checkpoint("static", state, version=3) == (
        f'{{"policyName":"static","defaultCpuSet":"0-62","entries":{{"{pod}":{{"init":"63"}}}},'
        f'"podEntries":{{"{pod}":{{"cpuSet":"63"}}}},"checksum":3831865519}}'
    )


def test_version_4_is_written_as_recorded() -> None:
    assert format_checkpoint("none", State(EMPTY)) == (
        '{"policyName":"none","defaultCpuSet":"","checksum":1353318690,'
        r'"data":"{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}","dataChecksum":3028111495}'
    )


@pytest.mark.parametrize(
    ("pod_level", "resize", "names"),
    [
        (False, False, ["entries"]),
        (True, False, ["entries", "podEntries"]),
        (False, True, ["entries", "baselines"]),
        (True, True, ["entries", "podEntries", "baselines"]),
    ],
)
def test_gates_decide_what_version_4_holds(*, pod_level: bool, resize: bool, names: list[str]) -> None:
    file = json.loads(format_checkpoint("static", STATE, pod_level=pod_level, resize=resize))
    assert list(file) == ["policyName", "defaultCpuSet", "entries", "checksum", "data", "dataChecksum"]
    assert list(json.loads(file["data"])) == ["policyName", "defaultCpuSet", *names]


def test_names_are_sorted_by_their_bytes() -> None:
    names = ["z", "a", "Z", "é", "B.c", "B-c", "\U0001f642", "\uff5e"]
    state = State(EMPTY, {PodUID(name): {"c": CPUSet.of(1)} for name in names})
    entries = json.loads(format_checkpoint("static", state, version=2))["entries"]
    assert list(entries) == sorted(names, key=str.encode)


def test_names_of_any_kind_come_back() -> None:
    state = State(CPUSet.of(0), {PodUID('<p>&"\\\u2028\n'): {"é\x7f🙂": CPUSet.of(1)}})
    for version in (2, 3, 4):
        assert parse_checkpoint(format_checkpoint("sta<tic", state, version=version), policy="sta<tic") == state


@pytest.mark.parametrize("version", [2, 3, 4])
def test_names_that_are_no_unicode_are_written_so_that_the_file_can_be_read(version: Literal[2, 3, 4]) -> None:
    state = State(CPUSet.of(0), {PodUID("p\udcff"): {"c": CPUSet.of(1)}})
    text = format_checkpoint("static", state, version=version)
    assert parse_checkpoint(text, policy="static").assignments == {"p\ufffd": {"c": CPUSet.of(1)}}


def test_everything_comes_back_from_version_4() -> None:
    assert read(format_checkpoint("static", STATE, pod_level=True, resize=True)) == STATE


def test_pods_come_back_from_version_3_and_baselines_are_what_containers_have() -> None:
    state = read(format_checkpoint("static", STATE, version=3))
    assert state == STATE._replace(baselines=STATE.assignments)


def test_version_2_has_neither_pods_nor_baselines() -> None:
    state = read(format_checkpoint("static", STATE, version=2))
    assert state == STATE._replace(pods={}, baselines=STATE.assignments)


def test_without_the_gates_pods_and_baselines_are_left_out() -> None:
    text = format_checkpoint("static", STATE, pod_level=True, resize=True)
    assert parse_checkpoint(text, policy="static") == State(STATE.shared, STATE.assignments)


def test_a_container_without_a_baseline_has_what_it_has_now() -> None:
    data = {"policyName": "static", "entries": {"p1": {"a": "1", "b": "2"}}}
    data["baselines"] = {"p1": {"b": {"baseline": "3"}}}
    assert read(version_4(json.dumps(data))).baselines == {"p1": {"a": CPUSet.of(1), "b": CPUSet.of(3)}}


def test_a_broken_baseline_matters_only_where_baselines_do() -> None:
    data = '{"policyName":"static","entries":{"p1":{"c":"1"}},"baselines":{"p1":{"c":{"baseline":"zz"}}}}'
    assert parse_checkpoint(version_4(data), policy="static").cpus(POD, "c") == CPUSet.of(1)
    with pytest.raises(UnreadableCPUs) as caught:
        read(version_4(data))
    assert caught.value.reference == (
        f'{BEFORE}could not parse Baseline cpuset "zz" for container "c" in pod "p1": '
        f'strconv.Atoi: parsing "zz": invalid syntax{AFTER}'
    )


def test_version_4_trusts_nothing_but_its_data() -> None:
    file = json.loads(format_checkpoint("static", STATE, pod_level=True, resize=True))
    file.update(policyName="none", defaultCpuSet="zz", entries={}, checksum=1)
    assert read(json.dumps(file)) == STATE


@pytest.mark.parametrize("wrong", [0, 1, 2**64 - 1])
def test_a_corrupt_version_4_is_never_taken_for_an_older_one(wrong: int) -> None:
    file = json.loads(format_checkpoint("static", STATE))
    right = file["dataChecksum"]
    file["dataChecksum"] = wrong
    with pytest.raises(CorruptCheckpoint, match=f"dataChecksum is {wrong}, but the content has {right}") as caught:
        read(json.dumps(file))
    assert caught.value.reference == f"{BEFORE}could not load v4 checkpoint: checkpoint is corrupted{AFTER}"


def test_version_4_without_its_data_is_version_2() -> None:
    file = json.loads(format_checkpoint("static", STATE, pod_level=True))
    del file["data"], file["dataChecksum"]
    assert read(json.dumps(file)) == STATE._replace(pods={}, baselines=STATE.assignments)


def test_data_that_is_gone_is_malformed_while_its_checksum_is_there() -> None:
    file = json.loads(format_checkpoint("static", STATE))
    file["data"] = ""
    with pytest.raises(MalformedCheckpoint, match="data: expected JSON, found nothing"):
        read(json.dumps(file))


def test_version_4_is_known_by_its_data_even_when_another_field_is_wrong() -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        read(version_4("{}", checksum="1"))
    assert caught.value.reference.startswith(
        f"{BEFORE}could not load v4 checkpoint: failed to deserialize cpu manager checkpoint: "
    )


def test_version_3_with_checksum_0_is_believed_as_version_2_and_loses_its_pods() -> None:
    file = json.loads(format_checkpoint("static", STATE, version=3))
    file["checksum"] = 0
    assert read(json.dumps(file)).pods == {}
    assert read(json.dumps(file)).assignments == STATE.assignments


@pytest.mark.parametrize("version", [2, 3])
def test_a_wrong_checksum_is_refused(version: Literal[2, 3, 4]) -> None:
    text = format_checkpoint("static", STATE, version=version)
    file = json.loads(text)
    file["checksum"] ^= 1
    with pytest.raises(CorruptCheckpoint, match=r"checksum is \d+, but the content has \d+") as caught:
        read(json.dumps(file))
    assert caught.value.reference == f"{BEFORE}checkpoint is corrupted{AFTER}"


def test_null_hashes_differently_from_empty() -> None:
    printed = (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)static DefaultCPUSet:(string)4-7 "
        "Entries:(map[string]map[string]string)<nil> Checksum:(checksum.Checksum)0}"
    )
    assert read(version_2(entries=None, checksum=fnv1a(printed.encode()))).assignments == {}
    inner = printed.replace("<nil>", "map[p1:<nil>]")
    assert read(version_2(entries={"p1": None}, checksum=fnv1a(inner.encode()))).assignments == {"p1": {}}


def test_names_in_other_case_other_order_and_unknown_ones_are_fine() -> None:
    file = json.loads(format_checkpoint("static", STATE, version=2))
    other = {"extra": {"x": [1e400]}, **{name.upper(): file[name] for name in reversed(file)}}
    text = json.dumps(other, indent=1).replace("Infinity", "1e400")
    assert read(text).assignments == STATE.assignments


def test_a_field_that_comes_twice_counts_the_last_time_and_entries_add_up() -> None:
    text = (
        '{"policyName":"none","entries":{"a":{"x":"1"},"b":{"x":"2"}},"policyName":"static","entries":{"b":{"y":"3"}}}'
    )
    assert read(text).assignments == {"a": {"x": CPUSet.of(1)}, "b": {"y": CPUSet.of(3)}}


@pytest.mark.parametrize(
    "text",
    [
        '{"policyName":"none","defaultCpuSet":"1-3","checksum":1581850123}',
        '{"policyName":"static","defaultCpuSet":"1-3","checksum":387849859}',
        '{"policyName":"static","defaultCpuSet":"0-3","entries":{"containerID1":"4-6","containerID2":"7"},"checksum":1}',
    ],
)
def test_version_1_is_too_old(text: str) -> None:
    with pytest.raises(CheckpointTooOld, match=r"version 1 \(kubelet 1.17 or older\)"):
        read(text)


def test_another_policy_is_refused() -> None:
    with pytest.raises(OtherPolicy, match='written under "static", but "none" is configured') as caught:
        parse_checkpoint(version_2(), policy="none")
    assert caught.value.reference == (
        f'{BEFORE}configured policy "none" differs from state checkpoint policy "static"{AFTER}'
    )


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        ("a", 'strconv.Atoi: parsing "a": invalid syntax'),
        (" 1", 'strconv.Atoi: parsing " 1": invalid syntax'),
        ("1,,2", 'strconv.Atoi: parsing "": invalid syntax'),
        ("0-1-2", 'strconv.Atoi: parsing "1-2": invalid syntax'),
        ("5-3", 'invalid range "5-3" (5 > 3)'),
        ("٣", 'strconv.Atoi: parsing "٣": invalid syntax'),
        ("0-3:1/2", 'strconv.Atoi: parsing "3:1/2": invalid syntax'),
        ("70000", "number is above 65535, the highest CPU allowed"),
    ],
)
def test_cpus_that_cannot_be_read_are_named(cpus: str, words: str) -> None:
    with pytest.raises(UnreadableCPUs, match="defaultCpuSet: ") as caught:
        read(version_2(defaultCpuSet=cpus))
    assert caught.value.reference == f'{BEFORE}could not parse default CPU set "{cpus}": {words}{AFTER}'
    with pytest.raises(UnreadableCPUs, match='entries: "p1": "c0": ') as caught:
        read(version_2(entries={"p1": {"c0": cpus}}))
    whose = f'could not parse cpuset "{cpus}" for container "c0" in pod "p1"'
    assert caught.value.reference == f"{BEFORE}{whose}: {words}{AFTER}"


def test_cpus_of_a_pod_that_cannot_be_read_are_named() -> None:
    with pytest.raises(UnreadableCPUs, match='data: podEntries: "p1": expected a CPU number') as caught:
        read(version_4('{"policyName":"static","podEntries":{"p1":{"cpuSet":"zz"}}}'))
    assert "failed to deserialize cpu manager checkpoint data: strconv.Atoi" in caught.value.reference


def test_an_error_says_what_to_do() -> None:
    with pytest.raises(MalformedCheckpoint, match=r"move it away: `pinfold serve` rebuilds it .* containers$"):
        read("")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "garbage",
        "[]",
        "5",
        '"static"',
        "\ufeff{}",
        "\udc80",
        '{"policyName":"sta\0tic"}',
        '{"policyName":"static"} x',
        "[" * 1_000_000,
        '{"a":' * 100_000,
        '{"checksum":NaN}',
        '{"checksum":' + "9" * 1_000_000 + "}",
        version_2(checksum=-1),
        version_2(checksum=1.5),
        version_2(checksum="1"),
        version_2(checksum=True),
        version_2(policyName=5),
        version_2(defaultCpuSet=["0"]),
        version_2(defaultCpuSet="0-" + "9" * 10_000),
        version_2(defaultCpuSet="0," * 1_000_000 + "0"),
        version_2(entries=[]),
        version_2(entries={"p": "1"}),
        version_2(entries={"p": {"c": 1}}),
        version_4("[" * 100_000),
        version_4('{"podEntries":{"p":{"cpuSet":1}}}'),
        version_4('{"baselines":{"p":{"c":"1"}}}'),
        version_4("null"),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_hostile_files_meet_our_errors_only(text: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(text)
    assert caught.value.reference.startswith(BEFORE)
    assert len(str(caught.value)) < 500


def test_a_file_of_ten_megabytes_is_read() -> None:
    text = version_2(padding="x" * 10_000_000, entries={f"pod-{i}": {"c": "1"} for i in range(1000)})
    assert len(read(text).assignments) == 1000
