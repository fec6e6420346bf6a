"""Quantities: the forms Kubernetes takes, and what it refuses or we do."""

from __future__ import annotations

import pickle

import pytest

from pinfold.core.pods.quantity import MAX_VALUE, Quantity
from pinfold.errors import ParseError

NANO = 10**9


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("-0", 0),
        ("0e999999999", 0),
        ("2", 2 * NANO),
        ("2.0", 2 * NANO),
        ("+2", 2 * NANO),
        ("002", 2 * NANO),
        ("2.", 2 * NANO),
        (".5", NANO // 2),
        ("0.1", NANO // 10),
        ("250m", NANO // 4),
        ("1500000u", 3 * NANO // 2),
        ("7n", 7),
        ("1e3", 1000 * NANO),
        ("1E3", 1000 * NANO),
        ("1e+3", 1000 * NANO),
        ("1.5e3", 1500 * NANO),
        ("25e-2", NANO // 4),
        ("1k", 10**3 * NANO),
        ("1M", 10**6 * NANO),
        ("1G", 10**9 * NANO),
        ("1T", 10**12 * NANO),
        ("1P", 10**15 * NANO),
        ("1E", 10**18 * NANO),
        ("1Ki", 2**10 * NANO),
        ("1Mi", 2**20 * NANO),
        ("1Gi", 2**30 * NANO),
        ("1Ti", 2**40 * NANO),
        ("1Pi", 2**50 * NANO),
        ("1Ei", 2**60 * NANO),
        ("1.5Gi", 3 * 2**29 * NANO),
        (str(MAX_VALUE), MAX_VALUE * NANO),
    ],
)
def test_every_form_is_read_exactly(text: str, nano: int) -> None:
    assert Quantity.parse(text).nano == nano


@pytest.mark.parametrize("text", ["0.1n", "0.0000000001", "1e-10", "1e-999999999999999"])
def test_what_is_finer_than_a_nano_is_rounded_up_to_one(text: str) -> None:
    assert Quantity.parse(text).nano == 1


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("0", 0, 0),
        ("1n", 1, 1),
        ("1m", 1, 1),
        ("1.0001", 1001, 2),
        ("0.9999", 1000, 1),
        ("1500m", 1500, 2),
        ("2", 2000, 2),
        ("1Ki", 1_024_000, 1024),
    ],
)
def test_milli_and_value_round_up(text: str, milli: int, value: int) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.milli, quantity.value) == (milli, value)


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("", "has no digits", 0),
        ("+", "has no digits", 1),
        (".", "has no digits", 0),
        ("m", "has no digits", 0),
        ("NaN", "has no digits", 0),
        ("-inf", "has no digits", 1),
        ("--1", "has no digits", 1),
        (" 1", "has no digits", 0),
        ("٣", "has no digits", 0),
        ("1 ", "has an unknown unit", 1),
        ("1\n", "has an unknown unit", 1),
        ("1٣", "has an unknown unit", 1),
        ("0x10", "has an unknown unit", 1),
        ("1_000", "has an unknown unit", 1),
        ("1.2.3", "has an unknown unit", 3),
        ("1,5", "has an unknown unit", 1),
        ("1ki", "has an unknown unit", 1),
        ("1mm", "has an unknown unit", 1),
        ("1e", "has an unknown unit", 1),
        ("1e1.5", "has an unknown unit", 1),
        ("1Zi", "has an unknown unit", 1),
        ("2 CPUs", "has an unknown unit", 1),
        ("-1", "is negative", 0),
        ("-1n", "is negative", 0),
        ("-1e99", "is negative", 0),
        ("1e30", "is above 2^63-1", 0),
        ("1e999999999999", "is above 2^63-1", 0),
        ("8Ei", "is above 2^63-1", 0),
        (str(MAX_VALUE + 1), "is above 2^63-1", 0),
        ("9223372036854775807.1", "is above 2^63-1", 0),
        ("1" * 65, "is longer than 64 characters", 0),
    ],
)
def test_what_is_no_quantity_is_refused_at_its_place(text: str, problem: str, at: int) -> None:
    with pytest.raises(ParseError) as caught:
        Quantity.parse(text)
    assert (caught.value.problem, caught.value.at) == (problem, at)


def test_ten_million_digits_are_refused_without_reading_them() -> None:
    with pytest.raises(ParseError, match="longer than 64") as caught:
        Quantity.parse("7" * 10_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "decimal", "binary"),
    [
        ("0", "0", "0"),
        ("0.5", "500m", "500m"),
        ("1.5", "1500m", "1500m"),
        ("2.0", "2", "2"),
        ("1000", "1k", "1k"),
        ("1024", "1024", "1Ki"),
        ("1.5Gi", "1610612736", "1536Mi"),
        ("2048.5", "2048500m", "2048500m"),
        ("3n", "3n", "3n"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_writes_it(text: str, decimal: str, binary: str) -> None:
    quantity = Quantity.parse(text)
    assert (str(quantity), quantity.format(binary=True)) == (decimal, binary)


def test_quantities_are_values() -> None:
    half = Quantity.parse("0.5")
    assert half == Quantity.from_milli(500)
    assert half < Quantity.parse("501m")
    assert len({half, Quantity.parse("500m")}) == 1
    assert pickle.loads(pickle.dumps(half)) == half  # noqa: S301 - our own bytes
