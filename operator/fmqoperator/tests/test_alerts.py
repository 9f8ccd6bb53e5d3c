"""Every alert, by promtool on made-up samples: when it fires, what it says, and when it is silent.

What live brokers say is asked of a real Prometheus on kind (`e2e/kind/prometheus.py`); here are the
times and the conditions, each with samples one step away from it.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "charts" / "fmq" / "files" / "rules.yaml"
STEP_S = 15

BROKERS = ('cluster="c",group="g",broker="g-0"', 'cluster="c",group="g",broker="g-1"')
GROUP = {"cluster": "c", "group": "g"}
BROKER = GROUP | {"broker": "g-0"}


def of(name: str, *values: str, more: str = "") -> dict[str, str]:
    """A series of a metric for each broker, in promtool's words: `0x40` is 0 and 40 times 0."""
    return {
        f"{name}{{{labels}{more}}}": series for labels, series in zip(BROKERS, values, strict=False)
    }


class Case(NamedTuple):
    """Samples, and when the alert is first seen (None: never, within an hour)."""

    alert: str
    series: dict[str, str]
    fires_s: int | None
    labels: dict[str, str] = GROUP
    summary: str = ""


def seen(name: str, more: str) -> str:
    """A series of the group, by the operator."""
    return f'fmq_operator_group_{name}{{cluster="c",group="g"{more}}}'


WRITE, READ = ',what="write"', ',what="read"'
SLAVE = ',slave="g-1"'
MUCH = 64 * 1024 * 1024
WORKS = 'fmq_operator_works{instance="%s"}'
OPERATOR = 'fmq_operator_stalled_seconds{instance="o"}'
LAG = 'fmq_consumer_lag_messages{cluster="c",group="%s",broker="%s",topic="t",consumer_group="r"}'

NEW = ',mode="NEW"'
OTHER = 'cluster="d",group="g",broker="g-0"'
"""Of the same name, in another cluster: what is said of it says nothing of this one."""

CASES = [
    Case(
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", "0x240", more=WRITE),
        60,
        summary="Group g takes no messages",
    ),
    Case("FmqGroupTakesNoWrites", of("fmq_serves", "1x240", "0x240", more=WRITE), None),
    Case("FmqGroupTakesNoWrites", of("fmq_serves", "1x3 0x3 1x240", "0x240", more=WRITE), None),
    Case(
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", "0x240", more=WRITE)
        | {f"fmq_serves{{{OTHER}{WRITE}}}": "1x240", f"fmq_mode{{{OTHER}{NEW}}}": "1x240"},
        60,
        summary="Group g takes no messages",
    ),
    Case(  # nobody has opened it yet: its first master's image is on its way
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", more=WRITE) | of("fmq_mode", "1x240", more=NEW),
        None,
    ),
    Case(
        "FmqGroupServesNoReads",
        of("fmq_serves", "0x240", more=READ) | of("fmq_mode", "1x240", more=NEW),
        None,
    ),
    Case(
        "FmqPolicyUnmet",
        of("fmq_master", "1x240", "0x240") | of("fmq_unwritable", "0x3 1x240", "0x240"),
        60 + 60,
        summary="Group g refuses messages: too few slaves are in sync",
    ),
    Case(  # of one that was master once
        "FmqPolicyUnmet",
        of("fmq_master", "1x240", "0x240") | of("fmq_unwritable", "0x240", "1x240"),
        None,
    ),
    Case(
        "FmqGroupServesNoReads",
        of("fmq_serves", "0x240", "0x240", more=READ),
        30,
        summary="Group g serves nobody",
    ),
    Case("FmqGroupServesNoReads", of("fmq_serves", "0x240", "1x240", more=READ), None),
    Case(
        "FmqTwoMasters",
        of("fmq_serves", "1x240", "0x3 1x240", more=WRITE),
        60 + 120,
        summary="Two brokers of group g say that they take messages",
    ),
    Case("FmqTwoMasters", of("fmq_serves", "1x240", "0x240", more=WRITE), None),
    Case(  # a move, half way for as long as a minute's scrapes may see it
        "FmqTwoMasters",
        of("fmq_serves", "1x8 0x240", "0x4 1x240", more=WRITE),
        None,
    ),
    Case(
        "FmqGroupUnseen",
        {seen("serves", READ): "1x3 0x240"},
        60 + 60,
        summary="No broker of group g is there",
    ),
    Case("FmqGroupUnseen", {seen("serves", READ): "1x240"}, None),
    Case(  # who is there says what it serves: another alert's
        "FmqGroupUnseen",
        {seen("serves", READ): "0x240"} | of("fmq_serves", "0x240", more=READ),
        None,
    ),
    Case("FmqGroupUnseen", {seen("serves", WRITE): "0x240"}, None),
    Case(
        "FmqGroupUnseen",
        {seen("serves", READ): "0x240", f"fmq_serves{{{OTHER}{READ}}}": "1x240"},
        60,
        summary="No broker of group g is there",
    ),
    Case(  # it has just been woken: five minutes are its own
        "FmqGroupUnseen",
        {seen("serves", READ): "_x60 0x240", seen("brokers", ""): "0x60 2x240"},
        61 * STEP_S + 300 + 60,
        summary="No broker of group g is there",
    ),
    Case(
        "FmqGroupNotReady",
        {seen("condition", ',type="Ready"'): "0x240"},
        900,
        summary="Group g is not as declared",
    ),
    Case("FmqGroupNotReady", {seen("condition", ',type="Ready"'): "0x58 1x3 0x40 1x240"}, None),
    Case(
        "FmqDamageFound",
        {seen("condition", ',type="IndexConsistent"'): "1x3 0x240"},
        60,
        summary="A check found damage in the data of group g",
    ),
    Case("FmqDamageFound", {seen("condition", ',type="IndexConsistent"'): "1x240"}, None),
    Case("FmqDamageFound", {seen("condition", ',type="Degraded"'): "0x240"}, None),
    Case(
        "FmqBrokersNotScraped",
        {seen("serves", READ): "1x240"},
        600,
        summary="Group g serves, and Prometheus sees none of its brokers",
    ),
    Case(
        "FmqBrokersNotScraped",
        {seen("serves", READ): "1x240"} | of("fmq_serves", "1x240", more=READ),
        None,
    ),
    Case("FmqOperatorAway", {}, 300, {}, "No replica of the operator works"),
    Case(
        "FmqOperatorAway",
        {WORKS % "a": "0x240", WORKS % "b": "0x240"},
        300,
        {},
        "No replica of the operator works",
    ),
    Case("FmqOperatorAway", {WORKS % "a": "0x240", WORKS % "b": "1x240"}, None),
    Case(  # one of two releases
        "FmqOperatorAway",
        {
            'fmq_operator_works{namespace="a",job="o"}': "1x240",
            'fmq_operator_works{namespace="b",job="o"}': "1x3 _x240",
        },
        # A sample counts for five minutes where a target is not seen to be gone.
        60 + 300 + 300,
        {"namespace": "b", "job": "o"},
        "No replica of the operator works",
    ),
    Case(
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240", "0x240")
        | of("fmq_in_sync_slaves", "0x240", "1x240")  # what a slave says of it may be old
        | of("fmq_slave_connected", "0x240", more=SLAVE),
        120,
        summary="No slave of group g is in sync",
    ),
    Case(
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240", "0x240")
        | of("fmq_in_sync_slaves", "1x240", "0x240")
        | of("fmq_slave_connected", "1x240", more=SLAVE),
        None,
    ),
    Case(  # it has none
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240") | of("fmq_in_sync_slaves", "0x240"),
        None,
    ),
    Case(
        "FmqSlaveLags",
        of("fmq_slave_lag_bytes", f"{MUCH + 1}x240", more=SLAVE),
        300,
        GROUP | {"slave": "g-1"},
        "Slave g-1 is 64MiB behind",
    ),
    Case("FmqSlaveLags", of("fmq_slave_lag_bytes", f"{MUCH}x240", more=SLAVE), None),
    Case(
        "FmqDiskFull",
        of("fmq_journal_refuses", "0x3 1x240", "0x240"),
        60,
        BROKER,
        "Broker g-0 refuses messages: its disk is full",
    ),
    Case("FmqDiskFull", of("fmq_journal_refuses", "0x240", "0x240"), None),
    Case(
        "FmqZooKeeperAway",
        of("fmq_zookeeper_connected", "0x240", "1x240"),
        60,
        BROKER,
        "Broker g-0 has no answer from ZooKeeper",
    ),
    Case("FmqZooKeeperAway", of("fmq_zookeeper_connected", "1x240", "1x240"), None),
    Case(  # of two groups together
        "FmqConsumersLag",
        {LAG % ("g", "g-0"): "600000x240", LAG % ("h", "h-0"): "600000x240"},
        600,
        {"cluster": "c", "topic": "t", "consumer_group": "r"},
        "Consumers r are 1.2M messages behind on t",
    ),
    Case("FmqConsumersLag", {LAG % ("g", "g-0"): "1000000x240"}, None),
    Case(
        "FmqOperatorStalls",
        {OPERATOR: "0x3 75x240"},
        120,
        {},
        "The operator has not looked at a group for 1m 15s",
    ),
    Case("FmqOperatorStalls", {OPERATOR: "60x240"}, None),
]


def told(case: Case) -> Any:
    """The case as promtool reads it: silent one step before, firing at its time."""
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


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    rules = {r["alert"] for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]}
    assert {case.alert for case in CASES if case.fires_s is not None} == rules
    assert {case.alert for case in CASES if case.fires_s is None} == rules


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
@pytest.mark.parametrize("case", CASES, ids=[f"{c.alert}-{c.fires_s}" for c in CASES])
def test_an_alert_fires_when_it_must_and_says_what(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [told(case)],
    }
    file.write_text(yaml.safe_dump(tests))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
