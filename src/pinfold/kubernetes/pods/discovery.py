"""Which sources of whole pods there are on a node, in the order in which they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.errors import ConfigError, Problem, excerpt
from pinfold.kubernetes.account import host_address
from pinfold.kubernetes.http import Server
from pinfold.kubernetes.pods.apiserver import APIServer
from pinfold.kubernetes.pods.kubelet import KubeletPods, ReadOnlyPort
from pinfold.kubernetes.pods.manifests import Manifests
from pinfold.kubernetes.pods.podsapi import SOCKET, PodsAPI
from pinfold.kubernetes.pods.watched import WatchedPods

if TYPE_CHECKING:
    from pinfold.kubernetes.account import ServiceAccount
    from pinfold.kubernetes.pods.base import PodSource

AUTO: Final = "auto"
NONE: Final = "none"
API_SERVER: Final = "api-server"
ALLOWED: Final = (
    f"allowed is {AUTO}, {NONE}, {API_SERVER}, a directory of manifests, the socket of a kubelet's Pods API, or a URL "
    "such as http://127.0.0.1:10255/pods"
)
MANIFESTS: Final = Path("/etc/kubernetes/manifests")


def pod_sources(where: str, account: ServiceAccount, kubelet: Path) -> list[PodSource]:
    """Return the sources that a setting names; *kubelet* is the kubelet's directory.

    Asked first is the source that needs no rights and no network; last the one that knows names only.
    """
    if where == NONE:
        return []
    if where != AUTO:
        return [_named(where, account, kubelet)]
    return [
        WatchedPods(PodsAPI(kubelet / SOCKET)),
        WatchedPods(APIServer(account)),
        KubeletPods("kubelet", lambda: account.kubelet(kubelet), lambda: account.exists),
        ReadOnlyPort(host_address(account.environ)),
        Manifests(MANIFESTS),
    ]


def _named(where: str, account: ServiceAccount, kubelet: Path) -> PodSource:
    if where == API_SERVER:
        return WatchedPods(APIServer(account))
    if "://" in where:
        return _at_url(where, account, kubelet)
    path = Path(where)
    return WatchedPods(PodsAPI(path)) if path.suffix == ".sock" or path.is_socket() else Manifests(path)


def _at_url(text: str, account: ServiceAccount, kubelet: Path) -> PodSource:
    try:
        from urllib.parse import urlsplit  # noqa: PLC0415 - only where there is a kubelet

        url = urlsplit(text)
        host, port = url.hostname, url.port or {"http": 80, "https": 443}[url.scheme]
    except (ValueError, KeyError):
        host, port = None, 0
    if host is None or url.path != "/pods" or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(Problem(f"pods cannot be read from {excerpt(text)}", ALLOWED))
    if url.scheme == "http":
        return KubeletPods(text, lambda: Server(host, port), lambda: True)
    return KubeletPods(text, lambda: account.kubelet(kubelet)._replace(host=host, port=port), lambda: True)
