"""Settings for all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: nothing here is about time.
settings.register_profile("pinfold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pinfold")

# A shell starts a background job with these ignored, and everything that is started from there inherits that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
