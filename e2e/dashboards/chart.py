"""The chart's dashboards and rules, as queries that a Prometheus can run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = ROOT / "charts" / "fmq" / "files"
BOARDS: Final = ("overview", "topics", "failover", "storage", "operator")
OF_BROKERS: Final = BOARDS[:-1]
"""Dashboards that brokers alone fill; the last one needs the operator."""
_VARIABLES: Final = {"$cluster": ".*", "$group": ".*"}


class Panel(NamedTuple):
    """One panel of a dashboard. `legend` names a series by its labels: `{{topic}}`."""

    board: str
    title: str
    unit: str
    legend: str
    query: str


def panels(board: str, over: str = "20s") -> list[Panel]:
    """Return the panels of a dashboard, with all variables filled in and rates `over` a time."""
    made = json.loads((FILES / "dashboards" / f"{board}.json").read_text())
    return [
        Panel(
            made["title"],
            panel["title"],
            panel["fieldConfig"]["defaults"]["unit"],
            target["legendFormat"],
            _filled(target["expr"], over),
        )
        for panel in made["panels"]
        for target in panel["targets"]
    ]


def rules() -> Iterator[tuple[str, str]]:
    """Yield each alert and its expression."""
    for group in yaml.safe_load((FILES / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def eager_rules(file: Path, for_s: int) -> Path:
    """Write the rules to `file` with each waiting time limited to `for_s` seconds.

    Their own times are tested by promtool (`fmqoperator/tests/test_alerts.py`). Leaves `file`.
    """
    made = yaml.safe_load((FILES / "rules.yaml").read_text())
    for group in made["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{for_s}s"
    file.write_text(yaml.safe_dump(made))
    return file


def _filled(query: str, over: str) -> str:
    query = query.replace("$__rate_interval", over)
    for name, value in _VARIABLES.items():
        query = query.replace(name, value)
    return query
