"""A Response as head and body, checked whole before its first byte is sent."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.serve.http.messages import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h11

    from pinfold.serve.http.messages import Response

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


class Answer(NamedTuple):
    """What is sent: a head, and either a body or what *response* streams."""

    head: h11.Response
    body: bytes
    response: Response


def prepare(response: Response, *, last: bool = False) -> Answer:
    """Return the answer as it is sent, *last* if the connection is closed after it; raise if it cannot be sent."""
    import h11  # noqa: PLC0415 - a daemon without clients needs it not at all

    kind, body = _content(response)
    headers = {"content-type": kind, "date": _now(), **_ALWAYS}
    if response.status in _WITHOUT_BODY:
        body = b""
    elif response.stream is None:
        headers["content-length"] = str(len(body))
    if last or response.stream is not None:
        headers["connection"] = "close"
    own = {name.lower(): value for name, value in response.headers}
    if not _OURS.isdisjoint(own):
        raise ValueError(f"only the server sets {', '.join(sorted(_OURS & own.keys()))}")
    reason = HTTPStatus(response.status).phrase
    head = h11.Response(status_code=response.status, headers=list((headers | own).items()), reason=reason)
    return Answer(head, body, response)


def _now() -> str:
    """Return the time as HTTP writes it; `email.utils` would do it too, with 20 modules more."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())


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


def _dump(data: object) -> str:
    return json.dumps(data, allow_nan=False)
