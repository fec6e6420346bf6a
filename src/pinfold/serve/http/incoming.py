"""The requests of one connection: h11 reads them, and each must be small enough and complete in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import h11

from pinfold.serve.http.messages import HTTPError, Request, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.serve.http.carrier import Carrier
    from pinfold.serve.http.limits import HTTPLimits
    from pinfold.serve.http.messages import Peer

_MESSAGE: Final = 200
_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Incoming:
    """What a client sends, as Requests."""

    def __init__(self, carrier: Carrier, peer: Peer, limits: HTTPLimits) -> None:
        self.waiting = False
        """Whether the client has to send something."""
        self.since = 0.0
        """When the wait for the latest request began."""
        self.last = False
        """Whether no request may follow the latest one."""
        self.head: h11.Request | None = None
        """The head of the request that is being received or answered."""
        self._carrier = carrier
        self._peer = peer
        self._limits = limits
        self._until = 0.0
        """When the request must be complete."""
        self._rest = b""
        """What came after the latest request."""
        self._wire: h11.Connection
        """Reads one request: the next one gets another, which is cheaper than to tell h11 of our answer."""

    async def give_way(self) -> None:
        """Let other clients have their turn between requests that came at once.

        What came with the connection is there after that, so that a client that asks at once never gives way.
        """
        first, self.since = not self.since, _now()
        if first or self._rest or self._carrier.received:
            await asyncio.sleep(0)

    async def receive(self, check: Callable[[Request], None]) -> Request | None:
        """Return the next request, None if there is none; *check* gets it before its body comes, and may raise."""
        if not (begun := self._rest or await self._begin()):
            return None
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head)
        self._wire.receive_data(begun)
        self._until = _now() + self._limits.request
        try:
            return await self._request(check)
        except TimeoutError as error:
            text = f"a request must be complete within {self._limits.request:g} seconds"
            raise HTTPError(408, "RequestTimeout", text) from error
        except h11.RemoteProtocolError as error:
            raise self._broken(error) from error

    async def _begin(self) -> bytes:
        """Return the first bytes of a request, empty if none comes."""
        try:
            return await self.read(self.since + self._limits.idle)
        except TimeoutError:
            return b""

    async def _request(self, check: Callable[[Request], None]) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self.head = head
        request = parse_head(head, self._peer, self._limits)
        check(request)
        if self._wire.they_are_waiting_for_100_continue:
            await self._carrier.write(_GO_ON, self._limits.unread)
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > self._limits.body:
                raise _too_large(413, "the body of a request", self._limits.body)
        self._rest = self._wire.trailing_data[0]
        self.last = not self._may_go_on()
        return request._replace(body=bytes(body))

    def _may_go_on(self) -> bool:
        """Return whether the client may send another request on this connection."""
        state = self._wire.their_state
        if state not in {h11.DONE, h11.MUST_CLOSE}:  # it asked for another protocol; any answer says no
            self._wire.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            state = self._wire.their_state
        return state is h11.DONE

    async def _event(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(await self.read(self._until))
        return event

    async def read(self, until: float) -> bytes:
        """Return what the client sends, empty at its end; wait for it *until* a time of the loop."""
        self.waiting = True
        try:
            return await self._carrier.read(until)
        finally:
            self.waiting = False

    def _broken(self, error: h11.RemoteProtocolError) -> HTTPError:
        if self.head is not None:
            return HTTPError(400, "BadRequest", f"the body is broken: {error}"[:_MESSAGE])
        status = error.error_status_hint
        if status != 431:  # noqa: PLR2004 - what h11 says of anything that is too long and has no end
            return HTTPError(status, "BadRequest", f"not an HTTP request: {error}"[:_MESSAGE])
        line_ended = b"\n" in self._wire.trailing_data[0]
        return _too_large(431 if line_ended else 414, "the head of a request", self._limits.head)


def parse_head(head: h11.Request, peer: Peer, limits: HTTPLimits) -> Request:
    """Return a request without its body; raise if it cannot be served."""
    if head.http_version not in {b"1.0", b"1.1"}:
        raise HTTPError(505, "NotSupported", f"HTTP {head.http_version.decode()} is not supported; HTTP 1.1 is")
    if head.method == b"CONNECT":
        raise HTTPError(501, "NotImplemented", "CONNECT is not supported; this is not a proxy")
    size, headers = len(head.target), dict[str, str]()
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
        size += len(name) + len(value) + 4
    if size > limits.head:
        raise _too_large(431, "the head of a request", limits.head)
    if int(headers.get("content-length", "0")) > limits.body:
        raise _too_large(413, "the body of a request", limits.body)
    target = head.target.decode("ascii")
    if target[:7].lower() == "http://":
        headers["host"], _, rest = target[7:].partition("/")
        target = f"/{rest}"
    method = "GET" if head.method == b"HEAD" else head.method.decode()
    path, segments, query = parse_target(target)
    return Request(method, path, query, b"", peer, headers, segments)


def _too_large(status: int, what: str, most: int) -> HTTPError:
    return HTTPError(status, "TooLarge", f"{what} has at most {most:,} bytes")


def _now() -> float:
    return asyncio.get_running_loop().time()
