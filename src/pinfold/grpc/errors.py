"""How gRPC calls fail: the status codes, and the errors that stand for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pinfold.errors import PinfoldError, RuntimeUnavailable

_MAX_TEXT: Final = 500


class Code(IntEnum):
    """The status codes with which a call can end."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallError(PinfoldError):
    """A call that ends with an error: its status code and its text, in one line."""

    def __init__(self, method: str, code: Code, text: str) -> None:
        self.method = short_name(method)
        self.code = code
        self.text = one_line(text)
        super().__init__(f"{self.method}: {code.name}: {self.text}")


class Unimplemented(CallError):  # noqa: N818 - the name of the gRPC code
    """A call of a method that the server does not have."""


class Lost(RuntimeUnavailable):
    """The connection ended before the answer came."""


def one_line(text: str) -> str:
    r"""Return *text* as one line of at most 500 characters.

    >>> one_line("out of\nrange")
    'out of range'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: _MAX_TEXT + 1]).split())
    return f"{line[:_MAX_TEXT]}…" if len(text) > _MAX_TEXT else line


def short_name(method: str) -> str:
    """Return the name of a method without its service."""
    return method.rpartition("/")[2]
