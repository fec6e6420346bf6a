from __future__ import annotations

import pytest

from pinfold.errors import ParseError
from pinfold.formats.machine.hwloc import parse_hwloc
from pinfold.formats.machine.hwlocxml import parse_bitmap

PUS = '<object type="PU" os_index="0"/><object type="PU" os_index="1"/>'
PUS += '<object type="PU" os_index="2"/><object type="PU" os_index="3"/>'


def document(inside: str = "", *, machine: str = 'cpuset="0xf"', pus: str = PUS, after: str = "") -> str:
    objects = f'<object type="Machine" {machine}>\n{inside}{pus}</object>'
    return f'<topology version="2.0">\n{objects}\n{after}</topology>'


def column(name: str, text: str) -> list[int | None]:
    return [getattr(row, name) for row in parse_hwloc(text).cpus]


def test_bitmap_may_have_empty_chunks() -> None:
    assert parse_bitmap("0x000000ff,,,0x00000001") == 0xFF << 96 | 1


@pytest.mark.parametrize("text", ["", "0x0", ",", "0x00000000,0x0"])
def test_bitmap_of_nothing_is_empty(text: str) -> None:
    assert parse_bitmap(text) == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0xf...f", 'this set has no end; expected the CPUs of one machine at column 1 of "0xf...f"'),
        ("0xf...f,0x1", 'this set has no end; expected the CPUs of one machine at column 1 of "0xf...f,0x1"'),
        ("0x1,2", 'expected 0x and 1 to 8 hex digits at column 5 of "0x1,2"'),
        ("0x123456789", 'expected 0x and 1 to 8 hex digits at column 1 of "0x123456789"'),
        ("-0x1", 'expected 0x and 1 to 8 hex digits at column 1 of "-0x1"'),
    ],
)
def test_bitmap_that_is_wrong_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_bitmap(text)
    assert str(caught.value) == problem


def test_bitmap_holds_the_highest_cpu_and_no_higher_one() -> None:
    assert parse_bitmap("0x80000000" + "," * 2047) == 1 << 65535
    with pytest.raises(ParseError, match="above 65535"):
        parse_bitmap("0x1" + "," * 2048)


def test_only_cpus_that_are_allowed_and_have_an_object_are_online() -> None:
    machine = parse_hwloc(document(machine='cpuset="0xff" complete_cpuset="0xfff" allowed_cpuset="0xfd"'))
    assert (str(machine.online), str(machine.offline)) == ("0,2-3", "8-11")


def test_online_cpuset_of_format_1_tells_offline_cpus() -> None:
    machine = parse_hwloc(document(machine='cpuset="0xf" complete_cpuset="0xf" online_cpuset="0x7"'))
    assert (str(machine.online), str(machine.offline)) == ("0-2", "3")


def test_core_goes_by_its_set_and_not_by_its_index() -> None:
    cores = '<object type="Core" os_index="0" cpuset="0x5"/><object type="Core" os_index="0" cpuset="0xa"/>'
    assert column("core", document(cores)) == [0, 1, 0, 1]


def test_sockets_keep_their_indexes() -> None:
    sockets = '<object type="Package" os_index="9" cpuset="0x3"/><object type="Socket" os_index="4" cpuset="0xc"/>'
    assert column("socket", document(sockets)) == [9, 9, 4, 4]


@pytest.mark.parametrize("index", ["", 'os_index="-1"', 'os_index="4294967295"', 'os_index="9"'])
def test_sockets_without_indexes_of_their_own_are_numbered(index: str) -> None:
    sockets = f'<object type="Package" os_index="9" cpuset="0xc"/><object type="Package" {index} cpuset="0x3"/>'
    assert column("socket", document(sockets)) == [0, 0, 1, 1]


def test_uncore_caches_keep_their_indexes() -> None:
    caches = '<object type="L3Cache" os_index="8" cpuset="0x3"/><object type="L3Cache" os_index="2" cpuset="0xc"/>'
    assert column("uncore", document(caches)) == [8, 8, 2, 2]


def test_uncore_caches_without_indexes_are_numbered_by_their_lowest_cpu() -> None:
    caches = '<object type="L3Cache" cpuset="0xc"/><object type="L3Cache" cpuset="0x3"/>'
    assert column("uncore", document(caches)) == [0, 0, 1, 1]


def test_caches_of_format_1_are_told_by_depth_and_type() -> None:
    caches = '<object type="Cache" cpuset="0xf" depth="2" cache_type="0"/>'
    caches += '<object type="Cache" cpuset="0xf" depth="3" cache_type="2"/>'
    caches += '<object type="Cache" cpuset="0x3" depth="4" cache_type="0" os_index="6"/>'
    assert column("uncore", document(caches)) == [6, 6, None, None]


def test_third_level_counts_before_the_fourth() -> None:
    caches = '<object type="L4Cache" cpuset="0xf"/><object type="L3Cache" cpuset="0x1"/><object type="L3iCache"/>'
    assert column("uncore", document(caches)) == [0, None, None, None]


def test_cpu_belongs_to_the_smallest_node_around_it() -> None:
    nodes = "".join(
        f'<object type="NUMANode" os_index="{node}" cpuset="{cpus}"/>'
        for node, cpus in ((0, "0xf"), (3, "0x3"), (2, "0xc"), (4, "0xc"), (5, "0x0"))
    )
    machine = parse_hwloc(document(nodes))
    assert [row.numa for row in machine.cpus] == [3, 3, 2, 2]
    assert machine.memory_only == (0, 4, 5)
    assert machine.warnings == ()


NODES = (
    '<object type="NUMANode" os_index="4" gp_index="40" cpuset="0xc"/>'
    '<object type="NUMANode" os_index="0" gp_index="50" cpuset="0x3"/>'
)


def test_distances_of_format_1_are_relative_and_in_the_order_of_the_document() -> None:
    values = "".join(f'<latency value="{value}"/>' for value in ("1.0", "2.1", "3.05", "1.0"))
    matrix = f'<distances nbobjs="2" relative_depth="1" latency_base="10.0">{values}</distances>'
    assert parse_hwloc(document(matrix + NODES)).distances == {4: {4: 10, 0: 21}, 0: {4: 30, 0: 10}}


def test_distances_of_format_1_between_other_objects_are_left_out() -> None:
    matrix = '<distances nbobjs="1" relative_depth="2"><latency value="1.0"/></distances>'
    assert parse_hwloc(document(matrix + NODES)).distances == {}
    assert parse_hwloc(document('<distances nbobjs="0"/>')).distances == {}


@pytest.mark.parametrize(("indexing", "indexes"), [("os", "0 4"), ("gp", "50 40")])
def test_distances_go_by_the_indexes_they_name(indexing: str, indexes: str) -> None:
    matrix = f'<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="{indexing}"><indexes>{indexes} </indexes>'
    matrix += "<u64values>10 11 </u64values>\n<u64values>12 10 </u64values></distances2>"
    assert parse_hwloc(document(NODES, after=matrix)).distances == {0: {0: 10, 4: 11}, 4: {0: 12, 4: 10}}


@pytest.mark.parametrize("attributes", ['type="NUMANode" kind="9"', 'type="PU" kind="5"', 'type="NUMANode" kind="x"'])
def test_distances_that_are_no_latencies_of_nodes_are_left_out(attributes: str) -> None:
    matrix = f'<distances2 {attributes} nbobjs="2" indexing="os"><u64values>1 2 x</u64values></distances2>'
    assert parse_hwloc(document(NODES, after=matrix)).distances == {}


def matrix(indexes: str, values: str, count: str = "2") -> str:
    start = f'<distances2 type="NUMANode" nbobjs="{count}" kind="5" indexing="os">'
    inside = f"<indexes>{indexes}</indexes><u64values>{values}</u64values>"
    return document(NODES, after=f"{start}{inside}</distances2>")


WRONG = [
    ("", "line 1: not XML: no element found"),
    ("<topology>", "line 1: not XML: no element found"),
    ("plain text", "line 1: not XML: syntax error"),
    ("<topology>\n<info></topology>", "line 2: not XML: mismatched tag"),
    ("<topology/>\ud800", "not XML: characters that no encoding has"),
    ("<root/>", 'line 1: expected an hwloc topology, found element "root"'),
    ('<topology version="9.1"/>', 'line 1: hwloc XML format "9.1"; 1, 2, 3 are known'),
    ("<topology/>", "no object found; expected at least the machine"),
    ("<topology>\n<object/></topology>", "line 2: object without type"),
    ('<topology><object type="Machine"/></topology>', "line 1: Machine without cpuset"),
    (document(pus=""), "no CPUs found; expected PU objects inside the cpuset of the machine"),
    (document(machine='cpuset="0xf0"'), "no CPUs found; expected PU objects inside the cpuset of the machine"),
    (document(pus='<object type="PU"/>'), "line 3: PU without os_index"),
    (document(pus='<object type="PU" os_index="-1"/>'), "line 3: PU without os_index"),
    (
        document(pus='<object type="PU" os_index="65536"/>'),
        'line 3: os_index: expected a number from 0 to 65535, found "65536"',
    ),
    (
        document(pus='<object type="PU" os_index="two"/>'),
        'line 3: os_index: expected a number from 0 to 65535, found "two"',
    ),
    (document(pus=PUS + PUS), "line 3: PU 0 is a duplicate"),
    (document('<object type="Core"/>'), "line 3: Core without cpuset"),
    (
        document('<object type="Core" cpuset="9"/>'),
        'line 3: cpuset: expected 0x and 1 to 8 hex digits at column 1 of "9"',
    ),
    (
        document(machine='cpuset="0xf...f"'),
        'line 2: cpuset: this set has no end; expected the CPUs of one machine at column 1 of "0xf...f"',
    ),
    (
        document('<object type="Core" cpuset="0x3"/>\n<object type="Core" cpuset="0x6"/>\n'),
        "line 4: CPUs 1 are in two objects of type Core",
    ),
    (document('<object type="NUMANode" cpuset="0x3"/>'), "line 3: NUMANode without os_index"),
    (document(NODES + NODES), "line 3: NUMA node 4 is a duplicate"),
    (matrix("0 4", "10 20 20"), "line 4: expected 4 distances of 2 NUMA nodes, found 3 of 2"),
    (matrix("0", "10 20 20 10"), "line 4: expected 4 distances of 2 NUMA nodes, found 4 of 1"),
    (matrix("0 4", "10 20 20 10", count="1000"), "line 4: expected 1000000 distances of 1000 NUMA nodes, found 4 of 2"),
    (matrix("0 5", "10 20 20 10"), 'line 4: expected the os_index of each NUMA node once, found "5"'),
    (matrix("0 0", "10 20 20 10"), 'line 4: expected the os_index of each NUMA node once, found "0"'),
    (matrix("0 4", "10 20 20 nan"), 'line 4: expected a distance, found "nan"'),
    (matrix("0 4", "10 20 20 -1"), 'line 4: expected a distance, found "-1"'),
    (matrix("0 4", "10 20 20 1e400"), 'line 4: expected a distance, found "1e400"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_what_is_wrong_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_hwloc(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "declarations",
    [
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">',
        '<!ENTITY % remote SYSTEM "http://127.0.0.1:1/x.dtd"> %remote;',
        '<!ENTITY secret SYSTEM "file:///etc/passwd">',
        '<!ATTLIST object cpuset CDATA "0xf">',
    ],
)
def test_declarations_inside_the_doctype_are_refused(declarations: str) -> None:
    with pytest.raises(ParseError, match="line 1: declarations inside DOCTYPE are not allowed"):
        parse_hwloc(f"<!DOCTYPE topology [{declarations}]>{document()}")


def test_named_dtd_is_neither_loaded_nor_refused() -> None:
    text = f'<!DOCTYPE topology SYSTEM "file:///does/not/exist.dtd">{document()}'
    assert len(parse_hwloc(text).cpus) == 4


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ParseError, match="nested deeper than 100 elements"):
        parse_hwloc('<topology><object type="Group">' + '<object type="Group">' * 100_000)


def test_too_much_text_is_refused() -> None:
    with pytest.raises(ParseError, match="hwloc XML of 33,554,433 characters; 33,554,432 are allowed"):
        parse_hwloc(" " * (2**25 + 1))


def test_too_many_objects_are_refused() -> None:
    with pytest.raises(ParseError, match="more than 1,024 objects of type NUMANode"):
        parse_hwloc(document('<object type="NUMANode"/>' * 1025))
    with pytest.raises(ParseError, match="more than 65,536 objects of type PU"):
        parse_hwloc(document(pus='<object type="PU"/>' * 65537))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<u64values>1 1 </u64values>" * (1024**2 // 2 + 1), "distances between more than 1,024 NUMA nodes"),
        (f"<u64values>{'1 ' * 2**19} </u64values>", "more than 1,048,576 characters of distances in one element"),
        ("<distances/>" * 100, "more than 100 matrices of distances"),
    ],
    ids=["values", "text", "matrices"],
)
def test_too_many_distances_are_refused(inside: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        parse_hwloc(document(after=f'<distances2 type="NUMANode" nbobjs="2" kind="5">{inside}</distances2>'))
