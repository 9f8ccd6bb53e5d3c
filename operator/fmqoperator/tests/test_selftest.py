"""The report of `helm test` on groups."""

from typing import Any

import pytest

from fmqoperator.shell.selftest import unready_reason


def body(ready: str = "True", observed: int = 2, **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "observedGeneration": observed}
    status = {"phase": "Degraded", "message": "g1-1 is away", "conditions": [condition]}
    meta = {"name": "g1", "namespace": "ns", "generation": 2}
    return {"metadata": meta, "spec": spec, "status": status}


def test_a_group_that_is_not_ready_is_named_with_its_message() -> None:
    assert unready_reason(body("False")) == "BrokerGroup ns/g1 is Degraded: g1-1 is away"
    assert unready_reason(body(observed=1)), "the operator has not seen the last change"
    new = body() | {"status": {}}
    assert "has not reconciled it yet" in unready_reason(new)


@pytest.mark.parametrize("asleep", [{}, {"paused": True}, {"hibernated": True}])
def test_a_group_that_is_ready_or_asleep_fails_no_test(asleep: dict[str, bool]) -> None:
    assert unready_reason(body("False" if asleep else "True", **asleep)) == ""
