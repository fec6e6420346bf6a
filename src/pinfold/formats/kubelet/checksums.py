"""The checksums of a checkpoint: hashes of the record as Go's debug printer shows it.

Types are printed with the outer fields, mappings as map[key:value key:value] in the order of their keys, and null as
<nil>, which is not the same as an empty mapping. Knows nothing of JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.formats.kubelet.fnv import fnv1a
from pinfold.formats.kubelet.gojson import repaired

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.machine.cpuset import CPUSet

_Name = TypeVar("_Name", bound=str)
_T = TypeVar("_T")

_NIL: Final = "<nil>"


def checksum(policy: str, default: str, entries: str, pods: str | None = None, *, remember: bool = False) -> int:
    """Return `checksum` of versions 2 and 4, with *pods* of version 3; *entries* and *pods* are in Go's print form.

    With *remember* the next checksum is faster, if most of its entries are the same.

    >>> checksum("static", "0-63", print_map({}, print_containers))
    1058907510
    """
    podded = "" if pods is None else f" PodEntries:(state.PodCPUAssignments){pods}"
    text = _print_record(policy, default, f"(map[string]map[string]string){entries}{podded}")
    return _hash(text, b"]" if remember else b"")


def checksum_1(policy: str, default: str, entries: str) -> int:
    """Return `checksum` of version 1, with CPUs by container ID."""
    return _hash(_print_record(policy, default, f"(map[string]string){entries}"))


def data_checksum(data: str, *, remember: bool = False) -> int:
    """Return `dataChecksum` of version 4; *remember* as above."""
    return _hash(f"(string){data}", b"}" if remember else b"")


def print_map(mapping: Mapping[_Name, _T] | None, item: Callable[[_T], str]) -> str:
    """Return a mapping as Go prints it, each value by *item*.

    >>> print_map({"b": 1, "a": 2}, str), print_map(None, str)
    ('map[a:2 b:1]', '<nil>')
    """
    if mapping is None:
        return _NIL
    return f"map[{' '.join([f'{name}:{item(mapping[name])}' for name in sorted(mapping)])}]"


def print_containers(containers: Mapping[str, str] | None) -> str:
    """Return the entry of a pod as Go prints it."""
    return print_map(containers, str)


def print_pod(cpus: CPUSet | None) -> str:
    """Return the CPUs of a pod as Go prints them: one by one."""
    elements = _NIL if cpus is None else f"map[{' '.join([f'{cpu}:{{}}' for cpu in cpus])}]"
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){elements}}}}}"


def _print_record(policy: str, default: str, entries: str) -> str:
    head = f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){default}"
    return f"{head} Entries:{entries} Checksum:(checksum.Checksum)0}}"


def _hash(text: str, cut: bytes = b"") -> int:
    # A reader gets U+FFFD for broken Unicode in a name, and hashes that.
    return fnv1a(repaired(text).encode(), cut)
