"""Laws of quantities: agreement with exact fractions, round trips, and no surprise on any text."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.pods.quantity import MAX_VALUE, Quantity
from pinfold.errors import ParseError

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {f"{unit}i": 1024**step for step, unit in enumerate("KMGTPE", start=1)}
FACTORS = {unit: Fraction(10) ** power for unit, power in DECIMAL.items()} | BINARY
quantities = st.builds(Quantity, st.integers(0, MAX_VALUE * 10**9))
digits = st.text("0123456789", min_size=1, max_size=18)


def outcome(text: str) -> Quantity | ParseError:
    try:
        return Quantity.parse(text)
    except ParseError as error:
        return error


def assert_reads_as(text: str, exact: Fraction) -> None:
    nano = ceil(exact * 10**9)
    match outcome(text):
        case Quantity() as quantity:
            assert (quantity.nano, quantity.milli, quantity.value) == (nano, ceil(exact * 1000), ceil(exact))
        case error:
            assert error.problem == "is above 2^63-1"
            assert nano > MAX_VALUE * 10**9


@given(digits, digits, st.sampled_from(sorted(FACTORS)))
def test_a_number_with_a_unit_is_its_exact_product(whole: str, fraction: str, unit: str) -> None:
    assert_reads_as(f"{whole}.{fraction}{unit}", Fraction(f"{whole}.{fraction}") * FACTORS[unit])


@given(digits, digits, st.integers(-40, 40), st.sampled_from("eE"))
def test_a_number_with_an_exponent_is_its_exact_product(whole: str, fraction: str, power: int, sign: str) -> None:
    assert_reads_as(f"{whole}.{fraction}{sign}{power}", Fraction(f"{whole}.{fraction}") * Fraction(10) ** power)


@given(quantities, st.booleans())
def test_what_is_written_is_read_back(quantity: Quantity, binary: bool) -> None:  # noqa: FBT001 - drawn, not passed
    assert Quantity.parse(quantity.format(binary=binary)) == quantity


@given(quantities, quantities)
def test_order_is_that_of_the_amounts(one: Quantity, other: Quantity) -> None:
    assert (one < other) == (one.nano < other.nano)
    assert one.milli <= other.milli or one > other


@given(st.integers(0, 10**12))
def test_a_cpu_count_is_whole_exactly_where_kubernetes_says_so(nano: int) -> None:
    quantity = Quantity(nano)
    assert (quantity.value * 1000 == quantity.milli) == (quantity.milli % 1000 == 0)


@given(st.text() | st.text("0123456789.+-eEKMGTPinumk _", max_size=70))
def test_any_text_is_a_quantity_or_a_parse_error(text: str) -> None:
    match outcome(text):
        case Quantity(nano):
            assert 0 <= nano <= MAX_VALUE * 10**9
        case error:
            assert 0 <= error.at <= len(text)
