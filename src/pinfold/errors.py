"""The families of errors; a leaf stands beside the code that raises it.

Every error that pinfold raises on purpose is a PinfoldError: its text is one line that says what was wrong, where, and
what is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXCERPT = 40


class PinfoldError(Exception):
    """The root of all errors that pinfold raises on purpose."""


class ParseError(PinfoldError, ValueError):
    """Text that cannot be parsed; says what is wrong, where, and the column if there is one.

    >>> str(ParseError("expected a CPU number", text="1,,2", at=2, where="sys/devices/system/cpu/online"))
    'sys/devices/system/cpu/online: expected a CPU number at column 3 of "1,,2"'
    """

    def __init__(self, problem: str, *, text: str | None = None, at: int = 0, where: str = "") -> None:
        place = "" if text is None else f" at column {at + 1} of {excerpt(text, at)}"
        super().__init__(f"{where}: {problem}{place}" if where else f"{problem}{place}")
        self.problem = problem
        self.text = text
        self.at = at
        self.where = where

    def within(self, where: str) -> Self:
        """Return the same error, placed in the file or field *where*."""
        inner = f"{where}: {self.where}" if self.where else where
        return type(self)(self.problem, text=self.text, at=self.at, where=inner)


class Problem(NamedTuple):
    """One problem of a configuration, in the kubelet's words where it has any, and what to do about it."""

    said: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.said}; {self.advice}" if self.advice else self.said


class ConfigError(PinfoldError):
    """A configuration with all of its problems; the first is the one that the kubelet would report."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(problem) if isinstance(problem, str) else problem for problem in problems)
        super().__init__("; ".join(map(str, self.problems)))


class StateError(PinfoldError):
    """A State, or its file, that cannot be trusted."""


class RuntimeUnavailable(PinfoldError):  # noqa: N818 - the word users know from gRPC
    """The runtime does not answer."""


class AdmissionError(PinfoldError):
    """A refusal; *reason* is the word that the kubelet writes into the pod's status."""

    reason = "UnexpectedAdmissionError"

    @property
    def message(self) -> str:
        """The text in the pod's status: the kubelet wraps unexpected errors."""
        typed = self.reason != AdmissionError.reason
        return str(self) if typed else f"Allocate failed due to {self}, which is unexpected"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the nearest of the known words as a question, to end a message with; nothing if none is near.

    >>> did_you_mean("kafak", ["kafka", "web"])
    '; did you mean kafka?'
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    close = get_close_matches(word, [*known], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def excerpt(text: str, at: int = 0) -> str:
    """Return *text* in double quotes, cut around position *at* when it is long, with unprintables escaped.

    >>> print(excerpt("7" * 100, at=50))
    "…7777777777777777777777777777777777777777…"
    """
    start = 0 if len(text) <= _EXCERPT else max(0, min(at - _EXCERPT // 2, len(text) - _EXCERPT))
    piece = text[start : start + _EXCERPT]
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in piece)
    return f'"{"…" if start else ""}{shown}{"…" if start + _EXCERPT < len(text) else ""}"'
