"""Every alert is caused by a live test that fails if it does not see that alert fire."""

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from e2e.dashboards import alert_causes as causing
from e2e.dashboards.alert_causes import NotCaused, caused, causes
from e2e.dashboards.chart import rules
from e2e.dashboards.prometheus import Prometheus

LIVE = (
    "e2e.dashboards.tests.test_live",
    "e2e.kind.test_alerts",
    "e2e.kind.test_many_groups",
    "e2e.kind.test_operator_rights",
)


def test_every_alert_is_caused_here_or_on_kind() -> None:
    found = {alert for name in LIVE for alert in caused(import_module(name))}
    assert found == {name for name, _ in rules()}


class Alerting(Prometheus):
    """A Prometheus on which an alert is in a state."""

    def __init__(self, name: str, state: str = "firing") -> None:
        super().__init__(0)
        self._alert = {"labels": {"alertname": name}, "state": state}

    def _get(self, what: str) -> Any:
        return {"data": {"alerts": [self._alert]}}


@pytest.fixture(autouse=True)
def there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causing, "available", lambda: True)


@pytest.mark.parametrize(
    ("looked_at", "passes"),
    [
        ([Alerting("FmqA"), Alerting("FmqB")], True),
        ([Alerting("FmqA"), Alerting("FmqB", "pending")], False),
        ([Alerting("FmqA")], False),
        ([], False),
    ],
)
async def test_alert_not_seen_firing_then_the_test_fails(
    looked_at: list[Alerting], passes: bool
) -> None:
    def looks(n: int) -> int:
        for found in looked_at:
            found.alerts(pending=True)
        return n

    async def later(n: int) -> int:
        return looks(n)

    if passes:
        assert causes("FmqA", "FmqB")(looks)(7) == 7
        assert await causes("FmqA", "FmqB")(later)(7) == 7
    else:
        with pytest.raises(NotCaused, match=r"did not fire: .*FmqB"):
            causes("FmqA", "FmqB")(looks)(7)
        with pytest.raises(NotCaused, match=r"did not fire: .*FmqB"):
            await causes("FmqA", "FmqB")(later)(7)
    assert Prometheus.witnesses == []


def test_alert_seen_by_another_test_does_not_count() -> None:
    causes("FmqA")(lambda: Alerting("FmqA").alerts())()
    with pytest.raises(NotCaused):
        causes("FmqA")(lambda: None)()


def test_only_tests_that_are_run_count() -> None:
    module = ModuleType("test_some")
    each = {
        "test_a": causes("FmqA")(lambda: None),
        "test_b": pytest.mark.skip(causes("FmqB")(lambda: None)),
        "was_test_c": causes("FmqC")(lambda: None),
        "test_d": lambda: "FmqD",
    }
    vars(module).update(each)
    assert caused(module) == {"FmqA"}
    vars(module)["pytestmark"] = [pytest.mark.skip]
    assert caused(module) == set()
