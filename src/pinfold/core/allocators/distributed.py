"""distribute-cpus-across-numa: even shares from the fewest NUMA nodes that can give them, the rest balanced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.allocators.balance import Balance, is_aliased
from pinfold.core.allocators.order import Arrangement, note_repeats
from pinfold.core.allocators.packed import NotEnoughCPUs, take_packed, take_packed_in
from pinfold.core.trace import Defect
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from pinfold.core.allocators.balance import Split
    from pinfold.core.allocators.order import Area, Machine
    from pinfold.core.trace import Recorder


# Scores are rounded to a thousandth: below this many CPUs no two different choices are rounded to the same score.
_ROUNDING: Final = 1000


class AccountingError(AdmissionError):
    """The kubelet chose NUMA nodes with too few free CPUs; the text is the kubelet's."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"accounting error, not enough CPUs allocated, remaining: {missing}")
        self.missing = missing


def take_distributed(
    machine: Machine, available: int, count: int, arrangement: Arrangement, recorder: Recorder | None = None
) -> int:
    """Return *count* CPUs of *available*, in equal parts from several NUMA nodes, in groups of CPUs."""
    if count < 1:
        return 0
    if not count % arrangement.group:
        free = available & machine.online
        if count > free.bit_count():
            raise NotEnoughCPUs(count, available.bit_count())
        taken = _distribute(machine, free, count, arrangement, recorder)
        if taken:
            return taken
    if recorder is not None:
        recorder.step("packed instead", 0, "no NUMA nodes can share the CPUs evenly")
    return take_packed(machine, available, count, arrangement._replace(uncore=False), recorder)


def _distribute(machine: Machine, free: int, count: int, arrangement: Arrangement, recorder: Recorder | None) -> int:
    """Return the CPUs from the fewest nodes that can split them evenly; 0 if no nodes can.

    The search starts at the number of full nodes needed and ends at one node per group or per free node.
    """
    nodes, counts = machine.counted_numa_nodes(free)
    if recorder is not None:
        note_repeats(recorder, nodes)
    fullest = sorted(range(len(counts)), key=counts.__getitem__, reverse=True)
    group, by_socket = arrangement.group, arrangement.align_by_socket
    needed = count // group
    groups = -(-machine.size // group)
    per_node = -(-groups // len(machine.numa_nodes.places))
    for size in range(-(-needed // per_node), min(needed, len(counts)) + 1):
        share = needed // size * group
        if counts[fullest[size - 1]] < share and not by_socket:
            continue
        even = share * size == count and len(counts) * counts[fullest[0]] < _ROUNDING * share
        if even and not by_socket and not (machine.exact and is_aliased(size)):
            take_in = _take_spread_in if arrangement.spread else take_packed_in
            taken = 0
            for i in sorted(fullest[:size]):
                taken |= take_in(machine, nodes[i], free, share, recorder)
            return taken
        balance = Balance(machine, nodes, counts, count, arrangement, recorder)
        split = balance.best(size, share)
        if split is not None:
            return _take(balance, split, free)
    return 0


def _take(balance: Balance, split: Split, free: int) -> int:
    """Return the CPUs that the nodes of *split* give."""
    machine, nodes, counts, count, arrangement, recorder = balance
    take_in = _take_spread_in if arrangement.spread else take_packed_in
    taken = 0
    for i in split.nodes:
        # With aliased nodes the kubelet may ask a node for more CPUs than it has; it then skips that node.
        if counts[i] >= split.share:
            taken |= take_in(machine, nodes[i], free, split.share, recorder)
    rest = count - split.share * len(split.nodes)
    while rest > 0:
        before = rest
        for i in split.extra:
            if rest and (nodes[i].mask & free & ~taken).bit_count() >= arrangement.group:
                taken |= take_in(machine, nodes[i], free & ~taken, arrangement.group, recorder)
                rest -= arrangement.group
        if rest == before:
            if recorder is not None:
                recorder.defect(Defect.ENDLESS_DISTRIBUTION, f"no NUMA node can give {rest} more CPUs")
            break
    if taken.bit_count() < count:
        raise AccountingError(count - taken.bit_count())
    return taken


def _take_spread_in(machine: Machine, node: Area, free: int, count: int, recorder: Recorder | None) -> int:
    return take_packed(machine, free & node.mask, count, Arrangement(spread=True), recorder)
