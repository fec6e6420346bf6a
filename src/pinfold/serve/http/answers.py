"""A Response as head and body, checked whole before its first byte is sent; with the headers that every answer has."""

from __future__ import annotations

import json
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from pinfold.serve.http.messages import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.serve.http.messages import Response

CLOSE: Final = (b"connection", b"close")
NO_SCRIPTS: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

ALWAYS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
PAGE: Final[Mapping[str, str]] = {
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": NO_SCRIPTS,
}
"""What every page gets besides; a page that needs more brings its own policy."""

_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
_EVENTS: Final = "text/event-stream"
_BYTES: Final = "application/octet-stream"
_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_WITHOUT_BODY: Final = {204, 304}
_OURS: Final = frozenset({"connection", "content-length", "date", "transfer-encoding", "upgrade"})


class Answer(NamedTuple):
    """What is sent: a head, and either a body or what *response* streams."""

    head: h11.Response
    body: bytes
    response: Response

    def as_last(self) -> Answer:
        """Return it for a connection on which nothing follows."""
        head = self.head
        headers = [*head.headers, CLOSE]
        return self._replace(
            head=h11.Response(status_code=head.status_code, headers=headers, reason=bytes(head.reason))
        )


def prepare(response: Response) -> Answer:
    """Return the answer as it will be sent; raise if it cannot be."""
    kind, body = _content(response)
    headers = {"content-type": kind, "date": formatdate(usegmt=True), **ALWAYS}
    if kind.partition(";")[0].strip().lower() == "text/html":
        headers |= PAGE
    if response.status in _WITHOUT_BODY:
        body = b""
    elif response.stream is None:
        headers["content-length"] = str(len(body))
    extra = {name.lower(): value for name, value in response.headers}
    if not _OURS.isdisjoint(extra):
        raise ValueError(f"{', '.join(sorted(_OURS & extra.keys()))}: the server alone says that")
    headers |= extra
    head = h11.Response(
        status_code=response.status, headers=list(headers.items()), reason=_PHRASES.get(response.status, b"")
    )
    return Answer(head, body, response)


def _content(response: Response) -> tuple[str, bytes]:
    if response.lines is not None:
        return response.kind or _LINES, b""
    if response.events is not None:
        return response.kind or _EVENTS, b""
    if response.content is not None:
        return response.kind or _BYTES, response.content
    data = response.data
    return response.kind or _JSON, data.text if isinstance(data, Written) else f"{_dump(data)}\n".encode()


def write(data: Mapping[str, object]) -> Written:
    r"""Return data as JSON, to be called in a thread; its lists one by one, since all threads wait for each `dumps`.

    >>> write({"entries": [{"number": 1}, 2], "more": False}).text
    b'{"entries": [{"number": 1}, 2], "more": false}\n'
    """
    return Written("".join(_pieces(data)).encode())


def _pieces(data: Mapping[str, object]) -> Iterator[str]:
    before = "{"
    for name, value in data.items():
        yield f"{before}{_dump(name)}: "
        if isinstance(value, list):
            yield f"[{', '.join(map(_dump, value))}]"
        else:
            yield _dump(value)
        before = ", "
    yield "}\n" if data else "{}\n"


def _dump(data: object) -> str:
    return json.dumps(data, allow_nan=False)
