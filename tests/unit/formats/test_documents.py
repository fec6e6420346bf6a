"""Documents: YAML and JSON as written, and hostile text refused at once."""

from __future__ import annotations

import json
import time

import pytest

from pinfold.errors import ParseError
from pinfold.formats.documents import MAX_TEXT, ValueRoom, parse_documents
from pinfold.formats.number import Number

PARSED = 2.0
"""Seconds for a megabyte on a busy machine; quadratic time would be hours."""


def values(text: str) -> list[object]:
    return [document.value for document in parse_documents(text)]


def test_documents_are_counted_with_empty_ones() -> None:
    documents = parse_documents("a: b\n---\n---\nc: d\n")
    assert [(number, value) for number, value in documents if value] == [(1, {"a": "b"}), (3, {"c": "d"})]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_text_without_documents_gives_none(text: str) -> None:
    assert parse_documents(text) == []


@pytest.mark.parametrize(
    "text", ["2", "0.50", "-1", "+1", "1e3", ".5", "010", "0x10", "1_000", ".inf", "-.INF", ".nan"]
)
def test_a_plain_number_stays_as_written(text: str) -> None:
    assert values(f"a: {text}") == [{"a": Number(text)}]


@pytest.mark.parametrize("text", ["250m", "1Gi", "2001-01-01", "12:30:45", "1.2.3", "a1", "=", "0o8"])
def test_what_only_looks_like_a_number_or_date_is_text(text: str) -> None:
    assert values(f"a: {text}") == [{"a": text}]


@pytest.mark.parametrize("text", ["'2'", '"2"', "!!str 2", "! 2"])
def test_a_number_in_quotes_is_text(text: str) -> None:
    assert values(f"a: {text}") == [{"a": "2"}]


def test_json_is_read_like_yaml() -> None:
    text = '{"a": [1, 2.5, -3e2, "x", true, null, {"b": "\\ud83d\\ude00"}]}'
    assert values(text) == [{"a": [Number("1"), Number("2.5"), Number("-3e2"), "x", True, None, {"b": "😀"}]}]
    assert values(text.replace(" ", "\t")) == values(text)
    assert values(text.replace("\\ud83d\\ude00", "😀") + "\n---\n" + "[]") == [*values(text), []]


def test_a_json_number_of_any_size_is_kept_and_never_computed() -> None:
    digits = "9" * 1_000_000
    assert values(f'{{"a": {digits}, "b": NaN}}') == [{"a": Number(digits), "b": Number("NaN")}]


def test_a_byte_order_mark_is_skipped() -> None:
    assert values("\ufeffa: b") == [{"a": "b"}]


def test_aliases_and_merge_keys_are_written_out() -> None:
    text = "x: &x {a: b, c: d}\ny: {<<: *x, c: e}\nz:\n  <<: [{a: f}, *x]\nw: *x\n"
    base = {"a": "b", "c": "d"}
    assert values(text) == [{"x": base, "y": {"a": "b", "c": "e"}, "z": {"a": "f", "c": "d"}, "w": base}]


def test_a_quoted_merge_sign_is_a_key() -> None:
    assert values('"<<": x') == [{"<<": "x"}]


def test_keys_are_text_even_if_they_look_like_numbers() -> None:
    assert values("1: a\ntrue: b\nnull: c\n") == [{"1": "a", "true": "b", "null": "c"}]


def laughs(levels: int) -> str:
    lines = ["l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: 1\nb:\n  c: 1\n  c: 2\n", 'document 1: line 4: duplicate key "c"', id="duplicate key"),
        pytest.param('{"a": 1,\n "a": 2}', 'document 1: line 2: duplicate key "a"', id="duplicate JSON key"),
        pytest.param("a: b\n---\na:\n\tb: c", "document 2: line 4: a tab cannot indent YAML; use spaces", id="tab"),
        pytest.param("a: {{ .Values.b }}", "line 1: a key must be plain text (is this a template", id="template"),
        pytest.param("? [a]\n: b", "line 1: a key must be plain text", id="list as key"),
        pytest.param("a: &x b\n*x : c", "line 2: a key must be plain text", id="alias as key"),
        pytest.param("a: *b", 'line 1: alias "*b" has no anchor before it', id="unknown alias"),
        pytest.param("a: &a [*a]", 'line 1: alias "*a" has no anchor before it', id="alias of itself"),
        pytest.param("a: &a b\n---\nc: *a", 'document 2: line 3: alias "*a"', id="alias of another document"),
        pytest.param("<<: a", "line 1: << merges mappings only", id="merged text"),
        pytest.param("<<: [{}, a]", "line 1: << merges mappings only", id="merged list of text"),
        pytest.param("a: !!python/object/apply:os.system [x]", 'line 1: tag "!!python/object/app', id="python tag"),
        pytest.param("a: !Ref b", 'line 1: tag "!Ref" is not allowed', id="own tag"),
        pytest.param("a: !!binary aGk=", 'line 1: tag "!!binary" is not allowed', id="binary tag"),
        pytest.param("a: [", "line 1: ", id="unfinished list"),
        pytest.param('{"a": 1', "line 1: ", id="unfinished JSON"),
        pytest.param("a: \x00", "control characters or broken Unicode", id="NUL"),
        pytest.param("\x7fELF\x02\x01", "control characters or broken Unicode", id="binary"),
        pytest.param("a: \ud800", "control characters or broken Unicode", id="half a surrogate pair"),
        pytest.param("%YAML 3.0\n---\na", "line 1: found incompatible YAML document", id="future YAML"),
        pytest.param("[" * 1_000_000, "nested too deeply", id="deep JSON"),
        pytest.param("a: " + "[" * 1_000_000, "line 1: nested more than 100 levels deep", id="deep flow"),
        pytest.param("- " * 1_000_000, "line 1: nested more than 100 levels deep", id="deep block"),
        pytest.param(laughs(30), "line 6: more than 1,000,000 values, with aliases written out", id="billion laughs"),
        pytest.param("a" * (MAX_TEXT + 1), "text of 16,777,217 characters; 16,777,216 are allowed", id="too long"),
    ],
)
def test_hostile_text_is_refused_where_it_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_documents(text, source="pods.yaml")
    assert str(caught.value).startswith("pods.yaml: ")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_hundred_levels_are_fine() -> None:
    text = "[" * 99 + "x" + "]" * 99
    assert values(f"a: {text}") == [{"a": json.loads(text.replace("x", '"x"'))}]


@pytest.mark.parametrize("text", ["0" * 1_000_000 + "x", "0_" * 500_000 + "x", "0." + "0" * 1_000_000 + "x"])
def test_a_long_text_that_is_no_number_is_read_in_linear_time(text: str) -> None:
    start = time.process_time()
    assert values(f"a: {text}") == [{"a": text}]
    assert time.process_time() - start < PARSED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(f"k{number}: 1" for number in range(1000)), id="keys"),
        pytest.param(f"[{', '.join('1' * 1000)}]", id="JSON"),
        pytest.param("\n---\n".join("1" * 1000), id="documents"),
    ],
)
def test_values_over_the_limit_are_refused_before_the_rest_is_read(text: str) -> None:
    with pytest.raises(ParseError, match="more than 500 values, with aliases written out"):
        parse_documents(text, room=ValueRoom(500))
    parse_documents(text, room=ValueRoom(1001))


@pytest.mark.parametrize("text", ["[1, 2, 3]", "- 1\n- 2\n- 3\n"])
def test_several_texts_share_their_room(text: str) -> None:
    room = ValueRoom(10, "; split the file")
    parse_documents(text, room=room)
    parse_documents(text, room=room)
    with pytest.raises(ParseError, match="more than 10 values, with aliases written out; split the file"):
        parse_documents(text, room=room)


def test_values_before_a_mistake_are_counted() -> None:
    room = ValueRoom(10)
    for _ in range(2):
        with pytest.raises(ParseError, match="mapping values are not allowed"):
            parse_documents("- 1\n- 2\n- 3\n--- a: b: c", room=room)
    with pytest.raises(ParseError, match="more than 10 values"):
        parse_documents("[1, 2, 3]", room=room)


def test_objects_in_objects_are_counted_although_no_comma_is_between_them() -> None:
    text = "[" + ", ".join(['{"a": ' * 50 + "1" + "}" * 50] * 10) + "]"
    with pytest.raises(ParseError, match="more than 500 values"):
        parse_documents(text, room=ValueRoom(500))
    parse_documents(text, room=ValueRoom(1000))


def test_commas_inside_text_are_not_counted_as_values() -> None:
    assert parse_documents(json.dumps({"a": "," * 1000}), room=ValueRoom(10))[0].value == {"a": "," * 1000}
