"""What laws are stated over: small machines of every make, option sets in force, pods of every kind, free CPUs.

Machines stay small (at most 24 CPUs), so that a law can be compared with a plain search through everything.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import strategies as st

from pinfold.core.allocators.order import PACKED, Arrangement
from pinfold.core.config import check_machine
from pinfold.core.machine.cpuset import CPUSet, cpus_of
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.policies.options import OPTION_GATES, REFERENCE, Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GIB: Final = 1 << 30

# Machines.

_threads: Final = st.integers(1, 2)


class Place(NamedTuple):
    """Where a core of a machine in the making is."""

    socket: int
    numa: int
    uncore: int | None


@st.composite
def regular_topologies(draw: st.DrawFn, most: int = 24) -> Topology:
    """Machines of a shape: all groups of a kind are equal, siblings have a constant distance."""
    levels = {"sockets": 3, "numa": 3, "l3": 3, "cores": 4, "threads": 2}
    left = most
    counts = {}
    for level in draw(st.permutations(list(levels))):
        counts[level] = draw(st.integers(1, max(1, min(levels[level], left))))
        left //= counts[level]
    inner = ["numa", "l3"] if draw(st.booleans()) else ["l3", "numa"]
    return from_shape(",".join(f"{level}:{counts[level]}" for level in ("sockets", *inner, "cores", "threads")))


@st.composite
def irregular_topologies(
    draw: st.DrawFn, most: int = 16, *, equal_cores: bool = False, crossing: bool = False
) -> Topology:
    """Machines as they also come: cores of several sizes, scattered numbers, groups of unequal size, ids with gaps.

    Every core is within one socket, one NUMA node and one uncore cache. Of larger groups one is within the other,
    either way round; with *crossing* they may also overlap.
    """
    sizes = _core_sizes(draw, most, equal=equal_cores)
    total = sum(sizes)
    numbers = draw(st.permutations(_numbers(draw, total)))
    places = _places(draw, len(sizes), crossing=crossing)
    rows = []
    next_number = iter(numbers)
    for size, place in zip(sizes, places, strict=True):
        mine = [next(next_number) for _ in range(size)]
        rows += [(cpu, min(mine), *place) for cpu in mine]
    return Topology.from_rows(rows)


@st.composite
def offline_topologies(draw: st.DrawFn, most: int = 24) -> Topology:
    """Regular machines of which some CPUs are offline."""
    full = draw(regular_topologies(most))
    off = draw(st.sets(st.sampled_from(list(full.online)), max_size=len(full.cpus) - 1))
    rows = []
    for core in full.cores:
        left = [cpu for cpu in core.cpus if cpu not in off]
        rows += [row._replace(core=min(left)) for row in full.cpus if row.cpu in left]
    return Topology.from_rows(rows)


@st.composite
def node_topologies(draw: st.DrawFn) -> Topology:
    """Machines of up to 8 NUMA nodes with few CPUs each, where distributing over them has many ways to go."""
    sockets, nodes = draw(st.sampled_from([(1, 2), (1, 4), (1, 6), (1, 7), (2, 2), (2, 3), (2, 4), (4, 2), (4, 1)]))
    return from_shape(f"sockets:{sockets},numa:{nodes},cores:{draw(st.integers(1, 3))},threads:{draw(_threads)}")


def topologies(most: int = 16) -> st.SearchStrategy[Topology]:
    """All of these machines."""
    return st.one_of(regular_topologies(most), irregular_topologies(most), offline_topologies(most))


def torn_topologies(most: int = 12) -> st.SearchStrategy[Topology]:
    """Machines whose source says nonsense: every CPU is anywhere, or nowhere, and its sibling elsewhere."""
    ids = st.none() | st.integers(0, 3)
    rows = st.lists(st.tuples(ids, ids, ids, ids), min_size=1, max_size=most)
    return rows.map(_torn)


def _torn(rows: Sequence[tuple[int | None, ...]]) -> Topology:
    lowest: dict[int, int] = {}
    for cpu, (core, *_) in enumerate(rows):
        if core is not None:
            lowest.setdefault(core, cpu)
    named = [(cpu, None if core is None else lowest[core], *rest) for cpu, (core, *rest) in enumerate(rows)]
    return Topology.from_rows(named)


def _core_sizes(draw: st.DrawFn, most: int, *, equal: bool) -> list[int]:
    largest = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
    cores = max(1, most // largest)
    if equal:
        return [largest] * draw(st.integers(1, cores))
    sizes = draw(st.lists(st.integers(1, largest), min_size=1, max_size=cores))
    return sizes if draw(st.booleans()) else sorted(sizes, reverse=True)


def _numbers(draw: st.DrawFn, total: int) -> list[int]:
    if draw(st.booleans()):
        return list(range(total))
    return sorted(draw(st.sets(st.integers(0, 2 * total), min_size=total, max_size=total)))


def _places(draw: st.DrawFn, cores: int, *, crossing: bool) -> list[Place]:
    """Return where each core is: an outer group, an inner one in it, and a cache in one of these."""
    wide = _ids(draw, cores, draw(st.integers(1, 3)))
    narrow = _within(draw, wide, draw(st.integers(1, 3)))
    uncore = _ids(draw, cores, 3) if crossing and draw(st.booleans()) else _caches(draw, wide, narrow)
    if crossing and draw(st.booleans()):
        narrow = _ids(draw, cores, 3)
    sockets, nodes = (wide, narrow) if draw(st.booleans()) else (narrow, wide)
    return [Place(*place) for place in zip(sockets, nodes, uncore, strict=True)]


def _caches(draw: st.DrawFn, wide: Sequence[int], narrow: Sequence[int]) -> Sequence[int | None]:
    match draw(st.sampled_from(["none", "wide", "narrow", "finer"])):
        case "wide":
            return wide
        case "narrow":
            return narrow
        case "finer":
            return _within(draw, narrow, 2)
        case _:
            return [None] * len(wide)


def _ids(draw: st.DrawFn, length: int, kinds: int) -> list[int]:
    ids = draw(st.sampled_from([range(kinds), range(0, 8 * kinds, 8), range(kinds, 0, -1)]))
    if draw(st.booleans()):
        return [ids[i * kinds // length] for i in range(length)]
    return draw(st.lists(st.sampled_from(ids), min_size=length, max_size=length))


def _within(draw: st.DrawFn, outer: Sequence[int], kinds: int) -> list[int]:
    """Return ids of groups that lie within the *outer* ones."""
    inner = _ids(draw, len(outer), kinds)
    step = max(inner) + 1
    return [group * step + part for group, part in zip(outer, inner, strict=True)]


# CPUs of a machine.


@st.composite
def cpus_within(draw: st.DrawFn, mask: int) -> int:
    """Any part of the CPUs of *mask*, often nearly all."""
    cpus = cpus_of(mask)
    if not cpus:
        return 0
    some = sum(1 << cpu for cpu in draw(st.sets(st.sampled_from(cpus))))
    return mask & ~some if draw(st.booleans()) else some


# Options.


def valid_options(topology: Topology | None = None) -> list[Options]:
    """Return all sets of options that a kubelet starts with (on this machine)."""
    gates = {gate.name: True for gate in OPTION_GATES.values()}
    switches = product((False, True), repeat=len(REFERENCE))
    chosen = [{name: "true" for name, on in zip(REFERENCE, values, strict=True) if on} for values in switches]
    parsed = [parse_options(given, gates, REFERENCE) for given in chosen]
    return [
        options
        for options, problems in parsed
        if not problems and not (topology and check_machine(options, "none", topology))
    ]


def arrangements(threads: int) -> st.SearchStrategy[Arrangement]:
    """The arrangements that options can ask for on a machine with so many threads per core."""
    return st.one_of(
        st.sampled_from([PACKED, Arrangement(uncore=True), Arrangement(spread=True)]),
        distributed_arrangements(1, threads),
    )


def distributed_arrangements(*groups: int, by_socket: bool = True) -> st.SearchStrategy[Arrangement]:
    """Distribution over NUMA nodes in groups of so many CPUs, with align-by-socket or without."""
    aligned = (False, True) if by_socket else (False,)
    return st.sampled_from([Arrangement(group=group, align_by_socket=by) for group in groups for by in aligned])


# Pods.


def pinned(cpus: int, name: str = "app", *, sidecar: bool = False) -> Container:
    """Return a container that must have *cpus* CPUs for itself, if its pod is Guaranteed."""
    return Container(name, guaranteed(cpus * 1000), sidecar)


def guaranteed(milli: int) -> Resources:
    """Return resources whose requests are their limits."""
    amounts = Amounts(milli, GIB)
    return Resources(amounts, amounts)


def pod_of(*containers: Container, uid: str = "p1", init: Iterable[Container] = ()) -> Pod:
    """Return the pod with these containers, named after its UID."""
    return Pod(PodUID(uid), uid, init=tuple(init), containers=containers)


@st.composite
def pods(draw: st.DrawFn, uid: str, most: int = 4) -> Pod:
    """Pods of all kinds: exclusive, fractional and mixed, with init containers and sidecars."""
    whole = st.integers(1, most).map(lambda cpus: guaranteed(1000 * cpus))
    kinds = {
        "exclusive": whole,
        "mixed": st.one_of(whole, whole, st.sampled_from([500, 1500]).map(guaranteed)),
        "burstable": st.sampled_from([Resources(Amounts(2000, GIB)), guaranteed(2000), Resources()]),
        "best effort": st.just(Resources()),
    }
    resources = kinds[draw(st.sampled_from(["exclusive", "exclusive", "exclusive", "mixed", "mixed", *kinds]))]
    init = draw(st.lists(st.tuples(resources, st.booleans()), max_size=2))
    apps = draw(st.lists(resources, min_size=1, max_size=2))
    return Pod(
        PodUID(uid),
        uid,
        init=tuple(Container(f"i{i}", own, sidecar) for i, (own, sidecar) in enumerate(init)),
        containers=tuple(Container(f"c{i}", own) for i, own in enumerate(apps)),
    )


@st.composite
def whole_pods(draw: st.DrawFn, uid: str, most: int = 6) -> Pod:
    """Pods with pod-level resources: Guaranteed, mostly of whole CPUs; its containers exclusive or not."""
    total = draw(st.integers(1, most))
    part = st.one_of(st.integers(1, total).map(lambda cpus: guaranteed(1000 * cpus)), st.just(Resources()))
    init = draw(st.lists(st.tuples(part, st.booleans()), max_size=2))
    apps = draw(st.lists(part, min_size=1, max_size=3))
    milli = 1000 * total + draw(st.sampled_from([0, 0, 0, 500]))
    return Pod(
        PodUID(uid),
        uid,
        init=tuple(Container(f"i{i}", own, sidecar) for i, (own, sidecar) in enumerate(init)),
        containers=tuple(Container(f"c{i}", own) for i, own in enumerate(apps)),
        resources=guaranteed(milli),
    )


def reserved_within(topology: Topology) -> st.SearchStrategy[CPUSet]:
    """A reservation that leaves at least one CPU, as strict-cpu-reservation needs it."""
    online = list(topology.online)
    few = st.sets(st.sampled_from(online), min_size=1, max_size=max(1, min(3, len(online) - 1)))
    return few.map(CPUSet.from_cpus)
