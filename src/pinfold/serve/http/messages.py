"""A request, a response and an error as values; the connection turns them into bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError, PinfoldError, excerpt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Headers = tuple[tuple[str, str], ...]

_MOST_FIELDS: Final = 100
_MOST_PROBLEMS: Final = 100
_LONGEST_TARGET: Final = 16 << 10
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_NOT_IN_A_FIELD: Final = re.compile(r"[\r\n\0]")


class HTTPError(PinfoldError):
    """A request that is not served, with the status and a reason word for the answer."""

    def __init__(self, status: int, reason: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = headers


class Peer(NamedTuple):
    """The process at the other end of a unix socket; over TCP only its address is known."""

    pid: int
    uid: int
    gid: int
    address: str = ""
    groups: frozenset[int] = frozenset()
    """All groups of the process, with its first one."""


class Request(NamedTuple):
    """A client's request; a HEAD request has the method GET.

    *path* is as it was sent. *segments* are its parts, each decoded by itself: an escaped slash stays in its segment.
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
            raise HTTPError(400, "BadRequest", f"{name}: expected a number of at most 18 digits, not {excerpt(text)}")
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
    """The milliseconds after which a client whose connection broke connects again."""

    def encode(self) -> bytes:
        """Return the bytes that are sent."""
        if _NOT_IN_A_FIELD.search(self.id + self.name):
            raise ValueError(f"id and name of an event must be one line each, not {self.id!r} and {self.name!r}")
        fields = [("id", self.id), ("event", self.name), ("retry", "" if self.retry is None else str(self.retry))]
        fields += [("data", line) for line in _LINE_END.split(self.data) if self.data]
        text = "".join(f"{name}: {value}\n" for name, value in fields if value or name == "data")
        return f"{text}\n".encode(errors="replace")


class Written(bytes):
    """Data that is JSON already, with a line end."""

    __slots__ = ()


class Response(NamedTuple):
    """A response: *data* as JSON, or *content* as it is, or a stream of lines or of encoded events."""

    status: int
    data: object = None
    lines: AsyncIterator[bytes] | None = None
    events: AsyncIterator[bytes] | None = None
    content: bytes | None = None
    kind: str = ""
    """The content type, if it is not the usual one."""
    headers: Headers = ()

    @classmethod
    def failure(cls, error: PinfoldError) -> Response:
        """Return the response for an error."""
        wrong = getattr(error, "problems", ()) if isinstance(error, ParseError) else ()
        problems = [str(problem) for problem in wrong[:_MOST_PROBLEMS]]
        if not isinstance(error, HTTPError):
            error = HTTPError(400, type(error).__name__, str(error))
        data: dict[str, object] = {"reason": error.reason, "message": str(error)}
        return cls(error.status, {**data, "problems": problems} if problems else data, headers=error.headers)

    @property
    def stream(self) -> AsyncIterator[bytes] | None:
        """The lines or events, if the response is a stream."""
        return self.events if self.lines is None else self.lines


def parse_target(text: str) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
    """Return path, segments and query of a request's target.

    >>> parse_target("/v1/pods/a%2Fb?after=%37&follow")
    ('/v1/pods/a%2Fb', ('v1', 'pods', 'a/b'), {'after': '7', 'follow': ''})
    """
    if not text.startswith("/"):
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} is not a path: it must begin with /")
    if len(text) > _LONGEST_TARGET:
        raise HTTPError(414, "URITooLong", f"a target of {len(text):,} characters; {_LONGEST_TARGET:,} are allowed")
    if _BROKEN_ESCAPE.search(text):
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} has a % without two hexadecimal digits")
    path, _, query = text.partition("?")
    inner = path.removeprefix("/").removesuffix("/")
    segments = tuple(inner.split("/")) if inner else ()
    if not query and "%" not in path:
        return path, segments, {}
    from urllib.parse import parse_qsl, unquote  # noqa: PLC0415 - an idle daemon has no client

    try:
        segments = tuple(unquote(part, errors="strict") for part in segments)
        fields = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise HTTPError(400, "BadRequest", f"the target {excerpt(text)} cannot be decoded: {error}") from error
    return path, segments, dict(fields)
