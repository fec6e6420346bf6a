"""Checked access to the fields of a document: every problem is recorded with its path, and reading continues.

Each getter returns a neutral value where the document is wrong, so a reader needs no checks of its own and raises once,
at the end, with all problems.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeGuard, TypeVar

from pinfold.errors import ParseError, excerpt
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

_Text = TypeVar("_Text")
_Value = TypeVar("_Value")
_MOST: Final = 100
_ALIKE: Final = 0.8
_MOST_GUESSES: Final = 200
_LONGEST_NAME: Final = 64
_WHOLE: Final = re.compile(r"[0-9]{1,18}")


class DocumentError(ParseError):
    """Wrong documents: *problems* holds all problems, the text shows the first."""

    def __init__(self, problems: Sequence[ParseError]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(problems[0].problem + more, where=problems[0].where)
        self.problems = tuple(problems)

    def within(self, where: str) -> DocumentError:
        """Return the same error, placed in the file *where*."""
        return DocumentError([problem.within(where) for problem in self.problems])


class Problems:
    """The problems found so far; stops reading when there are too many."""

    def __init__(self) -> None:
        self.found: list[ParseError] = []
        self.guesses = _MOST_GUESSES
        """For how many more unknown names `misspelt` looks for a known one: that takes up to 0.2 ms each."""

    def add(self, problem: str, where: str) -> None:
        """Record a problem; raise all at the hundredth."""
        self.found.append(ParseError(problem, where=where))
        if len(self.found) == _MOST:
            raise DocumentError(self.found)

    def check(self) -> None:
        """Raise the problems, if there are any."""
        if self.found:
            raise DocumentError(self.found)


def parse_each(parse: Callable[[_Text], _Value], texts: Iterable[_Text]) -> list[_Value]:
    """Return what *parse* makes of each text; raise the problems of all of them together, at the hundredth at once."""
    found: list[_Value] = []
    problems: list[ParseError] = []
    for text in texts:
        try:
            found.append(parse(text))
        except DocumentError as error:
            problems += error.problems
        except ParseError as error:
            problems.append(error)
        if len(problems) >= _MOST:
            break
    if problems:
        raise DocumentError(problems)
    return found


class Field:
    """A value in a document and its path.

    >>> problems = Problems()
    >>> document = Field({"spec": {"replicas": "three"}}, problems, "document 1")
    >>> document.mapping("spec").whole("replicas", default=1)
    1
    >>> print(problems.found[0])
    document 1: spec.replicas: "three" where a whole number is expected
    """

    __slots__ = ("key", "parent", "problems", "value")

    def __init__(self, value: object, problems: Problems, key: str | int, parent: Field | None = None) -> None:
        self.value = value
        self.problems = problems
        self.key = key
        self.parent = parent

    @property
    def path(self) -> str:
        """The path from the root, as `spec.containers[1].name`."""
        steps = []
        field = self
        while field.parent is not None:
            steps.append(f"[{field.key}]" if isinstance(field.key, int) else f".{bare(field.key)}")
            field = field.parent
        return "".join(reversed(steps)).removeprefix(".")

    @property
    def where(self) -> str:
        """The document and the path, for errors."""
        root = self
        while root.parent is not None:
            root = root.parent
        return ": ".join(part for part in (str(root.key), self.path) if part)

    def refuse(self, problem: str) -> None:
        """Record a problem with this field."""
        self.problems.add(problem, self.where)

    def expected(self, what: str) -> None:
        """Record that the value is not *what* is expected."""
        if self.value is None:
            self.refuse(f"missing; {what} is expected")
        else:
            self.refuse(f"{shown(self.value)} where {what} is expected")

    def get(self, key: str) -> object:
        """Return the value at *key*, None if it is missing; nothing is checked."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def child(self, key: str) -> Field:
        """Return the field *key*; its value is None if it is missing."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Field(value, self.problems, key, self)

    def mapping(self, key: str) -> Field:
        """Return the mapping at *key*, empty if it is missing."""
        field = self.child(key)
        if not isinstance(field.value, dict):
            if field.value is not None:
                field.expected("a mapping")
            field.value = {}
        return field

    @property
    def names(self) -> list[str]:
        """The keys of this mapping."""
        return list(self.value) if isinstance(self.value, dict) else []

    def items(self, key: str) -> list[Field]:
        """Return the elements of the list at *key*, none if it is missing."""
        if self.get(key) is None:
            return []
        field = self.child(key)
        if field.value is not None and not isinstance(field.value, list):
            field.expected("a list")
        return field.own_elements()

    def elements(self, key: str) -> list[Field]:
        """Return the elements of the list at *key*, none if it is something else, which is not checked here."""
        return self.child(key).own_elements() if self.get(key) else []

    def own_elements(self) -> list[Field]:
        """Return the elements of this list, none if it is something else."""
        if not isinstance(self.value, list):
            return []
        return [Field(value, self.problems, index, self) for index, value in enumerate(self.value)]

    def text(self, key: str, default: str = "") -> str:
        """Return the text at *key*."""
        value = self.get(key)
        if value is None:
            return default
        return value if _is_plain(value) else self.child(key).as_text()

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts at *key*."""
        value = self.get(key)
        if isinstance(value, list) and all(map(_is_plain, value)):
            return tuple(value)
        return tuple(field.as_text() for field in self.items(key))

    def pairs(self, key: str) -> dict[str, str]:
        """Return the mapping of text to text at *key*."""
        if self.get(key) is None:
            return {}
        field = self.mapping(key)
        return {Field(name, self.problems, name, field).as_text(): field.text(name) for name in field.names}

    def whole(self, key: str, default: int) -> int:
        """Return the whole number at *key*, 0 or more."""
        field = self.child(key)
        if isinstance(field.value, Number) and _WHOLE.fullmatch(field.value.text):
            return int(field.value.text)
        if field.value is not None:
            field.expected("a whole number")
        return default

    def as_text(self, what: str = "text") -> str:
        """Return the value itself as text; *what* describes it in errors."""
        if not isinstance(self.value, str):
            self.expected(f"{what} in quotes" if isinstance(self.value, Number | bool) else what)
            return ""
        if not _is_plain(self.value) and ("\0" in self.value or _is_broken(self.value)):
            self.refuse(f"{excerpt(self.value)} has a NUL or broken Unicode")
        return self.value


def misspelt(mapping: Field, ours: Collection[str], others: Collection[str] = ()) -> Iterator[str]:
    """Yield a warning for each unknown name in *mapping* that looks like one of *ours*; *others* are known too.

    >>> print(*misspelt(Field({"resource": {}, "image": "x"}, Problems(), "pods.yaml"), ("resources",)))
    pods.yaml: resource: unknown and ignored; was resources meant?
    """
    names = [name for name in mapping.names if name not in ours and name not in others and len(name) <= _LONGEST_NAME]
    known = {_plain(name): name for name in (*ours, *others)} if names else {}
    for name in names[: mapping.problems.guesses]:
        mapping.problems.guesses -= 1
        from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

        close = get_close_matches(_plain(name), known, n=1, cutoff=_ALIKE)
        meant = known[close[0]] if close else name
        if meant != name and meant in ours:
            yield f"{mapping.child(name).where}: unknown and ignored; was {meant} meant?"


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def shown(value: object) -> str:
    """Return *value* as errors show it."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case Number():
            return bare(value.text)
        case str():
            return excerpt(value)
        case _:
            return "a mapping" if isinstance(value, dict) else "a list"


def bare(text: str) -> str:
    """Return *text* fit for a line of output: cut and escaped like an excerpt, without the quotes."""
    return excerpt(text)[1:-1]


def _is_plain(value: object) -> TypeGuard[str]:
    """Return whether *value* is text with nothing to check, as most texts are."""
    return isinstance(value, str) and value.isascii() and "\0" not in value


def _is_broken(text: str) -> bool:
    """Return whether *text* has half a surrogate pair, as from a JSON escape, and so cannot be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
