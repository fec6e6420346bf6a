"""Viewer: takes Snapshots of a node, for the API, the page, the metrics and the CLI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.pods.pod import ContainerRef
from pinfold.core.snapshot import ContainerView, Snapshot
from pinfold.formats.pods.runtime import latest
from pinfold.runtimes.caching import CachingApplier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pinfold.core.pods.pod import Pod
    from pinfold.core.reconcile import Wanted
    from pinfold.core.snapshot import Figures
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.manager.node import Node


class Viewer:
    """Takes Snapshots of a node."""

    def __init__(
        self, node: Node, about: Mapping[str, object], links: Collection[str], count: Callable[[], Figures]
    ) -> None:
        """Show a node; *links* are the states of its connection in which the runtime can be reached.

        *about* is the daemon's configuration; *count* returns the counters since its start.
        """
        self._node = node
        self._about = about
        self._links = links
        self._count = count

    def __call__(self, *, closely: bool = False) -> Snapshot:
        """Return a Snapshot of the node; *closely*: with every container as the kernel has it."""
        node, manager = self._node, self._node.manager
        applier = manager.applier
        return Snapshot(
            topology=manager.rules.topology,
            policy=manager.rules.admitter.policy,
            state=manager.state,
            pods=tuple(node.roster.known_pods().values()),
            containers=container_views(node) if closely else (),
            runtime=applier.name,
            link=node.link,
            connected=node.link[0] in self._links,
            unsaved=node.unsaved,
            waiting=len(node.unpinned),
            refused=dict(node.refused),
            figures=self._count(),
            cache_usage=applier.usage() if isinstance(applier, CachingApplier) else (),
            scores=node.scores,
            about={**self._about, "read_only": node.read_only},
        )


def container_views(node: Node) -> list[ContainerView]:
    """Return every container: its CPUs as decided, and those that the kernel allows it.

    Of a container runtime's pods only the containers that run or are about to are shown; of plain processes all.
    """
    want = node.manager.wanted
    scores = {score.container: score.data() for score in node.scores()}
    views = []
    for pod_id, told in node.roster.pods.items():
        known = node.roster.of(pod_id)
        if known.pod is None:
            continue
        live = [container for _, container in known.live]
        shown = live if told.spec is None else latest(node.roster.containers_of(pod_id)).values()
        views += [_view(node, told, known.pod, container, want) for container in shown]
    return [view._replace(exclusivity=scores.get(ref)) for ref, view in views]


def _view(
    node: Node, told: RuntimePod, pod: Pod, container: RuntimeContainer, want: Wanted
) -> tuple[ContainerRef, ContainerView]:
    ref = node.roster.ref(container.id) or ContainerRef(pod.uid, container.name)
    return ref, ContainerView(
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
