"""State ↔ checkpoint, the file cpu_manager_state: kubelet and pinfold read each other's files.

Writes version 4, and 2 and 3 for older kubelets; reads all three, and refuses what a kubelet refuses. Fields:

    policyName, defaultCpuSet, entries     the policy, the shared pool, the Assignments by pod and container
    podEntries (version 3 on)              the CPUs of pods that were assigned as a whole
    baselines (version 4)                  what containers had before they were resized
    checksum, dataChecksum                 FNV-1a, over the record as Go prints it, and over `data`
    data (version 4)                       all but the checksums once more, as a JSON text; a reader trusts this alone

Reads no files; `core.validation` checks whether a State fits the machine.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.errors import ParseError, excerpt
from pinfold.formats.kubelet.checkpointerrors import (
    CheckpointTooOld,
    CorruptCheckpoint,
    MalformedCheckpoint,
    OtherPolicy,
    UnreadableCPUs,
    quoted,
)
from pinfold.formats.kubelet.checkpointrecord import (
    DATA,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    CheckpointRecord,
    CPUListError,
    is_version_1,
    parse_cpus,
    payload,
    read_record,
)
from pinfold.formats.kubelet.checksums import checksum, data_checksum, print_containers, print_map, print_pod
from pinfold.formats.kubelet.gojson import parse_json, quote, quote_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.formats.kubelet.gojson import Value

_LOAD_4: Final = "could not load v4 checkpoint: "
_OUTER: Final = f"{_LOAD_4}failed to deserialize cpu manager checkpoint: "
_INNER: Final = f"{_LOAD_4}failed to deserialize cpu manager checkpoint data: "
_SPARE: Final = 64


def format_checkpoint(
    policy: str, state: State, *, version: Literal[2, 3, 4] = 4, pod_level: bool = False, resize: bool = False
) -> str:
    """Return the file, byte for byte as a kubelet writes it.

    In version 4, *pod_level* adds the CPUs of pods and *resize* the baselines (the kubelet's feature gates
    PodLevelResourceManagers and InPlacePodVerticalScalingExclusiveCPUs). Version 3 always has the first, 2 neither.

    >>> print(format_checkpoint("static", State(CPUSet.parse("0-63")), version=2))
    {"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}
    """
    default = str(state.shared)
    if _entry.cache_info().currsize > 2 * len(state.assignments) + _SPARE:  # most are of pods that are gone
        _entry.cache_clear()
    entries = [_entry(pod, tuple(state.assignments[pod].items())) for pod in sorted(state.assignments)]
    printed = f"map[{' '.join([entry.printed for entry in entries])}]"
    head = f'{{"policyName":{quote(policy)},"defaultCpuSet":"{default}"'
    head += _member("entries", [entry.json for entry in entries])
    if version == 2:  # noqa: PLR2004 - versions are plain numbers
        return f'{head},"checksum":{checksum(policy, default, printed)}}}'
    pods = _member("podEntries", [_pod_entry(pod, state.pods[pod]) for pod in sorted(state.pods)])
    if version == 3:  # noqa: PLR2004 - the same
        return f'{head}{pods},"checksum":{checksum(policy, default, printed, print_map(state.pods, print_pod))}}}'
    baselines = _member("baselines", [_baseline(pod, state.baselines[pod]) for pod in sorted(state.baselines)])
    data = f"{head}{pods if pod_level else ''}{baselines if resize else ''}}}"
    tail = f'"data":{quote_json(data)},"dataChecksum":{data_checksum(data, remember=True)}}}'
    return f'{head},"checksum":{checksum(policy, default, printed, remember=True)},{tail}'


def parse_checkpoint(text: str, *, policy: str, pod_level: bool = False, resize: bool = False) -> State:
    r"""Return the State in the file, which must have been written under the same *policy*.

    Without *pod_level* the CPUs of pods are left out. With *resize* a container without a baseline has what it has now.

    >>> file = '{"policyName":"static","defaultCpuSet":"2-7","entries":{"p1":{"app":"0-1"}},"checksum":0}'
    >>> print(parse_checkpoint(file, policy="static").cpus(PodUID("p1"), "app"))
    0-1
    >>> parse_checkpoint(file, policy="none")
    Traceback (most recent call last):
    pinfold.formats.kubelet.checkpointerrors.OtherPolicy: the checkpoint was written under "static", but ...
    """
    record = _load(text)
    if record.policy != policy:
        raise OtherPolicy(policy, record.policy)
    assignments = _container_cpus(record.entries or {}, "entries", "cpuset")
    pods = {PodUID(pod): cpus or EMPTY for pod, cpus in (record.pods or {}).items()}
    baselines = _container_cpus(record.baselines or {}, "baselines", "Baseline cpuset") if resize else {}
    if resize:
        for pod, containers in assignments.items():
            baselines[pod] = {**containers, **baselines.get(pod, {})}
    return State(_shared(record.default), assignments, pods if pod_level else {}, baselines)


class _Entry(NamedTuple):
    json: str
    printed: str


# From one file to the next most entries are the same.
@lru_cache(maxsize=1 << 10)
def _entry(pod: PodUID, containers: tuple[tuple[str, CPUSet], ...]) -> _Entry:
    lists = {name: str(cpus) for name, cpus in sorted(containers, key=itemgetter(0))}
    members = ",".join([f'{quote(name)}:"{cpus}"' for name, cpus in lists.items()])
    return _Entry(f"{quote(pod)}:{{{members}}}", f"{pod}:{print_containers(lists)}")


def _pod_entry(pod: PodUID, cpus: CPUSet) -> str:
    return f'{quote(pod)}:{{"cpuSet":"{cpus}"}}'


def _baseline(pod: PodUID, containers: Mapping[str, CPUSet]) -> str:
    members = [f'{quote(name)}:{{"baseline":"{containers[name]}"}}' for name in sorted(containers)]
    return f"{quote(pod)}:{{{','.join(members)}}}"


def _member(name: str, members: Sequence[str]) -> str:
    """Return a member that is left out when it would be empty."""
    return f',"{name}":{{{",".join(members)}}}' if members else ""


def _load(text: str) -> CheckpointRecord:
    """Return the record of the newest version that accepts the file, as the kubelet tries them."""
    try:
        value = parse_json(text)
    except ParseError as error:
        raise MalformedCheckpoint(error) from error
    # The kubelet never reads a broken version 4 as an older one, although it looks like version 2.
    if any(payload(value)):
        return _load_4(value)
    return _load_3(value) or _load_2(value)


def _load_4(value: Value) -> CheckpointRecord:
    try:
        outer = read_record(value, VERSION_4)
    except ParseError as error:
        raise MalformedCheckpoint(error, _OUTER) from error
    try:
        record = read_record(parse_json(outer.data), DATA)
    except CPUListError as error:
        raise UnreadableCPUs(error.within("data"), _INNER) from error
    except ParseError as error:
        raise MalformedCheckpoint(error.within("data"), _INNER) from error
    if outer.data_checksum != (found := data_checksum(outer.data)):
        raise CorruptCheckpoint("dataChecksum", outer.data_checksum, found, _LOAD_4)
    return record


def _load_3(value: Value) -> CheckpointRecord | None:
    try:
        record = read_record(value, VERSION_3)
    except ParseError:
        return None
    return record if record.checksum == record.checksum_3() else None


def _load_2(value: Value) -> CheckpointRecord:
    try:
        record = read_record(value, VERSION_2)
    except ParseError as error:
        if is_version_1(value):
            raise CheckpointTooOld(with_entries=True) from error
        raise MalformedCheckpoint(error) from error
    found = record.checksum_2()
    # The kubelet accepts a file without a checksum, or with 0: its first versions wrote none.
    if record.checksum in {0, found}:
        return record
    if is_version_1(value):
        raise CheckpointTooOld(with_entries=False)
    raise CorruptCheckpoint("checksum", record.checksum, found)


def _container_cpus(
    entries: Mapping[str, Mapping[str, str] | None], field: str, kind: str
) -> dict[PodUID, dict[str, CPUSet]]:
    cpus: dict[PodUID, dict[str, CPUSet]] = {}
    for pod, containers in entries.items():
        cpus[PodUID(pod)] = {}
        for name, text in (containers or {}).items():
            try:
                cpus[PodUID(pod)][name] = parse_cpus(text)
            except CPUListError as error:
                whose = f"could not parse {kind} {quoted(text)} for container {quoted(name)} in pod {quoted(pod)}: "
                raise UnreadableCPUs(error.within(f"{field}: {excerpt(pod)}: {excerpt(name)}"), whose) from error
    return cpus


def _shared(text: str) -> CPUSet:
    try:
        return parse_cpus(text)
    except CPUListError as error:
        whose = f"could not parse default CPU set {quoted(text)}: "
        raise UnreadableCPUs(error.within("defaultCpuSet"), whose) from error
