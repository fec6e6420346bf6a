"""A Response as head and body, checked whole before its first byte is sent."""

from __future__ import annotations

import json
import re
import time
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.serve.http.messages import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.serve.http.messages import Headers, Response

_ALWAYS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""A response that needs another value, such as the page with its scripts, brings its own."""
_OURS: Final = frozenset({"connection", "content-length", "date", "transfer-encoding", "upgrade"})
_WITHOUT_BODY: Final = {204, 304}
_NAME: Final = r"[-!#$%&'*+.^_`|~0-9a-z]+"
_VALUE: Final = r"([!-~]([\t -~]*[!-~])?)?"
"""Both are compiled when the first answer is made: an idle daemon makes none."""


class Answer(NamedTuple):
    """What is sent: a head, and either a body or what *response* streams."""

    head: bytes
    """Without what depends on the connection, and without the empty line at its end."""
    body: bytes
    response: Response


def prepare(response: Response) -> Answer:
    """Return the answer as it is sent; raise if it cannot be sent."""
    kind, body = _content(response)
    head = _fixed(response.status, kind, response.headers) + _date(int(time.time()))
    if response.status in _WITHOUT_BODY:
        body = b""
    elif response.stream is None:
        head += b"content-length: %d\r\n" % len(body)
    return Answer(head, body, response)


@lru_cache(maxsize=64)
def _fixed(status: int, kind: str, headers: Headers) -> bytes:
    """Return the lines of a head that all such answers have; raise if one cannot be sent."""
    own = {name.lower(): value for name, value in headers}
    if not _OURS.isdisjoint(own):
        raise ValueError(f"only the server sets {', '.join(sorted(_OURS & own.keys()))}")
    if status < HTTPStatus.OK:
        raise ValueError(f"{status} is not the status of a whole answer")
    fields = {"content-type": kind, **_ALWAYS, **own}
    for name, value in fields.items():
        if not (re.fullmatch(_NAME, name) and re.fullmatch(_VALUE, value)):
            raise ValueError(f"{name!r}: {value!r} cannot be a header")
    lines = [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *lines, ""]).encode("ascii")


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    """Return the time as HTTP writes it; `email.utils` would do it too, with 20 modules more."""
    return time.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(seconds)).encode()


def _content(response: Response) -> tuple[str, bytes]:
    if response.lines is not None:
        return response.kind or "application/x-ndjson", b""
    if response.events is not None:
        return response.kind or "text/event-stream", b""
    if response.content is not None:
        return response.kind or "application/octet-stream", response.content
    data = response.data
    return response.kind or "application/json", data if isinstance(data, Written) else f"{_dump(data)}\n".encode()


def write(data: Mapping[str, object]) -> Written:
    r"""Return data as JSON. Call it in a thread: it writes lists item by item, so that other threads run in between.

    >>> write({"entries": [{"number": 1}, 2], "more": False})
    b'{"entries": [{"number": 1}, 2], "more": false}\n'
    """
    fields = (f"{_dump(name)}: {_dump_items(value)}" for name, value in data.items())
    return Written(f"{{{', '.join(fields)}}}\n".encode())


def _dump_items(value: object) -> str:
    return f"[{', '.join(map(_dump, value))}]" if isinstance(value, list) else _dump(value)


_dump: Final = json.JSONEncoder(allow_nan=False).encode
