"""Hostile workloads and clients: whatever they do, the daemon answers others at once and loses nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.daemon import needs_two_cpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.daemon import Daemon

pytestmark = [needs_two_cpus]

AT_ONCE = 1.0
"""Seconds within which another request is answered on a machine that is busy with other things."""


def slowest_while(host: Daemon, act: Callable[[], object]) -> float:
    """Return how long the slowest of the requests took that were made while *act* ran in a thread."""
    acting = threading.Thread(target=act)
    acting.start()
    slowest = 0.0
    while acting.is_alive():
        start = time.monotonic()
        host.client.get("/v1/node")
        slowest = max(slowest, time.monotonic() - start)
        acting.join(0.01)
    return slowest


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: " + "0" * 30_000 + "x", id="30 kB of zeros"),
        pytest.param("\n".join(f"k{number}: 1" for number in range(1_000_000)), id="a million keys"),
        pytest.param("[" + "1," * 1_000_000 + "1]", id="a million numbers"),
    ],
)
def test_a_file_that_is_hard_to_parse_does_not_keep_others_waiting(host: Daemon, text: str) -> None:
    def apply() -> None:
        with pytest.raises(PinfoldError):
            host.apply(text)

    assert slowest_while(host, apply) < AT_ONCE
