"""Which live test causes which alert. A test says it, is held to it, and can be asked for it."""

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
    """A test that causes an alert has ended, and no look of it has found that alert firing."""


def causes(*alerts: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """On a test: while it runs, a Prometheus is seen on which these fire, or it fails.

    (It counts what the test itself looks at. Where there is no Prometheus nothing can be seen.)
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
    """The alerts that the tests of a module cause: those that pytest finds, and runs."""
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

    def look(firing: Set[str]) -> None:
        seen.update(firing)

    Prometheus.witnesses.append(look)
    try:
        yield
    finally:
        Prometheus.witnesses.remove(look)
    if available() and alerts - seen:
        raise NotCaused(f"not seen to fire: {', '.join(sorted(alerts - seen))}")
