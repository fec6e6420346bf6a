"""What there is to see of every container, as values for the Snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.pods import ContainerRef
from pinfold.core.snapshot import ContainerView
from pinfold.formats.kubepods import latest

if TYPE_CHECKING:
    from pinfold.core.pods import Pod
    from pinfold.core.reconcile import Wanted
    from pinfold.formats.kubepods import RuntimeContainer, RuntimePod
    from pinfold.manager.node import Node


def container_views(node: Node) -> list[ContainerView]:
    """Return every container: its CPUs as decided, and those that the kernel allows it.

    Of a container runtime's pods only the containers that run or are about to are shown; of plain processes all.
    """
    want = node.manager.wanted
    views = []
    for pod_id, told in node.roster.pods.items():
        known = node.roster.of(pod_id)
        if known.pod is None:
            continue
        live = [container for _, container in known.live]
        shown = live if told.spec is None else latest(node.roster.containers_of(pod_id)).values()
        views += [_view(node, told, known.pod, container, want) for container in shown]
    return views


def _view(node: Node, told: RuntimePod, pod: Pod, container: RuntimeContainer, want: Wanted) -> ContainerView:
    ref = node.roster.ref(container.id) or ContainerRef(pod.uid, container.name)
    return ContainerView(
        namespace=pod.namespace,
        pod=pod.name,
        container=ref.name,
        kind=told.kind or node.manager.applier.name,
        qos=pod.qos,
        exclusive=ref in want.exclusive,
        cpus=want.cpus_of(ref),
        allowed=node.manager.applier.allowed(ref),
        state=container.phase,
        pid=container.pid or None,
        restarts=container.attempt,
        code=container.code,
        since=container.since or node.since.get(container.id, 0.0),
    )
