from __future__ import annotations

import json

import pytest

from pinfold.errors import ParseError
from pinfold.formats.machine.cadvisor import parse_cadvisor, parse_cadvisor_as_kubelet

Object = dict[str, object]


def core(*cpus: int, socket: int | None = 0, uncore: list[Object] | None = None) -> Object:
    return {"core_id": 7, "thread_ids": cpus, "socket_id": socket, "uncore_caches": uncore}


def node(number: int, *cores: Object, **more: object) -> Object:
    return {"node_id": number, "memory": 1 << 40, "cores": cores, **more}


def info(*nodes: object, **more: object) -> str:
    return json.dumps({"num_cores": 4, "num_sockets": 1, "topology": nodes, **more})


def uncore(text: str) -> list[int | None]:
    return [row.uncore for row in parse_cadvisor(text).cpus]


def test_cores_go_by_their_cpus_and_not_by_their_ids() -> None:
    machine = parse_cadvisor(info(node(3, core(2, 0), core(1, 3, socket=5))))
    assert [tuple(row) for row in machine.cpus] == [
        (0, 0, 0, 3, None),
        (1, 1, 5, 3, None),
        (2, 0, 0, 3, None),
        (3, 1, 5, 3, None),
    ]


@pytest.mark.parametrize("socket", [-1, None])
def test_socket_that_is_not_told_is_unknown(socket: int | None) -> None:
    assert parse_cadvisor(info(node(0, core(0, socket=socket)))).cpus[0].socket is None


def test_core_without_cpus_does_no_harm() -> None:
    assert str(parse_cadvisor(info(node(0, core(0), core()))).online) == "0"


def test_third_level_cache_of_a_node_is_one_uncore_cache() -> None:
    caches = [{"id": 9, "level": 3, "type": "Unified", "size": 1}]
    assert uncore(info(node(0, core(0), core(1), caches=caches))) == [9, 9]


def test_second_level_cache_is_no_uncore_cache() -> None:
    second: list[Object] = [{"id": 9, "level": 2}]
    assert uncore(info(node(0, core(0, uncore=second), caches=second))) == [None]


def test_cache_without_a_level_at_a_core_is_an_uncore_cache() -> None:
    assert uncore(info(node(0, core(0, uncore=[{"id": 4}]), core(1, uncore=[{"id": 2}])))) == [4, 2]


def test_lowest_level_counts() -> None:
    levels: list[Object] = [{"id": 4, "level": 4}, {"id": 3, "level": 3}]
    assert uncore(info(node(0, core(0, uncore=levels)))) == [3]
    third, fourth = [{"id": 3, "level": 3}], [{"id": 4, "level": 4}]
    assert uncore(info(node(0, core(0, uncore=fourth), caches=third))) == [3]  # type: ignore[arg-type]  # invariance


def test_same_cache_at_cores_of_two_nodes_is_one_cache() -> None:
    shared: list[Object] = [{"id": 6, "level": 3}]
    machine = parse_cadvisor(info(node(0, core(0, uncore=shared)), node(1, core(1, uncore=shared))))
    assert [str(cache.cpus) for cache in machine.uncore_caches] == ["0-1"]


def test_same_cache_id_at_two_nodes_is_two_caches_numbered_by_their_lowest_cpu() -> None:
    caches = [{"id": 6, "level": 3}]
    assert uncore(info(node(0, core(1), caches=caches), node(1, core(0), caches=caches))) == [0, 1]


def test_cache_with_an_unknown_id_makes_all_numbered() -> None:
    assert uncore(info(node(0, core(0, uncore=[{"id": 5}]), core(1, uncore=[{"id": -1}])))) == [0, 1]


def test_node_without_cores_is_a_node_without_cpus() -> None:
    assert parse_cadvisor(info(node(0, core(0)), node(2, cores=None))).memory_only == (2,)


def test_distances_follow_the_order_of_node_numbers() -> None:
    machine = parse_cadvisor(info(node(5, core(1), distances=[20, 10]), node(2, core(0), distances=[10, 30])))
    assert machine.distances == {2: {2: 10, 5: 30}, 5: {2: 20, 5: 10}}


def test_distances_of_the_wrong_length_are_a_warning() -> None:
    machine = parse_cadvisor(info(node(0, core(0), distances=[10, 20])))
    assert machine.distances == {}
    assert machine.warnings == ("topology[0].distances: expected 1 numbers, found 2; ignored",)


WRONG = [
    ("", "line 1, column 1: not JSON: Expecting value"),
    ('{"a":\n1 x}', "line 2, column 3: not JSON: Expecting ',' delimiter"),
    ("[]", "not a MachineInfo: expected an object at the top"),
    ("{}", "no CPUs found; expected topology[].cores[].thread_ids[]"),
    ('{"topology": NaN}', "not JSON: NaN"),
    ('{"topology": -Infinity}', "not JSON: -Infinity"),
    ("[" * 1_000_000, "not a MachineInfo: nested too deeply"),
    (info(topology=1), "topology: expected a list, found a number"),
    (info(topology={}), "topology: expected a list, found an object"),
    (info(None), "topology[0]: expected an object, found null"),
    (info([]), "topology[0]: expected an object, found a list"),
    (info(node(0, cores="x")), 'topology[0].cores: expected a list, found "x"'),
    (info(node(-2)), "topology[0].node_id: expected a number from -1 to 2147483647"),
    (info(node(-1, core(0))), "topology[0].node_id: expected a unique NUMA node, found -1"),
    (info(node(1), node(1)), "topology[1].node_id: expected a unique NUMA node, found 1"),
    (info({"node_id": "0"}), 'topology[0].node_id: expected a whole number, found "0"'),
    (info({"node_id": True}), "topology[0].node_id: expected a whole number, found true or false"),
    (info({"node_id": 1.5}), "topology[0].node_id: expected a whole number, found a number"),
    (info(node(0), node(1, core(2, 3, 4, 3))), "topology[1].cores[0].thread_ids[3]: CPU 3 is listed twice"),
    (info(node(0, core(1)), node(1, core(1))), "topology[1].cores[0].thread_ids[0]: CPU 1 is listed twice"),
    (info(node(0, core(-1))), "topology[0].cores[0].thread_ids[0]: expected a number from 0 to 8191"),
    (info(node(0, core(0, 65536))), "topology[0].cores[0].thread_ids[1]: expected a number from 0 to 8191"),
    (info(node(0, {"thread_ids": [None]})), "topology[0].cores[0].thread_ids[0]: expected a whole number, found null"),
    (info(node(0, core(0, socket=-2))), "topology[0].cores[0].socket_id: expected a number from -1 to 2147483647"),
    (info(node(0, caches=[{"id": []}])), "topology[0].caches[0].id: expected a whole number, found a list"),
    (info(node(0, distances=[-1])), "topology[0].distances[0]: expected a number from 0 to 2147483647"),
    (f'{{"num_cores": {"9" * 10_000}, "topology": [{{"node_id": {"9" * 10_000}}}]}}', "topology[0].node_id: expected"),
    (f'{{"topology": [{{"node_id": {"9" * 10_000}.5}}]}}', "topology[0].node_id: expected a whole number, found a num"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_what_is_wrong_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_cadvisor(text)
    assert str(caught.value).startswith(problem)


def test_too_much_text_is_refused() -> None:
    with pytest.raises(ParseError, match="MachineInfo of 16,777,217 characters; 16,777,216 are allowed"):
        parse_cadvisor(" " * (2**24 + 1))


def test_kubelet_names_an_uncore_cache_after_the_first_or_else_the_socket() -> None:
    levels: list[Object] = [{"id": 4, "level": 4}, {"id": 3, "level": 3}]
    machine = parse_cadvisor_as_kubelet(info(node(0, core(0, socket=2, uncore=levels), core(1, socket=2))))
    assert [row.uncore for row in machine.cpus] == [4, 2]


def test_kubelet_knows_no_unknown_socket() -> None:
    machine = parse_cadvisor_as_kubelet(info(node(0, core(0, socket=-1), core(1, socket=None))))
    assert [row.socket for row in machine.cpus] == [-1, 0]


def test_kubelet_takes_the_last_of_what_contradicts_itself() -> None:
    machine = parse_cadvisor_as_kubelet(info(node(0, core(0, 1)), node(1, core(1, 2))))
    assert [(row.cpu, row.core, row.numa) for row in machine.cpus] == [(0, 0, 0), (1, 1, 1), (2, 1, 1)]


def test_kubelet_count_that_differs_from_the_list_is_a_warning() -> None:
    machine = parse_cadvisor_as_kubelet(info(node(0, core(0)), num_cores=3, num_sockets=2))
    said = "the kubelet counts 3 CPUs, 1 cores and 2 sockets, but 1, 1 and 1 are listed"
    assert machine.warnings == (said,)
    assert machine.counts == (3, 1, 2)


def test_kubelet_view_keeps_distances_and_nodes_without_cpus() -> None:
    machine = parse_cadvisor_as_kubelet(info(node(1, distances=[9, 10]), node(0, core(0), distances=[10, 8])))
    assert machine.distances == {0: {0: 10, 1: 8}, 1: {0: 9, 1: 10}}
    assert machine.memory_only == (1,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (info(num_cores=0), "could not detect number of cpus"),
        (info(node(0, core())), "no cpus provided"),
        (info(node(0, core(1, 1))), "cpus provided are not unique"),
        (info(num_cores=-1), "num_cores: expected a number from 0 to 2147483647"),
    ],
)
def test_kubelet_refuses_in_its_own_words(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_cadvisor_as_kubelet(text)
    assert str(caught.value) == problem
