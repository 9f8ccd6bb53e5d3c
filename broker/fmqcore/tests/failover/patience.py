"""Let hypothesis examples take their time on a machine that is slow or stalls.

By default hypothesis fails a test when one example takes more than 200 ms. Duration is not a
property under test here.
"""

from hypothesis import HealthCheck, settings


def be_patient() -> None:
    """Apply to all tests collected from now on; called by a `conftest.py`."""
    slow = [HealthCheck.too_slow]
    settings.register_profile("patient", settings(), deadline=None, suppress_health_check=slow)
    settings.load_profile("patient")
