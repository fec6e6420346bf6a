"""The service account of a pod: its token, the certificate of its cluster, where the API server is, and the node."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import RuntimeUnavailable, excerpt
from pinfold.kubernetes.http import Server
from pinfold.kubernetes.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Mapping

_KUBELET_PORT: Final = 10250
_OWN_CERTIFICATE: Final = Path("pki/kubelet.crt")
_MAX_TOKEN: Final = 64 << 10


class ServiceAccount(NamedTuple):
    """What the kubelet mounts into a pod, and the environment variables that go with it.

    The files are opened anew each time: the kubelet replaces them while we run.
    """

    directory: Path
    environ: Mapping[str, str]

    @property
    def exists(self) -> bool:
        """Whether there is a token, and an API server to use it with."""
        return "KUBERNETES_SERVICE_HOST" in self.environ and (self.directory / "token").exists()

    def token(self) -> str:
        """Return the token as it is now."""
        path = self.directory / "token"
        try:
            with path.open(encoding="ascii") as file:
                token = file.read(_MAX_TOKEN).strip()
        except (OSError, ValueError) as error:
            raise RuntimeUnavailable(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        if not token or not token.isprintable():
            raise RuntimeUnavailable(f"{path}: not a token")
        return token

    def node(self) -> str:
        """Return the node's name: from the environment, else from the token, else the host's name."""
        return self.environ.get("NODE_NAME") or _node_in(self.token()) or socket.gethostname().lower()

    def api_server(self) -> Server:
        """Return the API server of the cluster."""
        host = self.environ.get("KUBERNETES_SERVICE_HOST")
        if not host:
            raise RuntimeUnavailable("KUBERNETES_SERVICE_HOST is not set; it names the API server")
        port = self.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not (port.isascii() and port.isdigit()):
            raise RuntimeUnavailable(f"KUBERNETES_SERVICE_PORT is {excerpt(port)}; a port is expected")
        return Server(host, int(port), Trust((self.directory / "ca.crt",), host), self.token)

    def kubelet(self, directory: Path) -> Server:
        """Return the kubelet of this node, whose *directory* has its certificate if no authority has signed it."""
        trust = Trust((self.directory / "ca.crt", directory / _OWN_CERTIFICATE), self.node())
        return Server(host_address(self.environ), _KUBELET_PORT, trust, self.token)


def host_address(environ: Mapping[str, str]) -> str:
    """Return the address of the host: from the environment in a pod with a network of its own, else loopback."""
    return environ.get("HOST_IP", "127.0.0.1")


def _node_in(token: str) -> str:
    """Return the name of the node in a token that the kubelet has mounted; empty if there is none."""
    try:
        claims = token.split(".")[1]
        read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return str(read["kubernetes.io"]["node"]["name"])
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
