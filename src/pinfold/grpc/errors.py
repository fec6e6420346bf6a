"""How gRPC calls fail: the codes, and our errors for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pinfold.errors import PinfoldError, RuntimeUnavailable

_MAX_TEXT: Final = 500


class Code(IntEnum):
    """The codes with which a call can end."""

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


CODES: Final = {str(code.value): code for code in Code}


class CallError(PinfoldError):
    """A call that the other end has answered with an error: its gRPC code and its text."""

    def __init__(self, method: str, code: Code, text: str) -> None:
        self.method = method
        self.code = code
        self.text = one_line(text)
        super().__init__(f"{method}: {code.name}: {self.text}")


class Unimplemented(CallError):  # noqa: N818 - the name of the gRPC code
    """A call that the other end does not know."""


class Lost(RuntimeUnavailable):
    """The connection ended before the answer was there."""


def one_line(text: str) -> str:
    """Return *text* as one line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: _MAX_TEXT + 1]).split())
    return f"{line[:_MAX_TEXT]}…" if len(text) > _MAX_TEXT else line
