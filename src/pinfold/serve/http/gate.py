"""Which requests over TCP are served: to a name of this host, from no other site's page, and reading only.

A page of another site can make a browser send us requests. It cannot choose the Host header: that is always the name
in the page's own address, even if that name was made to point to this host (DNS rebinding). And where it could read
the answer, the browser sends its Origin.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import excerpt
from pinfold.serve.http.messages import HTTPError

if TYPE_CHECKING:
    from pinfold.serve.http.messages import Peer, Request

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:[0-9]{1,5})?")


class Users(NamedTuple):
    """Who may use a unix socket; the kernel tells who has connected."""

    uids: frozenset[int] = frozenset()
    group: int | None = None
    """Its members may use it too."""

    def include(self, peer: Peer) -> bool:
        """Whether this process may use the socket."""
        return peer.uid in self.uids or self.group in peer.groups


class HTTPGate(NamedTuple):
    """The rules for requests over TCP.

    >>> HTTPGate().knows("localhost:9440"), HTTPGate().knows("evil.example:9440"), HTTPGate().knows("10.0.0.7:9440")
    (True, False, False)
    >>> HTTPGate(addresses=True).knows("10.0.0.7:9440")
    True
    """

    hosts: frozenset[str] = LOOPBACK
    """Names without a port, in lower case; IPv6 addresses in brackets."""
    addresses: bool = False
    """Whether any IP address is a name of this host: others can make a name point here, but not an address."""
    read_only: bool = True

    def check(self, request: Request) -> None:
        """Raise unless the request may be served."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not host:
            raise HTTPError(400, "BadRequest", "a request needs a Host header")
        if not self.knows(host):
            names = ", ".join(sorted(self.hosts))
            text = f"Host: {excerpt(host)} is not served here; known: {names}; --allow-host adds one"
            raise HTTPError(421, "MisdirectedRequest", text)
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            text = f"Origin: {excerpt(origin)} is refused; only pages of this host are served"
            raise HTTPError(403, "Forbidden", text)
        if self.read_only and request.method != "GET":
            text = f"{request.method[:20]} is refused: only GET and HEAD are served here"
            raise HTTPError(405, "MethodNotAllowed", text, (("allow", "GET, HEAD"),))

    def knows(self, host: str) -> bool:
        """Whether a Host header names this host."""
        found = _HOST.fullmatch(host.lower())
        return found is not None and (found[1] in self.hosts or (self.addresses and _is_address(found[1])))


def _is_address(name: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 - an idle daemon has no client

    with suppress(ValueError):
        return bool(ip_address(name.strip("[]")))
    return False
