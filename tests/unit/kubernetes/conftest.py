"""A certificate for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cluster import certificate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def cert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate of 127.0.0.1 with its key."""
    return certificate(tmp_path_factory.mktemp("cert"))
