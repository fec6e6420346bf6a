"""A daemon that anything may be done to, and one that has seen everything; both with a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.api.client import Web, simulated
from tests.e2e.daemon import Daemon, container, needs_two_cpus, pod, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with simulated() as started:
        yield started.start()


@pytest.fixture
def web(daemon: Daemon) -> Web:
    return Web(daemon)


@pytest.fixture(scope="module", params=["simulated", pytest.param("processes", marks=needs_two_cpus)])
def node(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Return a daemon that has assigned, shared, refused and released; nothing changes it any more."""
    with simulated() if request.param == "simulated" else Daemon() as started:
        started.start()
        started.apply(pod("gone", container(cpus=1)))
        started.delete("gone")
        started.apply(pod("web", container(cpus=1)), pod("db", container(name="sql")), pod("big", container(cpus=500)))
        wait_for(lambda: all(row["state"] == "running" for row in started.containers()), "everything runs")
        yield started


@pytest.fixture
def seen(node: Daemon) -> Web:
    return Web(node)
