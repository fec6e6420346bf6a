"""YAML or JSON text to plain documents, safe for untrusted text.

A document is made of dict (keys are text), list, str, bool, None and Number; a number stays as written, so that nothing
is rounded. JSON is read here, YAML in `yamldocuments`, which is imported when there is some: the library takes as
much memory as twenty containers. Knows nothing of Kubernetes; `fields` checks what is in a document.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from pinfold.formats.fields import Problems
from pinfold.formats.number import Number

MAX_TEXT: Final = 16 << 20
MAX_VALUES: Final = 1_000_000
MAX_SETTINGS: Final = 10_000
"""Values of a file of settings: a kubelet's with every field set has a few hundred."""


class ValueRoom:
    """How many values may be read: of one text, or of several together."""

    def __init__(self, most: int = MAX_VALUES, advice: str = "") -> None:
        """Allow *most* values; *advice* says in the error what to do about more."""
        self.most = most
        self.advice = advice
        self.values = 0
        """Those that were read so far."""


class Document(NamedTuple):
    """One document of a text, counted from 1."""

    number: int
    value: object


def parse_documents(
    text: str, *, source: str = "", room: ValueRoom | None = None, problems: Problems | None = None
) -> list[Document]:
    r"""Return the documents of *text*, if there is *room* for its values; *source* names the file in errors.

    All problems of the text are raised together. With *problems* they are recorded there instead, and the documents
    that can be read are returned.

    >>> [document.value for document in parse_documents("a: [x, 2.50]\n---\nb: yes")]
    [{'a': ['x', Number(text='2.50')]}, {'b': True}]
    >>> parse_documents("a: 1\na: 2\n---\nb: c: d", source="pods.yaml")
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: pods.yaml: document 1: line 2: duplicate key "a" (and 1 more)
    """
    found = Problems() if problems is None else problems
    documents = [Document(number, value) for number, value in _parse(text, room or ValueRoom(), found, source)]
    if problems is None:
        found.check()
    return documents


def _parse(text: str, room: ValueRoom, problems: Problems, source: str) -> list[tuple[int, object]]:
    if len(text) > MAX_TEXT:
        problems.add(f"text of {len(text):,} characters; {MAX_TEXT:,} are allowed", source)
        return []
    text = text.removeprefix("\ufeff")
    # Before every value but the first there is a comma or a bracket; some may stand in texts. If there seem to be too
    # many values, the YAML parser counts them.
    values = sum(map(text.count, ",[{"))
    if text.lstrip()[:1] in {"{", "["} and room.values + values <= room.most:
        try:
            found = [(1, _parse_json(text))]
        except RecursionError:
            problems.add("nested too deeply", ": ".join(filter(None, (source, "document 1"))))
            return []
        except ValueError:
            pass  # it may be YAML; if not, the YAML parser reports the line
        else:
            room.values += values + 1
            return found
    from pinfold.formats.yamldocuments import parse_yaml  # noqa: PLC0415 - only where there is YAML

    return parse_yaml(text, room, problems, source)


def _parse_json(text: str) -> object:
    value: object = json.loads(
        text, object_pairs_hook=_unique, parse_int=Number, parse_float=Number, parse_constant=Number
    )
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("duplicate key")
    return mapping
