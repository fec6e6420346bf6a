"""Every problem of a YAML text is listed, with the line it has in the whole text, and no text takes long to refuse."""

from __future__ import annotations

import time

import pytest

from pinfold.errors import ParseError
from pinfold.formats.documents import MAX_TEXT, ValueRoom, parse_documents
from pinfold.formats.fields import DocumentError, Problems, parse_each
from pinfold.formats.pods.manifest import parse_pods

REFUSED = 2.0
"""Seconds for a megabyte on a busy machine; quadratic time would be hours."""
REST = "; the rest of this document (to line %d) was not read"
TEMPLATE = " (is this a template that has to be rendered first?)"
WITHIN = "while parsing"
BLOCK = "a block mapping that begins in line 1"
KEY = "while scanning a simple key"
NOT_HERE = 'mapping values are not allowed in this context (check the indentation; text with ": " needs quotes)'
POD = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a}]}\n"


def said(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_documents(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param(
            "a: b: c\n---\nx: 1\n---\ny: z: 1\n",
            [
                f"document 1: line 1: {NOT_HERE}",
                f"document 3: line 5: {NOT_HERE}",
            ],
            id="two broken documents of three",
        ),
        pytest.param(
            "a: 1\na: 2\nb: [*c, *c]\nd: !Ref e\n",
            [
                'document 1: line 2: duplicate key "a"',
                'document 1: line 3: alias "*c" has no anchor before it',
                'document 1: line 4: tag "!Ref" is not allowed; write plain YAML',
            ],
            id="three in one document",
        ),
        pytest.param(
            "a: {{ b }}\nc: {{ d }}\n",
            [f"document 1: line {line}: a key must be plain text{TEMPLATE}" for line in (1, 2)],
            id="every place of a template",
        ),
        pytest.param(
            "a: 1\r\nb: x: y\r\nc: 3\r\n\r\n---\r\nd: 4\r\nd: 5\r\n",
            [
                f"document 1: line 2: {NOT_HERE}{REST % 3}",
                'document 2: line 7: duplicate key "d"',
            ],
            id="lines that end as on Windows",
        ),
        pytest.param(
            'a: "b\nc: d\n---\ne: [1,\n---\nf: {g: 1\n',
            [
                f"document 1: line 1: this quote is not closed{REST % 2}",
                'document 2: line 4: this "[" is not closed',
                'document 3: line 6: this "{" is not closed',
            ],
            id="quotes and brackets that are not closed",
        ),
        pytest.param(
            "a: [1,\nb: {\n  c\n",
            ['document 1: line 2: this "{" is not closed' + REST % 3],
            id="the innermost bracket",
        ),
        pytest.param(
            "a: [1, 2\nb: 3\n",
            [f"document 1: line 2: did not find expected ',' or ']' {WITHIN} a flow sequence that begins in line 1"],
            id="where the list began",
        ),
        pytest.param(
            "{{- if .Values.on }}\na: 1\n{{- end }}\n",
            [
                f"document 1: line 1: a key must be plain text{TEMPLATE}",
                f"document 1: line 1: did not find expected node content while parsing a flow node{TEMPLATE}{REST % 3}",
            ],
            id="a template",
        ),
        pytest.param(
            "a:\n  b: 1\n{{- if .c }}\n  d: {}\n",
            [f"document 1: line 4: could not find expected ':' {KEY} that begins in line 3{TEMPLATE}"],
            id="a template, reported a line later",
        ),
        pytest.param(
            "a:\n  b: 1\n c: 2\n",
            [
                f"document 1: line 3: did not find expected key {WITHIN} {BLOCK} (check the indentation)",
            ],
            id="indentation",
        ),
        pytest.param(
            "kind:Pod\nmetadata: {}\n---\nb\nc: d\n",
            [f"document 1: line 2: {NOT_HERE}", f"document 2: line 5: {NOT_HERE}"],
            id="a text that is whole before the mistake",
        ),
        pytest.param(
            "%YAML 3.0\n---\na: 1\na: 2\n",
            [
                "document 1: line 1: found incompatible YAML document",
                'document 1: line 4: duplicate key "a"',
            ],
            id="a directive",
        ),
        pytest.param(
            "@a\n--- b: c\n---\n--- }\n---x: 1\n---\td: e: f\n",
            [
                "document 1: line 1: found character that cannot start any token while scanning for the next token",
                f"document 2: line 2: {NOT_HERE}",
                f"document 4: line 4: did not find expected node content while parsing a block node{REST % 5}",
                f"document 5: line 6: {NOT_HERE}",
            ],
            id="mistakes in the lines of the marks",
        ),
        pytest.param(
            f"a: {'[' * 101}\n---\na: b: c\n",
            [
                "document 1: line 1: nested more than 100 levels deep",
                f"document 2: line 3: {NOT_HERE}",
            ],
            id="nested too deeply",
        ),
        pytest.param(
            "a: 1\nb: 2\n---\nb: \x00\n---\nc: d: e\n",
            ["line 4: control characters or broken Unicode; the rest of the file was not read"],
            id="a control character",
        ),
        pytest.param(
            "---\na: \x85---\nb: c: d\n---\ne: f: g\n",
            [
                f"document 2: line 4: {NOT_HERE}",
                f"document 3: line 6: {NOT_HERE}",
            ],
            id="a rare end of a line",
        ),
    ],
)
def test_all_problems_are_listed_with_their_lines(text: str, problems: list[str]) -> None:
    assert said(text) == problems


def test_a_mark_inside_a_block_of_text_is_text_only_if_it_is_indented() -> None:
    assert parse_documents("a: |\n  ---\n  b: c: d\n---\nx: 1\n")[0].value == {"a": "---\nb: c: d\n"}


def test_what_can_be_read_is_returned_to_a_caller_that_collects_problems() -> None:
    problems = Problems()
    documents = parse_documents("a: b: c\n---\nx: y\n---\nz: *w\n---\nb\nc: d", source="f.yaml", problems=problems)
    assert documents == [(2, {"x": "y"})]
    assert [problem.where for problem in problems.found] == [f"f.yaml: document {number}" for number in (1, 3, 4)]


def test_the_fields_of_the_other_documents_are_checked_too() -> None:
    bad = POD.replace("web", "Web")
    with pytest.raises(DocumentError) as caught:
        parse_pods(f"a: b: c\n---\n{bad}---\n{POD}kind: Pod\n", source="pods.yaml")
    assert [problem.where for problem in caught.value.problems] == [
        "pods.yaml: document 1",
        "pods.yaml: document 3",
        "pods.yaml: document 2: metadata.name",
    ]


def test_a_file_with_a_mistake_is_not_called_empty() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_pods("a: b: c", source="pods.yaml")
    assert len(caught.value.problems) == 1


def test_one_problem_more_than_a_hundred_is_not_looked_for() -> None:
    assert len(said("a: b: c\n---\n" * 1000)) == 100


HOSTILE = {
    "broken documents": "---\n}\n",
    "quotes": '---\n"\n',
    "brackets": "---\n[\n",
    "deep": f"---\n{'[' * 101}\n",
    "duplicate keys": "a: 1\n",
    "aliases": "- *a\n? *b\n",
    "tags": "- !a b\n",
    "keys": "? [a]\n",
    "marks": "--- ---\n",
    "almost marks": "---a: b: c\n",
    "ends of lines": "a: b: c\n" + "\n" * 1000,
    "rare ends of lines": "a: b: c\x85" + "\u2028" * 1000,
}


@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE)
def test_a_megabyte_of_problems_is_refused_at_once(part: str) -> None:
    text = part * (1_000_000 // len(part))
    start = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse_documents(text, room=ValueRoom(100_000))
    assert len(str(caught.value)) < 250
    assert time.process_time() - start < REFUSED


def test_the_longest_text_with_a_hundred_broken_documents_is_refused_in_seconds() -> None:
    text = ("a: b: c\n---\n" * 99).ljust(MAX_TEXT - 1) + "x"
    start = time.process_time()
    assert len(said(text)) == 99
    assert time.process_time() - start < 5 * REFUSED


def test_of_several_files_no_more_is_read_after_the_hundredth_problem() -> None:
    read = []

    def parse(text: str) -> object:
        read.append(text)
        return parse_documents(text)

    with pytest.raises(DocumentError) as caught:
        parse_each(parse, ["a: b: c\n---\n" * 60] * 5)
    assert (len(caught.value.problems), len(read)) == (120, 2)
