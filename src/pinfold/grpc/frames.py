"""gRPC as bytes and headers, the same for both ends and without I/O: messages with their prefix, statuses, timeouts."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.grpc.errors import CallError, Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Headers = list[tuple[str, str]]

PREFIX: Final = struct.Struct(">?I")
"""Before each message: whether it is compressed, and its length."""
_CONTENT: Final = ("content-type", "application/grpc")
ANSWER_HEADERS: Final = [(":status", "200"), _CONTENT]
"""The headers of an answer, the same for every status."""
_CODES: Final = {str(code.value): code for code in Code}
# A status text may contain these as they are: printable ASCII without the percent sign.
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
# The longest timeout that gRPC can write: eight digits.
_MAX_TIMEOUT: Final = 99_999_999


def frame(message: bytes) -> memoryview:
    r"""Return a message with its prefix.

    >>> bytes(frame(b"ab"))
    b'\x00\x00\x00\x00\x02ab'
    """
    return memoryview(PREFIX.pack(False, len(message)) + message)  # noqa: FBT003 - not compressed


def frame_size(received: bytes | bytearray, method: str, limit: int) -> int:
    r"""Return the size of the first message with its prefix; while its prefix is not complete, that of the prefix.

    Raise if the message is compressed, or longer than *limit*.

    >>> frame_size(b"\0\0\0", "List", 10), frame_size(b"\0\0\0\0\x02a", "List", 10)
    (5, 7)
    """
    if len(received) < PREFIX.size:
        return PREFIX.size
    compressed, length = PREFIX.unpack_from(received)
    if compressed:
        raise CallError(method, Code.UNIMPLEMENTED, "a compressed message; compression is not supported")
    if length > limit:
        raise CallError(method, Code.RESOURCE_EXHAUSTED, f"a message of {length:,} bytes; {limit:,} are allowed")
    return PREFIX.size + int(length)


class Status(NamedTuple):
    """How a call ended."""

    code: Code
    text: str = ""


def request_headers(method: str, seconds: float | None) -> Headers:
    """Return the headers of a call of *method*; the server may stop working on it after so many seconds."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        _CONTENT,
    ]
    if seconds is not None:
        headers.append(("grpc-timeout", f"{int(min(seconds * 1000, _MAX_TIMEOUT))}m"))
    return headers


def refusal(headers: Mapping[str, str]) -> str | None:
    """Return the HTTP status for a request that is not gRPC; None if it is.

    >>> refusal({":method": "POST", "content-type": "application/grpc+proto"})
    >>> refusal({":method": "POST", "content-type": "text/html"}), refusal({":method": "GET"})
    ('415', '405')
    """
    if headers.get(":method") != "POST":
        return "405"
    kind = headers.get("content-type", "")
    return None if kind == _CONTENT[1] or kind.startswith((f"{_CONTENT[1]}+", f"{_CONTENT[1]};")) else "415"


def format_status(status: Status) -> Headers:
    """Return the headers that end a call.

    >>> format_status(Status(Code.NOT_FOUND, "100% of 'é'"))
    [('grpc-status', '5'), ('grpc-message', "100%25 of '%C3%A9'")]
    """
    headers = [("grpc-status", str(status.code.value))]
    if not status.text:
        return headers
    from urllib.parse import quote  # noqa: PLC0415 - most calls have no such text

    return [*headers, ("grpc-message", quote(status.text, safe=_PLAIN))]


def parse_status(headers: Mapping[str, str]) -> Status | None:
    """Return the status in *headers*; None if there is none.

    >>> parse_status({"grpc-status": "5", "grpc-message": "100%25"}), parse_status({})
    (Status(code=<Code.NOT_FOUND: 5>, text='100%'), None)
    """
    if "grpc-status" not in headers:
        return None
    text = headers.get("grpc-message", "")
    if text:
        from urllib.parse import unquote  # noqa: PLC0415 - most calls have no such text

        text = unquote(text)
    return Status(_CODES.get(headers["grpc-status"], Code.UNKNOWN), text)


def readable(headers: Iterable[tuple[bytes, bytes]] | None) -> dict[str, str]:
    """Return headers as text; bytes that are not UTF-8 are replaced."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in headers or ()}
