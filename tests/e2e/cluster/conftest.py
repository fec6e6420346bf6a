"""A real cluster that the tests share, and a pinfold on its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster.cluster import Cluster, ClusterDaemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def serve(cluster: Cluster) -> Iterator[Callable[..., ClusterDaemon]]:
    """Start pinfold with these options; it and all pods are gone after the test."""
    daemons: list[ClusterDaemon] = []

    def start(*options: str) -> ClusterDaemon:
        daemon = ClusterDaemon(cluster, "--cpu-manager-reconcile-period", "1s", *options)
        daemons.append(daemon)
        return daemon.start()

    try:
        yield start
    finally:
        cluster.remove_all()
        for daemon in daemons:
            if daemon.is_alive:
                daemon.verb("leave")
            daemon.__exit__(None, None, None)
        cluster.containerd.make_group("")
