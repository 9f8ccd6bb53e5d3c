"""WriteRedundancy: reports beforehand what a restart, or a promotion, means for writes."""

from typing import Any

import pytest
import yaml

from fmqoperator.core.status.group import status
from fmqoperator.tests.test_chart import CHART
from fmqoperator.tests.world import running

AFTER = {"policy": "after"}


def redundancy(**spec: Any) -> tuple[str, str, str]:
    found = status(running(True, **spec).seen())
    ours = next(c for c in found["conditions"] if c["type"] == "WriteRedundancy")
    return ours["status"], ours["reason"], ours["message"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"replicas": 2}, "PausesInUpdates"),
        ({"replicas": 2, "promotion": AFTER}, "PromotionBringsNoWrites"),
        ({"replicas": 2, "policy": {"howMany": "majority"}}, "PausesInUpdates"),
        ({"replicas": 2, "policy": {"howMany": "all"}}, "PausesInUpdates"),
        ({"replicas": 2, "policy": {"howMany": "none"}}, "SlaveMayBeAway"),
        ({"replicas": 1, "policy": {"howMany": "none"}}, "Alone"),
        ({"replicas": 3}, "SlaveMayBeAway"),
        ({"replicas": 3, "promotion": AFTER}, "SlaveMayBeAway"),
        ({"replicas": 3, "policy": {"howMany": "majority"}}, "SlaveMayBeAway"),
        ({"replicas": 3, "policy": {"howMany": "all"}}, "SlaveMayBeAway"),
        ({"replicas": 3, "policy": {"howMany": "all", "strict": True}}, "PausesInUpdates"),
        ({"replicas": 3, "policy": {"howMany": "zones"}}, "PausesInUpdates"),
    ],
)
def test_policy_and_brokers_then_restart_effect_is_reported(spec: Any, reason: str) -> None:
    found = redundancy(**spec)
    assert found[:2] == ("True" if reason == "SlaveMayBeAway" else "False", reason)


def test_promotion_without_writes_then_the_condition_reports_it() -> None:
    message = redundancy(replicas=2, promotion=AFTER)[2]
    assert "the policy needs one in-sync slave" in message
    assert "after a promotion no message is accepted before" in message
    assert "set spec.replicas to 3 or more" in message


def test_admission_warnings_never_refuse() -> None:
    """The API server shows them to the person who applies the group, and accepts it."""
    text = (CHART / "files" / "admission" / "write-redundancy.yaml").read_text()
    policy, binding = yaml.safe_load_all(text)
    assert policy["spec"]["failurePolicy"] == "Ignore"
    assert binding["spec"]["validationActions"] == ["Warn"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert len(policy["spec"]["validations"]) == 2
