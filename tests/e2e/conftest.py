"""Real daemons on this host's kernel. Folders and files with other daemons use the same names for their fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import Daemon, Hosts
from tests.e2e.image import build_image
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# They need a machine as the guest is one (test_guest.py); elsewhere they run only if they are named.
collect_ignore = [] if IN_GUEST else ["test_dynamic.py", "test_hotplug.py", "test_numa.py"]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The container image of pinfold."""
    return build_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


@pytest.fixture
def host(hosts: Hosts) -> Iterator[Daemon]:
    """A daemon on which nothing runs; the tests of a module share it."""
    yield hosts.take()
    hosts.give_back()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon for one test, not started yet."""
    with Daemon() as daemon:
        yield daemon
