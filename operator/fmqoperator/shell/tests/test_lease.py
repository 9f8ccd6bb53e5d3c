"""A replica's log lines about its Lease; the election itself: `test_election.py`, and on kind."""

from typing import Any, cast

import pytest
from structlog.testing import CapturingLogger

from fmqoperator.shell import lease as leases
from fmqoperator.shell.kube import Json, Kube, KubeError, Ref
from fmqoperator.shell.lease import Lease


class Refusing:
    """An API server without a Lease, which refuses to create one."""

    def __init__(self, status: int) -> None:
        self._error = KubeError(status, "", "no")

    async def get(self, _: Ref) -> Json | None:
        return None

    async def create(self, *_: Any) -> Json:
        raise self._error


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (409, [("info", "lease_contended")] * 2),  # the other replica is active
        (403, [("warning", "lease_request_failed")]),
    ],
)
async def test_lost_lease_race_logs_nothing_and_a_refusal_logs_once(
    status: int, expected: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = CapturingLogger()
    monkeypatch.setattr(leases, "_log", logger)
    lease = Lease(cast(Kube, Refusing(status)), "fmq-system", "fmq", "a")
    assert not await lease._try()
    assert not await lease._try()
    assert [(call.method_name, call.args[0]) for call in logger.calls] == expected
