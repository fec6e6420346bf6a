"""full-pcpus-only: its refusals, and how whole cores of several sizes add up to a number of CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class SMTAlignmentError(AdmissionError):
    """full-pcpus-only: the CPUs cannot be whole cores; the texts are the kubelet's."""

    reason = "SMTAlignmentError"

    def __init__(self, wanted: int, per_core: int, free: int | None = None) -> None:
        if free is None:
            text = f"requested {wanted} cpus not multiple cpus per core = {per_core}"
        else:
            text = f"not enough free physical CPUs: available physical CPUs = {free}, requested CPUs = {wanted}, "
            text += f"CPUs per core = {per_core}"
        super().__init__(f"SMT Alignment Error: {text}")
        self.wanted = wanted
        self.per_core = per_core
        self.free = free


class UnequalCoresError(SMTAlignmentError):
    """full-pcpus-only on a machine with cores of several sizes: no whole cores add up to the number."""

    def __init__(self, wanted: int, sizes: Collection[int]) -> None:
        cores = " or ".join(map(str, sorted(sizes)))
        AdmissionError.__init__(
            self,
            f"SMT Alignment Error: requested {wanted} cpus cannot be made up of whole cores with {cores} CPUs each",
        )
        self.wanted = wanted
        self.sizes = frozenset(sizes)


def make_up(cores: Sequence[int], count: int) -> int:
    """Return whole cores that together have exactly *count* CPUs, larger ones first; raise if there are none.

    >>> bin(make_up([0b1, 0b110, 0b11000], 4))
    '0b11110'
    """
    by_size: dict[int, list[int]] = {}
    for core in cores:
        by_size.setdefault(core.bit_count(), []).append(core)
    # Reachable numbers of CPUs, each with its cores; sizes are few and small.
    made: dict[int, tuple[int, ...]] = {0: ()}
    for size in sorted(by_size, reverse=True):
        for core in by_size[size]:
            for total in sorted(made, reverse=True):
                if total + size <= count:
                    made.setdefault(total + size, (*made[total], core))
    if count not in made:
        raise UnequalCoresError(count, by_size)
    return sum(made[count])
