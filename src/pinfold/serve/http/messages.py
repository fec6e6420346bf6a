"""What a client asks for and what it gets, as values; how the bytes travel is not known here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from pinfold.errors import PinfoldError, excerpt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Headers = tuple[tuple[str, str], ...]

_MOST_FIELDS: Final = 100
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_NOT_IN_A_FIELD: Final = re.compile(r"[\r\n\0]")


class HTTPError(PinfoldError):
    """A request that cannot be served, with its status and a word for it."""

    def __init__(self, status: int, reason: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = headers


class Peer(NamedTuple):
    """Who is at the other end: a process on a unix socket; over TCP nobody that is known, at an address."""

    pid: int
    uid: int
    gid: int
    address: str = ""


class Request(NamedTuple):
    """What a client asks for; a HEAD comes as the GET that it stands for.

    *path* is as it was sent; *segments* are its parts, decoded one by one, so that an escaped slash stays in its part.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    peer: Peer
    headers: Mapping[str, str] = {}
    segments: tuple[str, ...] = ()

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the query."""
        text = self.query.get(name)
        if text is None:
            return default
        if _NUMBER.fullmatch(text) is None:
            raise HTTPError(400, "BadRequest", f"{name}: {excerpt(text)} is no whole number of at most 18 digits")
        return int(text)


class ServerSentEvent(NamedTuple):
    r"""One event of a stream for browsers (text/event-stream).

    >>> ServerSentEvent('{"a": 1}', id="7", name="note").encode()
    b'id: 7\nevent: note\ndata: {"a": 1}\n\n'
    """

    data: str
    id: str = ""
    name: str = ""
    retry: int | None = None
    """After how many milliseconds a client that was cut off comes back."""

    def encode(self) -> bytes:
        """Return it as it travels."""
        if _NOT_IN_A_FIELD.search(self.id + self.name):
            raise ValueError(f"an event's id and name are one line each, not {self.id!r} and {self.name!r}")
        fields = [("id", self.id), ("event", self.name), ("retry", "" if self.retry is None else str(self.retry))]
        lines = [f"{field}: {value}\n" for field, value in fields if value]
        lines += [f"data: {line}\n" for line in _LINE_END.split(self.data) if self.data]
        return "".join([*lines, "\n"]).encode(errors="replace")


class Written(NamedTuple):
    """Data that is JSON already, with a line's end."""

    text: bytes


class Response(NamedTuple):
    """What a client gets: *data* as JSON, or *content* as it is, or a stream of lines or of events."""

    status: int
    data: object = None
    lines: AsyncIterator[bytes] | None = None
    events: AsyncIterator[ServerSentEvent | bytes] | None = None
    """Events one by one, or any number of them as they travel."""
    content: bytes | None = None
    kind: str = ""
    """The content type, where it is not the usual one."""
    headers: Headers = ()

    @classmethod
    def failure(cls, error: HTTPError) -> Response:
        """Return the answer that says what is wrong."""
        return cls(error.status, {"reason": error.reason, "message": str(error)}, headers=error.headers)

    @property
    def stream(self) -> AsyncIterator[ServerSentEvent | bytes] | None:
        """What comes bit by bit, if it does."""
        return self.lines if self.lines is not None else self.events

    async def close(self) -> None:
        """End the stream, read to its end or not."""
        end = getattr(self.stream, "aclose", None)
        if end is not None:
            await end()


class Target(NamedTuple):
    """What the first line of a request names; *host* only if it names one, as requests to a proxy do."""

    path: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    host: str | None = None


def parse_target(text: str) -> Target:
    """Return the parts of a request's target.

    >>> parse_target("/v1/pods/a%2Fb?after=%37&follow")
    Target(path='/v1/pods/a%2Fb', segments=('v1', 'pods', 'a/b'), query={'after': '7', 'follow': ''}, host=None)
    """
    host = None
    if text[:7].lower() == "http://":
        host, slash, rest = text[7:].partition("/")
        text = slash + rest or "/"
    if not text.startswith("/") and text != "*":
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} is no path; it begins with /")
    if _BROKEN_ESCAPE.search(text):
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} has a % without two hexadecimal digits")
    path, _, query = text.partition("?")
    try:
        return Target(path, _segments(path), _fields(query), host)
    except ValueError as error:
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} cannot be decoded: {error}") from error


def _segments(path: str) -> tuple[str, ...]:
    inner = path.removeprefix("/").removesuffix("/")
    return tuple(unquote(part, errors="strict") for part in inner.split("/")) if inner else ()


def _fields(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
