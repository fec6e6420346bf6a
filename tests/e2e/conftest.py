"""Real daemons on this host's kernel; a folder or file with other ones calls them the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import Daemon, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture
def host(hosts: Hosts) -> Iterator[Daemon]:
    """A daemon on which nothing runs; other tests have used it and will."""
    yield hosts.take()
    hosts.give_back()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that a test may do anything to; it is not started yet."""
    with Daemon() as daemon:
        yield daemon
