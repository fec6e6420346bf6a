from __future__ import annotations

import copy
import pickle
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, MAX_CPU, CPUSet, cpus_of
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable

    Parse = Callable[[str], CPUSet]

TEN_MEGABYTES = 10_000_000
EVERYTHING = CPUSet.from_cpus(range(MAX_CPU + 1))
NUMBER = "expected a CPU number"
SEPARATOR = 'expected "," or "-"'
TOO_HIGH = f"number is above {MAX_CPU}, the highest CPU allowed"
DIGITS = "expected hex digits"
DIGITS_OR_COMMA = 'expected hex digits or ","'
ALL_ZERO = ["00000000"] * ((MAX_CPU + 1) // 32)


def refusal(parse: Parse, text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(text)
    return caught.value


def assert_refused_at(parse: Parse, text: str, at: int, problem: str) -> None:
    error = refusal(parse, text)
    assert (error.problem, error.at) == (problem, at)
    assert f"at column {at + 1} of " in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 200


def peak_of(action: Callable[[], object]) -> int:
    """Return the most memory that the action held at any time, in bytes, beyond what was there before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refusals(*rows: tuple[str, int, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("text", "at", "problem"), [pytest.param(*row, id=ascii(row[0])) for row in rows])


# The list format.


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param(" \t\r\n", [], id="only white space"),
        pytest.param("0", [0], id="one"),
        pytest.param("0-3,8\n", [0, 1, 2, 3, 8], id="as the kernel prints it"),
        pytest.param(" \t3,1\r\n", [1, 3], id="white space around, any order"),
        pytest.param("007,0008-0010", [7, 8, 9, 10], id="leading zeros"),
        pytest.param("0" * 5000 + "7", [7], id="many leading zeros"),
        pytest.param("1-4,2-6,3", [1, 2, 3, 4, 5, 6], id="ranges that overlap"),
        pytest.param("5-5", [5], id="a range of one"),
        pytest.param("0-7:2/4", [0, 1, 4, 5], id="stride"),
        pytest.param("3-12:1/4", [3, 7, 11], id="a stride counts from the start of its range"),
        pytest.param("0-6:2/4", [0, 1, 4, 5], id="a stride is cut at the end of its range"),
        pytest.param("0-4:3/4", [0, 1, 2, 4], id="also inside a group"),
        pytest.param("2-5:4/4", [2, 3, 4, 5], id="a stride that uses all"),
        pytest.param("2-3:1/65535", [2], id="a group wider than the range"),
        pytest.param("0-3:1/2,9,10-13:01/02", [0, 2, 9, 10, 12], id="strides among others"),
        pytest.param("65535", [65535], id="the highest"),
    ],
)
def test_list_is_read_as_the_kernel_means_it(text: str, cpus: list[int]) -> None:
    assert list(CPUSet.parse(text)) == cpus


def test_list_of_all_cpus_that_can_be_is_read() -> None:
    assert CPUSet.parse("0-65535") == EVERYTHING == CPUSet.parse(",".join(map(str, range(MAX_CPU + 1))))


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([8, 0, 3, 1, 2], "0-3,8"),
        ([65534, 65535, 0], "0,65534-65535"),
    ],
)
def test_list_is_written_as_the_kernel_writes_it(cpus: list[int], text: str) -> None:
    assert (CPUSet.from_cpus(cpus).format(), str(CPUSet.of(*cpus))) == (text, text)


@refusals(
    ("0-99999999999", 2, TOO_HIGH),
    ("65536", 0, TOO_HIGH),
    ("0-65536", 2, TOO_HIGH),
    ("65536-0", 0, TOO_HIGH),
    ("0-3,70000,5", 4, TOO_HIGH),
    ("0-3:70000/70001", 4, TOO_HIGH),
    ("0-3:1/70001", 6, TOO_HIGH),
    ("3-1", 0, "range 3-1 runs backwards"),
    ("0,3-1,9", 2, "range 3-1 runs backwards"),
    ("1,,2", 2, NUMBER),
    (",", 0, NUMBER),
    (",1", 0, NUMBER),
    ("1,", 2, NUMBER),
    ("-1", 0, NUMBER),
    ("-", 0, NUMBER),
    ("1-", 2, NUMBER),
    ("1-,2", 2, NUMBER),
    ("0--3", 2, NUMBER),
    ("+1", 0, NUMBER),
    (":1/2", 0, NUMBER),
    ("all", 0, NUMBER),
    ("N", 0, NUMBER),
    ("1, 2", 2, NUMBER),
    ("٣", 0, NUMBER),
    ("1,٣", 2, NUMBER),
    ("1-٣", 2, NUMBER),
    ("\ud800", 0, NUMBER),
    ("\0", 0, NUMBER),
    ("\ufeff0-3", 0, NUMBER),
    ("1\0", 1, SEPARATOR),
    ("1٣", 1, SEPARATOR),
    ("0x", 1, SEPARATOR),
    ("0x3", 1, SEPARATOR),
    ("1 2", 1, SEPARATOR),
    ("1\n2", 1, SEPARATOR),
    ("1.5", 1, SEPARATOR),
    ("1_0", 1, SEPARATOR),
    ("1e3", 1, SEPARATOR),
    ("1:1/2", 1, SEPARATOR),
    ("0-3:", 3, SEPARATOR),
    ("0-3/4", 3, SEPARATOR),
    ("0-3:0/4", 4, "stride 0/4 must use 1 to 4 of each group"),
    ("0-3:5/4", 4, "stride 5/4 must use 1 to 4 of each group"),
    ("0-3:0/0", 4, "stride 0/0 must use 1 to 0 of each group"),
)
def test_what_is_no_list_is_refused_at_its_column(text: str, at: int, problem: str) -> None:
    assert_refused_at(CPUSet.parse, text, at, problem)


def test_second_dash_of_a_range_is_refused_at_its_column() -> None:
    assert refusal(CPUSet.parse, "0-3-5").at == 3


def test_column_is_that_of_the_text_without_white_space_around_it() -> None:
    error = refusal(CPUSet.parse, "  1,,2\n")
    assert (error.text, error.at) == ("1,,2", 2)


# Masks.


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("0", [], id="nothing"),
        pytest.param("f", [0, 1, 2, 3], id="one digit"),
        pytest.param("00000003\n", [0, 1], id="as the kernel prints it"),
        pytest.param("f,00000003", [0, 1, 32, 33, 34, 35], id="two chunks"),
        pytest.param("1,00000000,00000000", [64], id="three chunks"),
        pytest.param("1,0,3", [0, 1, 64], id="chunks that are not padded"),
        pytest.param("000f,0000", [32, 33, 34, 35], id="chunks of other widths"),
        pytest.param("00000000000000001", [0], id="leading zeros"),
        pytest.param(",".join(["0", *ALL_ZERO, "1"]), [0], id="more chunks of zeros than there can be CPUs"),
        pytest.param("0xff", list(range(8)), id="0x"),
        pytest.param("0XA", [1, 3], id="capitals"),
        pytest.param("0x1,00000001", [0, 32], id="0x before chunks"),
        pytest.param("100000000", [32], id="one chunk for all"),
        pytest.param(" \tf\r\n", [0, 1, 2, 3], id="white space around"),
        pytest.param("8" + "0" * 16383, [65535], id="the highest"),
        pytest.param(",".join(["80000000", *ALL_ZERO[1:]]), [65535], id="the highest, in chunks"),
    ],
)
def test_mask_is_read_as_the_kernel_means_it(text: str, cpus: list[int]) -> None:
    assert list(CPUSet.parse_mask(text)) == cpus


@pytest.mark.parametrize(
    ("cpus", "width", "text"),
    [
        ([], 32, "00000000"),
        ([], 0, "0"),
        ([0], 1, "1"),
        ([0, 5], 8, "21"),
        ([0, 33], 40, "02,00000001"),
        ([0, 33], 33, "2,00000001"),
        ([0], 64, "00000000,00000001"),
        ([0], 96, "00000000,00000000,00000001"),
        ([47], 48, "8000,00000000"),
        ([100], 8, "10,00000000,00000000,00000000"),
    ],
)
def test_mask_is_written_as_a_kernel_with_so_many_cpus_writes_it(cpus: list[int], width: int, text: str) -> None:
    assert CPUSet.of(*cpus).format_mask(width) == text


@refusals(
    ("", 0, DIGITS),
    (",", 0, DIGITS),
    (",f", 0, DIGITS),
    ("f,", 2, DIGITS),
    ("f,,f", 2, DIGITS),
    ("0x", 2, DIGITS),
    ("0x,f", 2, DIGITS),
    ("0x f", 2, DIGITS),
    ("-1", 0, DIGITS),
    ("+1", 0, DIGITS),
    ("_1", 0, DIGITS),
    ("g", 0, DIGITS),
    ("٣", 0, DIGITS),
    ("\0", 0, DIGITS),
    ("f, f", 2, DIGITS),
    ("f\0", 1, DIGITS_OR_COMMA),
    ("fg", 1, DIGITS_OR_COMMA),
    ("1_0", 1, DIGITS_OR_COMMA),
    ("f f", 1, DIGITS_OR_COMMA),
    ("0-3", 1, DIGITS_OR_COMMA),
    ("00x1", 2, DIGITS_OR_COMMA),
    ("0xf,0xf", 5, DIGITS_OR_COMMA),
    ("f,1٣", 3, DIGITS_OR_COMMA),
    ("1ffffffff,0", 0, "at most 32 bits are allowed here"),
    ("0,1ffffffff", 2, "at most 32 bits are allowed here"),
)
def test_what_is_no_mask_is_refused_at_its_column(text: str, at: int, problem: str) -> None:
    assert_refused_at(CPUSet.parse_mask, text, at, problem)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param("1" + "0" * 16384, 0, id="one piece"),
        pytest.param("0x1" + "0" * 16384, 2, id="after 0x"),
        pytest.param(",".join(["1", *ALL_ZERO]), 0, id="chunks"),
    ],
)
def test_mask_with_cpu_65536_is_refused_at_its_first_digit(text: str, at: int) -> None:
    error = refusal(CPUSet.parse_mask, text)
    assert error.at == at
    assert str(MAX_CPU) in error.problem or str(MAX_CPU + 1) in error.problem
    assert len(str(error)) < 200


# Hostile amounts.

HUGE = [
    pytest.param(lambda: "7" * TEN_MEGABYTES, id="10 MB of digits"),
    pytest.param(lambda: "7" * TEN_MEGABYTES + "\n", id="10 MB of digits and a line end"),
    pytest.param(lambda: "0" * TEN_MEGABYTES, id="10 MB of zeros"),
    pytest.param(lambda: "," * TEN_MEGABYTES, id="10 MB of commas"),
    pytest.param(lambda: "\0" * TEN_MEGABYTES, id="10 MB of NUL"),
    pytest.param(lambda: "0-65535:1/2," * (TEN_MEGABYTES // 12), id="10 MB of strides"),
    pytest.param(lambda: "f" * (1 << 19), id="as many digits as are looked at"),
    pytest.param(lambda: "1," * (1 << 15), id="many chunks"),
    pytest.param(lambda: "0-65535:1/2," * 1000, id="strides over all CPUs"),
]


@pytest.mark.parametrize("parse", [CPUSet.parse, CPUSet.parse_mask], ids=["list", "mask"])
@pytest.mark.parametrize("make", HUGE)
def test_hostile_text_is_refused_in_less_than_1_mb_beyond_itself(make: Callable[[], str], parse: Parse) -> None:
    text = make()
    assert peak_of(lambda: refusal(parse, text)) < 1 << 20


@pytest.mark.parametrize("parse", [CPUSet.parse, CPUSet.parse_mask], ids=["list", "mask"])
def test_refusal_of_10_mb_of_digits_points_at_the_start_and_says_how_much_is_allowed(parse: Parse) -> None:
    error = refusal(parse, "7" * TEN_MEGABYTES)
    assert error.at == 0
    assert "of 10,000,000 characters; 524,288 are allowed" in error.problem
    assert len(str(error)) < 200


def test_every_cpu_written_one_by_one_is_read_in_less_than_1_mb() -> None:
    text = ",".join(map(str, range(MAX_CPU + 1)))
    assert peak_of(lambda: CPUSet.parse(text)) < 1 << 20


# The value.


@pytest.mark.parametrize("cpus", [[-1], [MAX_CPU + 1], [0, 1 << 70]])
def test_cpu_that_cannot_be_is_refused_by_its_number(cpus: list[int]) -> None:
    with pytest.raises(ParseError, match=f"CPU number {cpus[-1]} is not within 0 to 65535"):
        CPUSet.from_cpus(cpus)


@pytest.mark.parametrize("mask", [-1, 1 << MAX_CPU + 1], ids=["negative", "CPU 65536"])
def test_mask_with_cpus_that_cannot_be_is_refused(mask: int) -> None:
    with pytest.raises(ParseError, match="CPU numbers go from 0 to 65535"):
        CPUSet(mask)


def test_nothing_of_a_set_can_be_set_or_deleted() -> None:
    cpus = CPUSet.of(1, 2)
    with pytest.raises(AttributeError, match="immutable"):
        cpus.mask = 1
    with pytest.raises(AttributeError, match="immutable"):
        setattr(cpus, "color", "red")  # noqa: B010 - mypy knows that there is no such field
    with pytest.raises(AttributeError, match="immutable"):
        del cpus.mask
    assert cpus == CPUSet.of(1, 2)


def test_assigning_operators_make_a_new_set_and_leave_the_old_one() -> None:
    before = cpus = CPUSet.of(1, 2)
    cpus |= CPUSet.of(3)
    assert (str(before), str(cpus)) == ("1-2", "1-3")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_set_comes_back(protocol: int) -> None:
    cpus = CPUSet.parse("0-3,65535")
    assert pickle.loads(pickle.dumps(cpus, protocol)) == cpus  # noqa: S301 - our own


def test_copies_are_equal() -> None:
    cpus = CPUSet.parse("0-3,65535")
    assert copy.copy(cpus) == copy.deepcopy(cpus) == cpus


def test_repr_can_be_evaluated() -> None:
    cpus = CPUSet.parse("0-3,8")
    assert eval(repr(cpus), {"CPUSet": CPUSet}) == cpus  # noqa: S307 - our own


def test_set_is_not_equal_to_what_is_no_cpu_set() -> None:
    cpus: object = CPUSet.of(1)
    assert cpus not in ({1}, 2, "1", None)


@pytest.mark.parametrize("thing", [-1, 2, 1 << 80, "1", 1.0, None])
def test_what_is_no_cpu_of_the_set_is_not_in_it(thing: object) -> None:
    assert thing not in CPUSet.of(0, 1)


def test_empty_set_is_false_and_has_no_lowest_cpu() -> None:
    assert not EMPTY
    assert (len(EMPTY), list(EMPTY), EMPTY.lowest, str(EMPTY)) == (0, [], -1, "")


def test_cpus_of_a_mask_are_ascending() -> None:
    assert cpus_of(0b1010_0001 | 1 << MAX_CPU) == [0, 5, 7, MAX_CPU]
