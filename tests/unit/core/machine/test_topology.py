from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Counts, CPUInfo, Facts, Group, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

# A busy machine may take its time.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
KINDS = ("cores", "sockets", "numa_nodes", "uncore_caches")
masks = st.integers(0, (1 << 20) - 1)
groups = st.dictionaries(st.integers(0, 9) | st.just(8442), masks, max_size=5)
all_facts = st.builds(
    Facts,
    online=st.integers(0, (1 << 16) - 1),
    cores=st.lists(masks, max_size=8),
    sockets=groups,
    numa_nodes=groups,
    uncore_caches=groups,
    offline=masks,
    isolated=masks,
)


def as_text(found: Sequence[Group]) -> dict[int, str]:
    assert len({group.id for group in found}) == len(found)
    return {group.id: str(group.cpus) for group in found}


def mask(text: str) -> int:
    return CPUSet.parse(text).mask


# Any facts.


@pytest.mark.parametrize("kind", KINDS)
@untimed
@given(facts=all_facts)
def test_groups_cover_every_online_cpu_exactly_once(kind: str, facts: Facts) -> None:
    found: tuple[Group, ...] = getattr(Topology.from_groups(facts), kind)
    assert sorted(cpu for group in found for cpu in cpus_of(group.mask)) == cpus_of(facts.online)


@pytest.mark.parametrize("kind", KINDS)
@untimed
@given(facts=all_facts)
def test_groups_stand_in_the_order_of_their_ids_and_none_is_empty(kind: str, facts: Facts) -> None:
    found: tuple[Group, ...] = getattr(Topology.from_groups(facts), kind)
    ids = [group.id for group in found]
    assert ids == sorted(set(ids))
    assert all(group.mask for group in found)


@untimed
@given(all_facts)
def test_core_is_named_by_its_lowest_cpu(facts: Facts) -> None:
    assert all(core.id == core.cpus.lowest for core in Topology.from_groups(facts).cores)


@untimed
@given(all_facts)
def test_row_says_what_the_first_group_with_the_cpu_says_and_none_without_one(facts: Facts) -> None:
    topology = Topology.from_groups(facts)
    for row in topology.cpus:
        said = [
            next((number for number, cpus in by_id.items() if cpus >> row.cpu & 1), None)
            for by_id in (facts.sockets, facts.numa_nodes, facts.uncore_caches)
        ]
        assert [row.socket, row.numa, row.uncore] == said
        assert (row.core is None) == (not any(core >> row.cpu & 1 for core in facts.cores))


@untimed
@given(all_facts)
def test_rows_in_any_order_give_the_same_groups(facts: Facts) -> None:
    topology = Topology.from_groups(facts)
    rows = Topology.from_rows(reversed(topology.cpus))
    again = dataclasses.replace(rows, memory_only=topology.memory_only)
    assert [getattr(again, kind) for kind in KINDS] == [getattr(topology, kind) for kind in KINDS]


@untimed
@given(all_facts, st.frozensets(st.integers(0, 15)))
def test_siblings_are_the_cpus_asked_for_and_all_on_their_cores(facts: Facts, asked: frozenset[int]) -> None:
    topology = Topology.from_groups(facts)
    cpus = CPUSet.from_cpus(asked) & topology.online
    siblings = topology.siblings(cpus)
    assert set(siblings) == {cpu for core in topology.cores for cpu in core.cpus if core.mask & cpus.mask}
    assert cpus <= siblings == topology.siblings(siblings)


@untimed
@given(all_facts)
def test_offline_cpus_are_never_online_and_memory_only_nodes_never_have_cpus(facts: Facts) -> None:
    topology = Topology.from_groups(facts)
    assert topology.offline.isdisjoint(topology.online)
    assert {row.numa for row in topology.cpus}.isdisjoint(topology.memory_only)
    assert {row.numa for row in topology.cpus if row.numa is not None} | {*topology.memory_only} == {*facts.numa_nodes}


@untimed
@given(all_facts)
def test_core_of_each_cpu_is_the_core_that_holds_it(facts: Facts) -> None:
    topology = Topology.from_groups(facts)
    assert {cpu: core.id for cpu, core in topology.core_of.items()} == {
        cpu: core.id for core in topology.cores for cpu in core.cpus
    }


# What is assumed where the machine does not say.


def test_cpu_on_no_known_core_is_a_core_of_its_own() -> None:
    topology = Topology.from_groups(Facts(online=mask("0-4"), cores=[mask("0,2")]))
    assert [row.core for row in topology.cpus] == [0, None, 0, None, None]
    assert as_text(topology.cores) == {0: "0,2", 1: "1", 3: "3", 4: "4"}


@pytest.mark.parametrize(
    ("sockets", "expected"),
    [
        pytest.param({}, {0: "0-3"}, id="none known"),
        pytest.param({0: "0"}, {0: "0", 1: "1-3"}, id="beside a known one"),
        pytest.param({36: "2", 7: "1"}, {7: "1", 36: "2", 37: "0,3"}, id="with an id that no other has"),
    ],
)
def test_cpus_in_no_known_socket_share_one(sockets: dict[int, str], expected: dict[int, str]) -> None:
    known = {number: mask(text) for number, text in sockets.items()}
    assert as_text(Topology.from_groups(Facts(online=15, sockets=known)).sockets) == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({}, {0: "0-3"}, id="none known"),
        pytest.param({0: "0"}, {0: "0", 1: "1-3"}, id="beside a known one"),
        pytest.param({8: "2", 3: "1"}, {3: "1", 8: "2", 9: "0,3"}, id="with an id that no other has"),
        pytest.param({0: "0", 1: ""}, {0: "0", 2: "1-3"}, id="with an id that no node without CPUs has"),
    ],
)
def test_cpus_in_no_known_numa_node_share_one(nodes: dict[int, str], expected: dict[int, str]) -> None:
    known = {number: mask(text) for number, text in nodes.items()}
    assert as_text(Topology.from_groups(Facts(online=15, numa_nodes=known)).numa_nodes) == expected


@pytest.mark.parametrize(
    ("sockets", "caches", "expected"),
    [
        pytest.param({}, {}, {0: "0-7"}, id="nothing known: one"),
        pytest.param({0: "0-3", 1: "4-7"}, {}, {0: "0-3", 1: "4-7"}, id="no cache known: one for each socket"),
        pytest.param({36: "0-3", 8: "4-7"}, {}, {8: "4-7", 36: "0-3"}, id="with the socket's id"),
        pytest.param({36: "0-3"}, {}, {36: "0-3", 37: "4-7"}, id="also of the socket that is assumed"),
        pytest.param(
            {0: "0-3", 1: "4-7"},
            {5: "0-1"},
            {5: "0-1", 6: "2-3", 7: "4-7"},
            id="some known: the rest of each socket, with ids of their own",
        ),
        pytest.param({0: "0-3", 1: "4-7"}, {2: "2-5"}, {2: "2-5", 3: "0-1", 4: "6-7"}, id="a cache over two sockets"),
    ],
)
def test_cpus_of_no_known_uncore_cache_share_one_in_each_socket(
    sockets: dict[int, str], caches: dict[int, str], expected: dict[int, str]
) -> None:
    topology = Topology.from_groups(
        Facts(
            online=255,
            sockets={number: mask(text) for number, text in sockets.items()},
            uncore_caches={number: mask(text) for number, text in caches.items()},
        )
    )
    assert as_text(topology.uncore_caches) == expected


def test_machine_without_cpus_has_no_groups() -> None:
    topology = Topology.from_groups(Facts(online=0))
    assert [getattr(topology, kind) for kind in KINDS] == [()] * 4
    assert (topology.threads_per_core, topology.counts) == (0, Counts(0, 0, 0))


def test_groups_are_cut_to_the_online_cpus() -> None:
    facts = Facts(online=mask("0-1"), cores=[mask("0,4"), mask("1,5")], sockets={0: 255}, numa_nodes={0: 15, 1: 240})
    topology = Topology.from_groups(facts)
    assert as_text(topology.cores) == {0: "0", 1: "1"}
    assert as_text(topology.sockets) == {0: "0-1"}
    assert (as_text(topology.numa_nodes), topology.memory_only) == ({0: "0-1"}, (1,))


def test_core_whose_lowest_cpu_is_offline_is_named_by_its_lowest_online_one() -> None:
    assert as_text(Topology.from_groups(Facts(online=mask("1-3"), cores=[mask("0,2")])).cores) == {
        1: "1",
        2: "2",
        3: "3",
    }


# What contradicts itself.


@pytest.mark.parametrize(
    ("facts", "warning"),
    [
        pytest.param(
            Facts(online=15, cores=[mask("0-1"), mask("1-2")]),
            "core also claims CPUs 1, which another core has; the first one keeps them",
            id="core",
        ),
        pytest.param(
            Facts(online=15, sockets={4: mask("0-2"), 1: mask("1-3")}),
            "socket 1 also claims CPUs 1-2, which another socket has; the first one keeps them",
            id="socket",
        ),
        pytest.param(
            Facts(online=15, numa_nodes={0: mask("0-2"), 1: mask("2-3")}),
            "NUMA node 1 also claims CPUs 2, which another NUMA node has; the first one keeps them",
            id="NUMA node",
        ),
        pytest.param(
            Facts(online=15, uncore_caches={0: 15, 7: 15}),
            "uncore cache 7 also claims CPUs 0-3, which another uncore cache has; the first one keeps them",
            id="uncore cache",
        ),
    ],
)
def test_groups_that_overlap_are_a_warning(facts: Facts, warning: str) -> None:
    assert Topology.from_groups(facts).warnings == (warning,)


def test_cpus_that_two_groups_claim_stay_with_the_first() -> None:
    facts = Facts(online=15, numa_nodes={1: mask("0-2"), 0: mask("2-3")}, cores=[mask("0-1"), mask("1-2")])
    topology = Topology.from_groups(facts)
    assert as_text(topology.numa_nodes) == {0: "3", 1: "0-2"}
    assert as_text(topology.cores) == {0: "0-1", 2: "2", 3: "3"}


def test_overlap_of_offline_cpus_is_no_warning() -> None:
    assert Topology.from_groups(Facts(online=1, numa_nodes={0: 3, 1: 2})).warnings == ()


def test_warnings_of_the_source_come_first() -> None:
    facts = Facts(online=3, sockets={0: 3, 1: 1}, warnings=["from the source"])
    assert [warning.split()[0] for warning in Topology.from_groups(facts).warnings] == ["from", "socket"]


# The value.


def test_machines_with_different_warnings_are_equal() -> None:
    one, other = Facts(online=3, sockets={0: 3}), Facts(online=3, sockets={0: 3}, warnings=["something was missing"])
    a, b = Topology.from_groups(one), Topology.from_groups(other)
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.parametrize(
    "other",
    [
        Facts(online=7),
        Facts(online=3, cores=[3]),
        Facts(online=3, sockets={0: 3}),
        Facts(online=3, numa_nodes={0: 3}),
        Facts(online=3, uncore_caches={0: 3}),
        Facts(online=3, offline=4),
        Facts(online=3, isolated=2),
        Facts(online=3, numa_nodes={0: 0}),
        Facts(online=3, distances={0: {0: 10}}),
    ],
    ids=["online", "core", "socket", "NUMA node", "uncore cache", "offline", "isolated", "memory only", "distances"],
)
def test_machines_that_differ_are_not_equal(other: Facts) -> None:
    assert Topology.from_groups(Facts(online=3)) != Topology.from_groups(other)


def test_machine_cannot_be_changed() -> None:
    topology = Topology.from_groups(Facts(online=3, distances={0: {0: 10}}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        topology.offline = EMPTY  # type: ignore[misc]  # what this test is about
    with pytest.raises(TypeError):
        topology.distances[0][0] = 20  # type: ignore[index]  # likewise


def test_rows_may_come_in_any_order() -> None:
    rows = [(1, 1, 0, 0, 0), (0, 0, 0, 0, None)]
    assert Topology.from_rows(rows).cpus == (CPUInfo(0, 0, 0, 0, None), CPUInfo(1, 1, 0, 0, 0))


def test_siblings_on_hybrid_cores_are_two_or_one() -> None:
    machine = preset("i7-12850hx")
    assert [str(machine.siblings(CPUSet.of(cpu))) for cpu in (0, 15, 16, 23)] == ["0-1", "14-15", "16", "23"]
    assert machine.threads_per_core == 2


def test_siblings_of_nothing_are_nothing() -> None:
    assert preset("laptop-4").siblings(EMPTY) == EMPTY


def test_counts_are_those_of_the_groups_unless_the_kubelet_counts_otherwise() -> None:
    machine = preset("xeon-2s-64")
    assert machine.counts == Counts(cpus=64, cores=32, sockets=2)
    assert dataclasses.replace(machine, counted=Counts(64, 33, 2)).counts == Counts(64, 33, 2)
