from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.topology import Facts, Topology
from pinfold.errors import ParseError
from pinfold.formats.machine.lscpu import format_lscpu, parse_lscpu


def rows(text: str) -> list[tuple[int | None, ...]]:
    return [tuple(row) for row in parse_lscpu(text).cpus]


def test_caches_in_columns_of_their_own_are_read() -> None:
    text = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,4\n1,1,0,0,,1,1,1,4\n2,2,1,1,,2,2,2,5\n"
    assert rows(text) == [(0, 0, 0, 0, 4), (1, 1, 0, 0, 4), (2, 2, 1, 1, 5)]


def test_caches_in_one_column_are_read() -> None:
    text = "# CPU,Core,Socket,Node,L1d:L1i:L2:L3\n0,0,0,0,0:0:0:4\n1,0,0,0,0:0:0:4\n"
    assert rows(text) == [(0, 0, 0, 0, 4), (1, 0, 0, 0, 4)]


def test_level_4_is_the_uncore_cache_where_there_is_no_level_3() -> None:
    assert rows("# CPU,Core,Socket,Node,L2:L4\n0,0,0,0,0:7\n")[0][-1] == 7


def test_level_3_is_the_uncore_cache_where_there_is_a_level_4_too() -> None:
    assert rows("# CPU,Core,Socket,Node,,L4,L3\n0,0,0,0,,8,3\n")[0][-1] == 3


def test_instruction_cache_is_no_uncore_cache() -> None:
    assert rows("# CPU,Core,Socket,Node,,L2,L3i\n0,0,0,0,,0,3\n")[0][-1] is None


def test_level_2_is_no_uncore_cache() -> None:
    assert rows("# CPU,Core,Socket,Node,,L1d,L1i,L2d,L2i\n0,0,0,0,,0,0,0,0\n") == [(0, 0, 0, 0, None)]


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    assert rows("# NODE,Book,SOCKET,cpu,Core\n1,9,2,3,0\n") == [(3, 3, 2, 1, None)]


def test_columns_that_are_not_there_are_unknown() -> None:
    assert rows("# CPU\n0\n1\n") == [(0, None, None, None, None), (1, None, None, None, None)]


@pytest.mark.parametrize(
    ("line", "uncore"),
    [
        ("0,0,0,0", None),
        ("0,0,0,0,,1,2,3,4", 4),
        ("0,0,0,0,1:2:3:4", 4),
        ("0,0,0,0,,1,2,3", None),
        ("0,0,0,0,1:2:3", None),
    ],
)
def test_output_without_header_is_read_by_the_shape_of_its_rows(line: str, uncore: int | None) -> None:
    assert rows(line) == [(0, 0, 0, 0, uncore)]


def test_empty_cells_and_dashes_are_unknown() -> None:
    text = "# CPU,Core,Socket,Node,,L3,Online\n0,0,-,,,-,Y\n1,1,,-,,,Y\n"
    assert rows(text) == [(0, 0, None, None, None), (1, 1, None, None, None)]


def test_caches_that_a_cpu_lacks_are_left_out_at_the_end_of_its_caches() -> None:
    text = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3,Online\n0,0,0,0,,0,0,0,0,Y\n1,1,0,0,,1,1,1,Y\n"
    assert [row[-1] for row in rows(text)] == [0, None]


def test_online_column_tells_offline_cpus() -> None:
    text = (
        "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3,Online\n0,0,0,0,,0,0,0,0,Y\n1,,,,,,N\n2,1,0,0,,1,1,1,0,yes\n3,,0,,,,no\n"
    )
    machine = parse_lscpu(text)
    assert (str(machine.online), str(machine.offline)) == ("0,2", "1,3")


def test_cpus_of_which_nothing_is_known_are_offline_where_others_have_cores() -> None:
    machine = parse_lscpu("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,,0,,,\n1,0,0,0,,0,0,0,0\n2,,,,,\n")
    assert (str(machine.online), str(machine.offline)) == ("1", "0,2")


def test_cpus_are_online_where_nothing_is_known_of_any() -> None:
    assert str(parse_lscpu("# CPU,Core,Socket,Node\n0,,,\n1,,,\n").online) == "0-1"


def test_core_numbers_that_repeat_in_each_socket_are_different_cores() -> None:
    assert [row[1] for row in rows("# CPU,Core,Socket\n0,0,0\n1,0,1\n2,0,0\n3,0,1\n")] == [0, 1, 0, 1]


def test_windows_line_ends_and_spaces_do_no_harm() -> None:
    assert rows("# CPU,Core,Socket,Node\r\n 0, 0,0,0 \r\n\r\n") == [(0, 0, 0, 0, None)]


WRONG = [
    ("", "no CPUs found; expected the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"),
    ("# only,comments\n", "no CPUs found; expected the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"),
    ("# CPU,Online\n0,N\n", "every CPU is offline"),
    ("0,0,0,0\n0,0,0,0\n", 'line 2: CPU 0 is listed twice at column 1 of "0,0,0,0"'),
    ("0,0,0,x\n", 'line 1: expected a number from 0 to 2147483647 at column 7 of "0,0,0,x"'),
    ("0,0,0,-1\n", 'line 1: expected a number from 0 to 2147483647 at column 7 of "0,0,0,-1"'),
    ("65536,0,0,0", 'line 1: expected a number from 0 to 8191 at column 1 of "65536,0,0,0"'),
    ("0,0,9999999999,0", 'line 1: expected a number from 0 to 2147483647 at column 5 of "0,0,9999999999,0"'),
    ("0,0,٣,0", 'line 1: expected a number from 0 to 2147483647 at column 5 of "0,0,٣,0"'),
    ("# CPU,L2:L3\n0,0:a\n", 'line 2: expected a number from 0 to 2147483647 at column 5 of "0,0:a"'),
    (",0,0,0\n", 'line 1: a row without a CPU at column 1 of ",0,0,0"'),
    ("# CPU,Core\n0,0,0\n", 'line 2: expected 2 cells, found 3 at column 1 of "0,0,0"'),
    ("Architecture:  x86_64\n", 'line 1: expected 4 cells, found 1 at column 1 of "Architecture:  x86_64"'),
]


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_what_is_wrong_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_lscpu(text)
    assert str(caught.value) == problem


def test_too_much_text_is_refused() -> None:
    with pytest.raises(ParseError, match="lscpu output of 1,048,577 characters; 1,048,576 are allowed"):
        parse_lscpu("\n" * (2**20 + 1))


@pytest.mark.parametrize("name", preset_names())
def test_printed_presets_are_read_back(name: str) -> None:
    assert parse_lscpu(format_lscpu(preset(name))).cpus == preset(name).cpus


def test_printed_rows_number_cores_and_keep_the_ids_of_all_else() -> None:
    machine = Topology.from_rows([(4, 4, 36, 7, 2), (5, 4, 36, 7, 2), (9, 9, 1, 0, 3)])
    assert format_lscpu(machine) == "# CPU,Core,Socket,Node,,L3\n4,0,36,7,,2\n5,0,36,7,,2\n9,1,1,0,,3\n"


masks = st.integers(0, 0xFF)


@given(
    st.integers(1, 0xFF),
    st.lists(masks, max_size=4),
    st.dictionaries(st.integers(0, 99), masks, max_size=3),
    st.dictionaries(st.integers(0, 99), masks, max_size=3),
    st.dictionaries(st.integers(0, 99), masks, max_size=3),
)
def test_any_printed_text_is_read_back(
    online: int, cores: list[int], sockets: dict[int, int], nodes: dict[int, int], caches: dict[int, int]
) -> None:
    machine = Topology.from_groups(Facts(online, cores, sockets, nodes, caches))
    # A core in two sockets, which no machine has, is two cores for lscpu.
    whole = {row.core: row.socket for row in machine.cpus}
    if all(row.core is None or whole[row.core] == row.socket for row in machine.cpus):
        assert parse_lscpu(format_lscpu(machine)).cpus == machine.cpus
