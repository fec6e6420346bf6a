import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.topology import CPUInfo, Topology
from pinfold.errors import ParseError
from pinfold.formats.machine.topologyjson import format_topology_json, parse_topology_json

IDS = st.none() | st.integers(-1, 5)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    cpus = sorted(draw(st.sets(st.integers(0, 70), max_size=12)))
    rows = tuple(CPUInfo(cpu, draw(IDS), draw(IDS), draw(IDS), draw(IDS)) for cpu in cpus)
    used = {row.numa for row in rows}
    nodes = st.integers(0, 9)
    return Topology(
        rows,
        offline=CPUSet.from_cpus(draw(st.sets(st.integers(0, 70)))) - CPUSet.from_cpus(cpus),
        isolated=CPUSet.from_cpus(draw(st.sets(st.integers(0, 70)))),
        memory_only=tuple(sorted(draw(st.sets(nodes)) - used)),
        distances=draw(st.dictionaries(nodes, st.dictionaries(nodes, st.integers(0, 255)))),
        warnings=tuple(draw(st.lists(st.text(), max_size=3))),
    )


@settings(deadline=None)
@given(topologies())
def test_what_is_written_is_read_back(topology: Topology) -> None:
    again = parse_topology_json(format_topology_json(topology))
    assert again == topology
    assert again.warnings == topology.warnings


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_read_back(name: str) -> None:
    assert parse_topology_json(format_topology_json(preset(name))) == preset(name)


def test_members_are_those_that_others_rely_on() -> None:
    topology = Topology(
        (CPUInfo(0, 0, 0, 0, 0), CPUInfo(1, 1, None, 1, None)),
        offline=CPUSet.of(2, 3),
        isolated=CPUSet.of(1),
        memory_only=(4,),
        distances={0: {0: 10, 1: 21}},
        warnings=("no socket",),
    )
    assert json.loads(format_topology_json(topology)) == {
        "cpus": [
            {"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0},
            {"cpu": 1, "core": 1, "socket": None, "numa": 1, "uncore": None},
        ],
        "online": "0-1",
        "offline": "2-3",
        "isolated": "1",
        "nodes": {"0": "0", "1": "1", "4": ""},
        "distances": {"0": {"0": 10, "1": 21}},
        "warnings": ["no socket"],
    }


def test_a_cpu_is_a_line() -> None:
    lines = format_topology_json(preset("cores:64")).splitlines()
    assert sum('"cpu"' in line for line in lines) == 64


CPU0 = '{"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0}'


def test_only_cpus_are_needed() -> None:
    assert parse_topology_json(f'{{"cpus": [{CPU0}]}}') == Topology((CPUInfo(0, 0, 0, 0, 0),))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1, column 1: not JSON: Expecting value"),
        ("[]", "top: expected an object, found a list"),
        ("[" * 100_000, "not JSON of a machine: nested too deeply"),
        ("{}", "cpus: is missing"),
        ('{"cpus": {}}', "cpus: expected a list, found an object"),
        ('{"cpus": [7]}', "cpus[0]: expected an object, found a number"),
        ('{"cpus": [{"cpu": 0}]}', "cpus[0].core: is missing"),
        (
            f'{{"cpus": [{CPU0.replace("0,", "true,", 1)}]}}',
            "cpus[0].cpu: expected a whole number, found true or false",
        ),
        (f'{{"cpus": [{CPU0.replace("0,", "0.5,", 1)}]}}', "cpus[0].cpu: expected a whole number, found a number"),
        (
            f'{{"cpus": [{CPU0.replace("0,", "65536,", 1)}]}}',
            "cpus[0].cpu: expected a number from 0 to 65535, found 65536",
        ),
        (
            f'{{"cpus": [{CPU0.replace("0,", "9" * 9999 + ",", 1)}]}}',
            "cpus[0].cpu: expected a number from 0 to 65535, found 99999999999999999999",
        ),
        (f'{{"cpus": [{CPU0}, {CPU0}]}}', "cpus: a CPU is listed twice"),
        (f'{{"cpus": [{CPU0}], "online": "0-1"}}', 'online: says "0-1", but cpus lists "0"'),
        (f'{{"cpus": [{CPU0}], "offline": "0"}}', "offline: CPUs 0 are also online"),
        (f'{{"cpus": [{CPU0}], "isolated": "x"}}', 'isolated: expected a CPU number at column 1 of "x"'),
        (f'{{"cpus": [{CPU0}], "isolated": 3}}', "isolated: expected text, found a number"),
        (f'{{"cpus": [{CPU0}], "nodes": {{"0": "0-1"}}}}', 'nodes.0: says "0-1", but cpus says "0"'),
        (f'{{"cpus": [{CPU0}], "nodes": {{"1": "1"}}}}', 'nodes.1: says "1", but cpus says ""'),
        (f'{{"cpus": [{CPU0}], "nodes": {{"a": "0"}}}}', 'nodes: expected the number of a NUMA node, found "a"'),
        (
            f'{{"cpus": [{CPU0}], "distances": {{"0": {{"00": 1}}}}}}',
            'distances.0: expected the number of a NUMA node, found "00"',
        ),
        (f'{{"cpus": [{CPU0}], "distances": {{"0": [10]}}}}', "distances.0: expected an object, found a list"),
        (
            f'{{"cpus": [{CPU0}], "distances": {{"0": {{"0": null}}}}}}',
            "distances.0.0: expected a whole number, found null",
        ),
        (f'{{"cpus": [{CPU0}], "warnings": [1]}}', "warnings[0]: expected text, found a number"),
    ],
)
def test_errors_say_what_and_where(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_topology_json(text)
    assert str(caught.value) == problem
