"""Settings for all tests."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

from tests.needs import lacking

if TYPE_CHECKING:
    import pytest

# Nothing here is about time, so a busy machine does not make a test fail. `make e2e-long` tries more examples.
settings.register_profile("quick", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell starts background jobs with these signals ignored, and all their children inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose need is not met (tests/needs.py)."""
    for mark in item.iter_markers("needs"):
        what, met = mark.args
        if not met:
            lacking(what)
