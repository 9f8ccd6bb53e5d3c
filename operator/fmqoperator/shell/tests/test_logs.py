"""Warnings of libraries look like the operator's own lines, and none is about nothing."""

import logging
from collections.abc import Callable, Iterator

import pytest

from fmqoperator.shell.logs import log_everything

WARMS_UP = (
    "Request attempt #1 failed; will retry: GET https://10.0.0.1/apis/fmq.io/v1alpha1/brokerjobs "
    "-> APITooManyRequestsError('storage is (re)initializing')"
)


@pytest.fixture
def logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[[], str]]:
    """Return what reads the output of a process that has just started."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    monkeypatch.setattr("fmqoperator.shell.logs.log_to_stderr", lambda: None)
    log_everything()
    yield lambda: capfd.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)


def test_one_form(logged: Callable[[], str]) -> None:
    logging.getLogger("kopf.x").error("it %s", "broke")
    logging.getLogger("kopf.x").info("all is well")
    line = logged()
    stamp, _, rest = line.partition(" ")
    assert rest == "level=error event=kopf.x message='it broke'\n"
    assert stamp.startswith("timestamp=20")
    assert stamp.endswith("Z")
    assert "T" in stamp


def test_missing_list_is_no_error_and_a_forbidden_one_is(logged: Callable[[], str]) -> None:
    log = logging.getLogger("kopf._cogs.clients.api")
    log.error(WARMS_UP)
    assert logged() == ""
    log.error(WARMS_UP.replace("TooManyRequests", "Forbidden"))
    assert "APIForbiddenError" in logged()
