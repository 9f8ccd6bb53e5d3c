"""Warnings of libraries look like the operator's own lines, and none is about nothing."""

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from fmqoperator.shell.logs import log_everything

WARMS_UP = (
    "Request attempt #1 failed; will retry: GET https://10.0.0.1/apis/fmq.io/v1alpha1/brokerjobs "
    "-> APITooManyRequestsError('storage is (re)initializing')"
)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return the output of a process that has just started."""
    out, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr("fmqoperator.shell.logs.log_to_stderr", lambda: None)
    log_everything()
    yield out
    root.handlers[:] = handlers
    root.setLevel(level)


def test_one_form(logged: io.StringIO) -> None:
    logging.getLogger("kopf.x").error("it %s", "broke")
    logging.getLogger("kopf.x").info("all is well")
    line = logged.getvalue()
    stamp, _, rest = line.partition(" ")
    assert rest == "level=error event=kopf.x message='it broke'\n"
    assert stamp.startswith("timestamp=20")
    assert stamp.endswith("Z")
    assert "T" in stamp


def test_missing_list_is_no_error_and_a_forbidden_one_is(logged: io.StringIO) -> None:
    log = logging.getLogger("kopf._cogs.clients.api")
    log.error(WARMS_UP)
    assert logged.getvalue() == ""
    log.error(WARMS_UP.replace("TooManyRequests", "Forbidden"))
    assert "APIForbiddenError" in logged.getvalue()
