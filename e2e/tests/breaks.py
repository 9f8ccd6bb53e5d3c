"""Collects histories that break a promise, each with the checks that must find it."""

from collections.abc import Callable

from e2e.checks.findings import Check
from e2e.tests.kit import Kit

Break = Callable[[], Kit]
BREAKS: list[tuple[str, set[Check], Break]] = []


def breaks(*checks: Check) -> Callable[[Break], Break]:
    """Declare the checks that find the history: first its own, then those that cannot but find it
    too.
    """

    def take(build: Break) -> Break:
        BREAKS.append((build.__name__, set(checks), build))
        return build

    return take
