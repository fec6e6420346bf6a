"""JSON as Go reads and writes it."""

from __future__ import annotations

import json

import pytest

from pinfold.errors import ParseError
from pinfold.formats.kubelet.gojson import (
    Value,
    fields,
    map_field,
    natural_field,
    parse_json,
    quote,
    quote_json,
    text_field,
)
from pinfold.formats.number import Number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a> & b", r'"\u003ca\u003e \u0026 b"'),
        ("\u2028\u2029", r'"\u2028\u2029"'),
        ('\\ "', r'"\\ \""'),
        ("\b\f\n\r\t\0\x1f\x7f", '"' + r"\b\f\n\r\t\u0000\u001f" + '\x7f"'),
        ("é 🙂 /", '"é 🙂 /"'),
        ("a\udcffb", r'"a\ufffdb"'),
    ],
)
def test_text_is_escaped_as_go_does(text: str, expected: str) -> None:
    assert quote(text) == expected


def test_json_is_quoted_the_fast_way_as_the_slow_way() -> None:
    data = f'{{{quote("<a>")}:{quote("é")},"b":{quote(chr(10))}}}'
    assert quote_json(data) == quote(data)
    assert json.loads(quote_json(data)) == data


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", "01", "NaN", "-Infinity", '"\t"', "{} {}", "\ufeff{}", "[" * 100_000]
)
def test_what_is_no_json_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_json(text)


def test_numbers_stay_as_they_were_written() -> None:
    assert parse_json("[1e400, 12345678901234567890123]") == [Number("1e400"), Number("12345678901234567890123")]
    assert parse_json("9" * 10_000) == Number("9" * 10_000)


def test_names_match_in_any_case_and_unknown_ones_are_skipped() -> None:
    value = parse_json('{"CHECK\u017fUM": 1, "extra": 2, "checksum": 3}')
    assert list(fields(value, ["checksum"])) == [("checksum", Number("1")), ("checksum", Number("3"))]


def test_null_leaves_text_and_numbers_as_they_were() -> None:
    assert text_field(None, "old") == "old"
    assert natural_field(None, 5) == 5
    assert list(fields(None, ["a"])) == []


def test_null_takes_a_mapping_away_and_a_second_object_adds_to_the_first() -> None:
    first = map_field(parse_json('{"a": "1", "b": "2"}'), None, text_field)
    assert map_field(parse_json('{"b": "3", "c": "4"}'), first, text_field) == {"a": "1", "b": "3", "c": "4"}
    assert map_field(None, first, text_field) is None


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    assert text_field(parse_json(r'"\ud83d\ude42 \ud83d \ude42"')) == "🙂 \ufffd \ufffd"
    assert map_field(parse_json('{"\udcff": "x"}'), None, text_field) == {"\ufffd": "x"}


@pytest.mark.parametrize("value", ["1", True, [], (), Number("-1"), Number("1.0"), Number("1e3"), Number(str(2**64))])
def test_a_natural_number_is_written_as_one(value: Value) -> None:
    with pytest.raises(ParseError, match="expected a number from 0 to 18446744073709551615, found "):
        natural_field(value)


def test_an_error_says_where_and_what_was_found() -> None:
    value = parse_json('{"p1": {"c0": ["1"]}}')
    with pytest.raises(ParseError, match=r'^"p1": "c0": expected text, found an array$'):
        map_field(value, None, lambda containers: map_field(containers, None, text_field))
