"""Which live test causes which alert: each test declares its alerts and must cause them."""

import inspect
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from e2e.dashboards.prometheus import Prometheus, available

P = ParamSpec("P")
R = TypeVar("R")


class NotCaused(AssertionError):
    """A test that causes an alert has ended without having seen that alert fire."""


def causes(*alerts: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare that these alerts fire on a Prometheus while the test runs; else the test fails.

    Only looks by the test itself count. Without a Prometheus nothing is checked.
    """

    def held(test: Callable[P, R]) -> Callable[P, R]:
        @wraps(test)
        def run(*args: P.args, **given: P.kwargs) -> R:
            with _witnessed(frozenset(alerts)):
                return test(*args, **given)

        @wraps(test)
        async def run_async(*args: P.args, **given: P.kwargs) -> Any:
            with _witnessed(frozenset(alerts)):
                return await cast(Any, test(*args, **given))

        found = cast(Callable[P, R], run_async if inspect.iscoroutinefunction(test) else run)
        vars(found)["causes"] = alerts
        return found

    return held


def caused(module: ModuleType) -> set[str]:
    """Return the alerts that a module's tests cause: those tests that pytest finds and runs."""
    found: set[str] = set()
    for name, test in vars(module).items():
        if name.startswith("test_") and not _never_runs(module) and not _never_runs(test):
            found |= set(getattr(test, "causes", ()))
    return found


def _never_runs(marked: object) -> bool:
    marks = getattr(marked, "pytestmark", ())
    return any(mark.name in ("skip", "xfail") for mark in marks)


@contextmanager
def _witnessed(alerts: frozenset[str]) -> Iterator[None]:
    seen: set[str] = set()

    def note(firing: Set[str]) -> None:
        seen.update(firing)

    Prometheus.witnesses.append(note)
    try:
        yield
    finally:
        Prometheus.witnesses.remove(note)
    if available() and alerts - seen:
        raise NotCaused(f"these alerts did not fire: {', '.join(sorted(alerts - seen))}")
