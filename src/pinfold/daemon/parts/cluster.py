"""The parts of a daemon that ask Kubernetes for pods, and tell it of refusals and of the node's topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.admission import Scope
from pinfold.core.events.daemon import Weaker
from pinfold.errors import ConfigError, Problem
from pinfold.kubernetes.podresources import SOCKET, pod_resources
from pinfold.kubernetes.pods.discovery import AUTO, pod_sources
from pinfold.kubernetes.pods.wholepods import WholePods
from pinfold.manager.nearby import NodeHints
from pinfold.node.machine.devices import Devices
from pinfold.settings.table import OnRefusal

if TYPE_CHECKING:
    from pinfold.daemon.parts.common import Basis
    from pinfold.kubernetes.account import ServiceAccount
    from pinfold.kubernetes.nodetopology import NodeTopology
    from pinfold.manager.cluster import Refuse
    from pinfold.manager.node import Node


def whole_pods(basis: Basis, account: ServiceAccount) -> WholePods:
    """Return what other sources know of pods; warn, with scope pod, if there is none."""
    settings = basis.chosen.kubernetes
    sources = pod_sources(settings.pods_from, account, settings.kubelet_dir)
    if not sources and basis.admitter.scope is Scope.POD:
        basis.bus.tell(Weaker("scope pod: without a source of whole pods, pinfold decides one container at a time"))
    # A container waits for what is found: it starts before that is written down.
    return WholePods(sources, lambda event: basis.bus.tell(lambda: event), named=settings.pods_from != AUTO)


def node_hints(basis: Basis) -> NodeHints:
    """Return what knows the devices and memory of pods."""
    settings = basis.chosen.kubernetes
    if settings.hints_from == str(basis.chosen.views.pod_resources):
        said = f"--hints-from {settings.hints_from} is the socket on which pinfold itself serves"
        raise ConfigError(Problem(said, f"the kubelet's is {settings.kubelet_dir / SOCKET}"))
    kubelet = pod_resources(settings.hints_from, settings.kubelet_dir, basis.bus.tell)
    return NodeHints(kubelet, Devices(basis.chosen.sysroot), basis.bus.tell)


def on_refusal(basis: Basis, account: ServiceAccount) -> Refuse | None:
    """Return what to do about refused pods, beside telling their runtime."""
    if basis.chosen.kubernetes.on_refusal is OnRefusal.RETRY:
        return None
    from pinfold.kubernetes.refusals import Refusals  # noqa: PLC0415 - only for this option

    _check(account, "--on-refusal fail", "--on-refusal retry")
    return Refusals(account, basis.bus.tell).fail


def publisher(basis: Basis, account: ServiceAccount, node: Node) -> NodeTopology | None:
    """Return what publishes the node's topology, unless a kubelet manages CPUs here; None if that is not wanted."""
    if not basis.chosen.kubernetes.publish_topology:
        return None
    from pinfold.formats.kubelet.nodetopology import node_topology  # noqa: PLC0415 - only for this option
    from pinfold.kubernetes.nodetopology import NodeTopology  # noqa: PLC0415

    _check(account, "--publish-topology", "--publish-topology=false")

    def describe(name: str) -> dict[str, object] | None:
        rules, state = node.manager.rules, node.manager.state
        return None if node.read_only else node_topology(name, rules.admitter, rules.topology, state)

    return NodeTopology(account, describe, basis.bus.tell)


def _check(account: ServiceAccount, flag: str, other: str) -> None:
    """Raise if there is no service account."""
    if not account.exists:
        said = f"{flag} needs the API server, and there is no service account in {account.directory}"
        raise ConfigError(Problem(said, f"mount one and set KUBERNETES_SERVICE_HOST, or use {other}"))
