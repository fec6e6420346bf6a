"""Who is let in over TCP: requests for this host under its own names, from no other page, and with nothing to change.

A page of another site can make a browser ask us. It cannot choose the Host header: that is the name in its own
address, also when that name was made to point here (DNS rebinding). And it cannot hide its Origin where it could read.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import excerpt
from pinfold.serve.http.messages import HTTPError

if TYPE_CHECKING:
    from pinfold.serve.http.messages import Request

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:[0-9]{1,5})?")
_READING: Final = ("GET", "HEAD")


class HTTPGate(NamedTuple):
    """Whom and what to let in.

    >>> HTTPGate().knows("localhost:9440"), HTTPGate().knows("evil.example:9440"), HTTPGate().knows("10.0.0.7:9440")
    (True, False, False)
    >>> HTTPGate(addresses=True).knows("10.0.0.7:9440")
    True
    """

    hosts: frozenset[str] = LOOPBACK
    """Names without a port, in lower case; IPv6 addresses in brackets."""
    addresses: bool = False
    """Whether any IP address will do: a name can be made to point here, an address in the Host header was meant."""
    read_only: bool = True

    def check(self, method: str, request: Request) -> None:
        """Raise unless the request may come in; *method* is what was sent."""
        host = request.headers.get("host", "")
        if not host:
            raise HTTPError(400, "BadRequest", "a request needs a Host header")
        if not self.knows(host):
            names = ", ".join(sorted(self.hosts))
            text = f"Host: {excerpt(host)} is not served here; known: {names}; --allow-host adds one"
            raise HTTPError(421, "MisdirectedRequest", text)
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise HTTPError(403, "Forbidden", f"Origin: {excerpt(origin)} may not ask; only pages of this host may")
        if self.read_only and method not in _READING:
            allowed = ", ".join(_READING)
            text = f"{method[:20]} changes things; here they are only read: {allowed}"
            raise HTTPError(405, "MethodNotAllowed", text, (("allow", allowed),))

    def knows(self, host: str) -> bool:
        """Whether a Host header names this host."""
        found = _HOST.fullmatch(host.lower())
        return found is not None and (found[1] in self.hosts or (self.addresses and _is_address(found[1])))


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
