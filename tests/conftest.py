"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: nothing here is about time.
settings.register_profile("pinfold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pinfold")
