"""Reads the record inside a checkpoint: the fields of each version and their types.

Does not interpret values: CPU sets stay text, except those that Go parses with the JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError
from pinfold.formats.kubelet.checksums import checksum, checksum_1, print_containers, print_map, print_pod
from pinfold.formats.kubelet.gojson import fields, map_field, natural_field, text_field

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.formats.kubelet.gojson import Value

VERSION_2: Final = ("policyName", "defaultCpuSet", "entries", "checksum")
VERSION_3: Final = (*VERSION_2, "podEntries")
VERSION_4: Final = (*VERSION_2, "data", "dataChecksum")
DATA: Final = ("policyName", "defaultCpuSet", "entries", "podEntries", "baselines")
"""The fields of the JSON text in `data` of version 4."""

_LIST: Final = re.compile(r"[0-9,-]*")
_PLUS: Final = re.compile(r"(^|[,-])\+(?=[0-9])")


class CPUListError(ParseError):
    """An invalid list of CPUs."""


@dataclass(slots=True)
class CheckpointRecord:
    """The fields of a checkpoint as in the file; None is null, and hashes differently from empty."""

    policy: str = ""
    default: str = ""
    entries: dict[str, dict[str, str] | None] | None = field(default_factory=dict)
    pods: dict[str, CPUSet | None] | None = field(default_factory=dict)
    baselines: dict[str, dict[str, str] | None] | None = field(default_factory=dict)
    checksum: int = 0
    data: str = ""
    data_checksum: int = 0

    def checksum_2(self) -> int:
        """Return the checksum that version 2 has with these fields."""
        return checksum(self.policy, self.default, self._printed_entries)

    def checksum_3(self) -> int:
        """Return the checksum that version 3 has with these fields."""
        return checksum(self.policy, self.default, self._printed_entries, print_map(self.pods, print_pod))

    @property
    def _printed_entries(self) -> str:
        return print_map(self.entries, print_containers)


def read_record(value: Value, names: Collection[str]) -> CheckpointRecord:
    """Return the record with these fields in *value*.

    >>> read_record((("PolicyName", "static"), ("later", None)), VERSION_2).policy
    'static'
    """
    record = CheckpointRecord()
    for name, member in fields(value, names):
        try:
            _read(record, name, member)
        except ParseError as error:
            raise error.within(name) from error
    return record


def payload(value: Value) -> tuple[str, int]:
    """Return `data` and `dataChecksum` even if other fields are wrong; a wrong one counts as missing."""
    record = CheckpointRecord()
    for name, member in fields(value, ("data", "dataChecksum")) if isinstance(value, tuple) else ():
        try:
            _read(record, name, member)
        except ParseError:
            continue
    return record.data, record.data_checksum


def is_version_1(value: Value) -> bool:
    """Whether this is version 1: its entries are CPUs by container ID, or there are none and its checksum fits."""
    try:
        record = read_record(value, ("policyName", "defaultCpuSet", "checksum"))
        entries: dict[str, str] | None = {}
        for _, member in fields(value, ("entries",)):
            entries = map_field(member, entries, text_field)
    except ParseError:
        return False
    # An empty mapping was left out, so the checksum can be over either of these two.
    empty = (print_containers({}), print_containers(None))
    return bool(entries) or record.checksum in {checksum_1(record.policy, record.default, text) for text in empty}


def parse_cpus(text: str) -> CPUSet:
    """Return the CPUs of a list as Go reads it: no spaces, none of the kernel's strides, but plus signs.

    >>> print(parse_cpus("0-3,+8"))
    0-3,8
    >>> parse_cpus(" 1")
    Traceback (most recent call last):
    pinfold.formats.kubelet.checkpointrecord.CPUListError: expected a CPU number at column 1 of " 1"
    """
    plain = _PLUS.sub(r"\1", text)
    listed = _LIST.match(plain)
    if listed is not None and listed.end() < len(plain):
        raise CPUListError("expected a CPU number", text=plain, at=listed.end())
    try:
        # differs: a kubelet accepts CPU numbers up to 2**63, and then finds that the machine has no such CPU.
        return CPUSet.parse(plain)
    except ParseError as error:
        raise CPUListError(error.problem, text=plain, at=error.at) from error


def _read(record: CheckpointRecord, name: str, value: Value) -> None:
    match name:
        case "policyName":
            record.policy = text_field(value, record.policy)
        case "defaultCpuSet":
            record.default = text_field(value, record.default)
        case "entries":
            record.entries = map_field(value, record.entries, _read_containers)
        case "podEntries":
            record.pods = map_field(value, record.pods, _read_pod)
        case "baselines":
            record.baselines = map_field(value, record.baselines, _read_baselines)
        case "checksum":
            record.checksum = natural_field(value, record.checksum)
        case "data":
            record.data = text_field(value, record.data)
        case "dataChecksum":
            record.data_checksum = natural_field(value, record.data_checksum)


def _read_containers(value: Value) -> dict[str, str] | None:
    return map_field(value, None, text_field)


def _read_baselines(value: Value) -> dict[str, str] | None:
    return map_field(value, None, _read_baseline)


def _read_baseline(value: Value) -> str:
    cpus = ""
    for _, member in fields(value, ("baseline",)):
        cpus = text_field(member, cpus)
    return cpus


def _read_pod(value: Value) -> CPUSet | None:
    cpus = None
    for _, member in fields(value, ("cpuSet",)):
        cpus = parse_cpus(text_field(member))
    return cpus
