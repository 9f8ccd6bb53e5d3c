"""Examples that hypothesis draws, on a machine that is slow or stands still for a moment.

By itself hypothesis gives each example 200 ms, and fails a test whose example took longer once.
How long something takes is no property of what is tested so.
"""

from hypothesis import HealthCheck, settings


def be_patient() -> None:
    """For all that is collected from now on; a `conftest.py` says so."""
    slow = [HealthCheck.too_slow]
    settings.register_profile("patient", settings(), deadline=None, suppress_health_check=slow)
    settings.load_profile("patient")
