"""Every alert, by promtool on made-up samples: when it fires, its text, and when it is silent.

The metrics of live brokers are checked by a real Prometheus on kind (`e2e/kind/prometheus.py`);
here are times and conditions, each with samples one step away from it (`alert_cases.py`).
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqoperator.tests.alert_cases import CASES
from fmqoperator.tests.alert_samples import STEP_S, Case

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "charts" / "fmq" / "files" / "rules.yaml"
DASHBOARDS = RULES.parent / "dashboards"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)"
)


def promtool_case(case: Case) -> Any:
    """Return the case for promtool: silent one step before, firing at its time."""
    rule = next(
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == case.alert
    )
    looks: list[dict[str, Any]] = []
    if case.fires_s is None:
        looks = [{"eval_time": f"{at}s", "exp_alerts": []} for at in (STEP_S, 300, 3540)]
    else:
        expected = {
            "exp_labels": rule["labels"] | case.labels,
            "exp_annotations": rule["annotations"] | {"summary": case.summary},
        }
        looks = [
            {"eval_time": f"{case.fires_s - STEP_S}s", "exp_alerts": []},
            {"eval_time": f"{case.fires_s}s", "exp_alerts": [expected]},
        ]
    return {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": s, "values": v} for s, v in sorted(case.series.items())],
        "alert_rule_test": [{"alertname": case.alert, **look} for look in looks],
    }


def test_every_alert_has_a_firing_and_a_silent_case() -> None:
    rules = {r["alert"] for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]}
    assert {case.alert for case in CASES if case.fires_s is not None} == rules
    assert {case.alert for case in CASES if case.fires_s is None} == rules


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=[f"{c.alert}-{c.fires_s}" for c in CASES])
def test_alert_fires_when_it_must_and_names_the_cause(case: Case, tmp_path: Path) -> None:
    looks = {"rule_files": [str(RULES)], "tests": [promtool_case(case)]}
    promtool(tmp_path, looks)


@needs_promtool
def test_journal_with_a_truncated_tail_shows_no_burst_of_bytes(tmp_path: Path) -> None:
    """A broker came back with a lower position: `rate` takes that for a new start at 0."""
    panels = json.loads((DASHBOARDS / "storage.json").read_text())["panels"]
    [panel] = [p for p in panels if p["title"] == "Journal bytes a second"]
    query = panel["targets"][0]["expr"].replace("$__rate_interval", "1m")
    labels = 'cluster="c",group="g",broker="g-0",at="end"'
    look = {
        "expr": query.replace("$cluster", "c").replace("$group", "g"),
        "eval_time": "60s",
        "exp_samples": [{"labels": f"{{{labels}}}", "value": 0}],
    }
    series = f"fmq_journal_position_bytes{{{labels}}}"
    kept = [{"series": series, "values": "80000000000x2 79999999000x9"}]
    test = {"interval": f"{STEP_S}s", "input_series": kept, "promql_expr_test": [look]}
    promtool(tmp_path, {"tests": [test]})


SUMS = [
    (board, panel["title"], panel["targets"][0]["expr"])
    for board in ("overview", "topics", "operator")
    for panel in json.loads((DASHBOARDS / f"{board}.json").read_text())["panels"]
    if panel["targets"][0]["expr"].startswith("sum by (cluster")
    and "fmq_scan_bytes_total" not in panel["targets"][0]["expr"]  # each broker has sent its own
]


@needs_promtool
@pytest.mark.parametrize("query", [s[2] for s in SUMS], ids=[f"{s[0]}: {s[1]}" for s in SUMS])
def test_figure_that_two_report_counts_once(query: str, tmp_path: Path) -> None:
    """While a role changes hands, the samples of both brokers (or operators) are current."""
    query = query.replace("$__rate_interval", "1m").replace("$cluster", "c").replace("$group", "g")
    more = 'topic="t",consumer_group="r",operation="%s",type="Ready"'
    names = sorted(set(re.findall(r"\bfmq_\w+", query)))
    series = [
        {
            "series": f'{name}{{cluster="c",group="g",broker="{broker}",{more % operation}}}',
            "values": "0+15x9" if name.endswith("_total") else "1x9",
        }
        for name in names
        for broker in ("g-0", "g-1")
        for operation in ("read", "write")
    ]
    expected = 60 if "total" in query and "rate" not in query else 1
    one = {
        "expr": f"count(({query}) == {expected})",
        "eval_time": "60s",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }
    test = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": [one]}
    promtool(tmp_path, {"tests": [test]})


def promtool(folder: Path, tests: dict[str, Any]) -> None:
    """Run promtool's own tests of rules and queries."""
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": f"{STEP_S}s"} | tests))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
