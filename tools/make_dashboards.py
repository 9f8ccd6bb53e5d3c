"""Writes the Grafana dashboards of the chart, from the table below.

python tools/make_dashboards.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "charts" / "fmq" / "files" / "dashboards"
Panel = tuple[str, str, str, str]
"""Title, unit, legend, query. `$c` is the label matcher of the chosen cluster and group."""

RATE: Final = "[$__rate_interval]"
AT_MASTER: Final = "and on (cluster, group, broker) fmq_master == 1"
LAG: Final = "(max by (cluster, group, topic, consumer_group) (fmq_consumer_lag_messages{$c}))"
"""Where a role changes, two brokers report one figure for a moment: a group's highest counts."""
STORED: Final = "(max by (cluster, group, topic) (%s " + AT_MASTER + "))"
STORED_RATE: Final = STORED % ("rate(fmq_topic_messages_total{$c}" + RATE + ")")
BOARDS: Final[dict[str, tuple[str, tuple[Panel, ...]]]] = {
    "overview": (
        "FMQ: overview",
        (
            ("Groups that take messages", "short", "{{cluster}}",
             'sum by (cluster) (max by (cluster, group) (fmq_serves{$c, operation="write"}))'),
            ("Groups that serve reads", "short", "{{cluster}}",
             'sum by (cluster) (max by (cluster, group) (fmq_serves{$c, operation="read"}))'),
            ("Messages stored a second", "short", "{{cluster}} {{topic}}",
             "sum by (cluster, topic) " + STORED_RATE),
            ("Messages still to come", "short", "{{cluster}} {{topic}} {{consumer_group}}",
             "sum by (cluster, topic, consumer_group) " + LAG),
            ("Slaves in sync", "short", "{{cluster}} {{group}}",
             "max by (cluster, group) (fmq_in_sync_slaves{$c} " + AT_MASTER + ")"
             # Without a master no slave is in sync: the value that the others remember is 0.
             " or 0 * max by (cluster, group) (fmq_in_sync_slaves{$c})"),
            ("Slaves behind", "bytes", "{{cluster}} {{slave}}",
             "max by (cluster, group, slave) (fmq_slave_lag_bytes{$c})"),
        ),
    ),
    "topics": (
        "FMQ: topics and consumers",
        (
            ("Messages stored a second, by group", "short", "{{cluster}} {{topic}} {{group}}",
             "sum by (cluster, topic, group) " + STORED_RATE),
            ("Messages ever stored", "short", "{{cluster}} {{topic}}",
             "sum by (cluster, topic) " + STORED % "fmq_topic_messages_total{$c}"),
            ("Lag by topic and consumers", "short", "{{cluster}} {{topic}} {{consumer_group}}",
             "sum by (cluster, topic, consumer_group) " + LAG),
            ("Lag by group", "short", "{{cluster}} {{group}} {{consumer_group}}",
             "sum by (cluster, group, consumer_group) " + LAG),
            # Every broker of a chain's groups reports the chain: the highest report counts.
            ("Ordered: seconds without an open segment", "s", "{{cluster}} {{topic}}",
             "max by (cluster, topic) (fmq_ordered_unavailable_seconds{$c})"),
            ("Ordered: segments", "short", "{{cluster}} {{topic}}",
             "max by (cluster, topic) (fmq_ordered_segments{$c})"),
            ("Ordered: switches a minute", "short", "{{cluster}} {{topic}} {{reason}}",
             "max by (cluster, topic, reason) (60 * rate(fmq_ordered_switches_total{$c}"
                + RATE + "))"),
            ("Ordered: ends not known", "short", "{{cluster}} {{topic}}",
             "max by (cluster, topic) (fmq_ordered_unknown_ends{$c})"),
            ("Ordered: consumer groups that cannot read on", "short", "{{cluster}} {{topic}}",
             "max by (cluster, topic) (fmq_ordered_blocked_subscriptions{$c})"),
        ),
    ),
    "failover": (
        "FMQ: replication and failover",
        (
            ("Who takes messages", "short", "{{cluster}} {{broker}}",
             'fmq_serves{$c, operation="write"}'),
            ("Who serves reads", "short", "{{cluster}} {{broker}}",
             'fmq_serves{$c, operation="read"}'),
            ("Epoch", "short", "{{cluster}} {{group}}", "max by (cluster, group) (fmq_epoch{$c})"),
            ("Mode", "short", "{{cluster}} {{group}} {{mode}}",
             "max by (cluster, group, mode) (fmq_mode{$c})"),
            ("Slaves linked", "short", "{{cluster}} {{slave}}",
             "max by (cluster, group, slave) (fmq_slave_connected{$c})"),
            ("In sync", "short", "{{cluster}} {{slave}}",
             "max by (cluster, group, slave) (fmq_slave_in_sync{$c})"),
            ("Behind", "bytes", "{{cluster}} {{slave}}",
             "max by (cluster, group, slave) (fmq_slave_lag_bytes{$c})"),
            ("ZooKeeper answers", "short", "{{cluster}} {{broker}}", "fmq_zookeeper_connected{$c}"),
            ("The policy cannot be met", "short", "{{cluster}} {{broker}}",
             "fmq_policy_unmet{$c} " + AT_MASTER),
            ("Offsets lost at a return", "short", "{{cluster}} {{group}}",
             "max by (cluster, group) (fmq_takeover_degraded{$c})"),
        ),
    ),
    "storage": (
        "FMQ: storage",
        (
            ("Journal bytes a second", "Bps", "{{cluster}} {{broker}}",
             # No counter: where a tail is cut off a journal, a rate would count all bytes as new.
             'clamp_min(deriv(fmq_journal_position_bytes{$c, at="end"}' + RATE + "), 0)"),
            ("Journal kept", "bytes", "{{cluster}} {{broker}}",
             'sum by (cluster, group, broker) (fmq_journal_position_bytes{$c, at="end"})'
             ' - sum by (cluster, group, broker) (fmq_journal_position_bytes{$c, at="start"})'),
            ("Written and not yet fsynced", "bytes", "{{cluster}} {{broker}}",
             'sum by (cluster, group, broker) (fmq_journal_position_bytes{$c, at="end"})'
             ' - sum by (cluster, group, broker) (fmq_journal_position_bytes{$c, at="durable"})'),
            ("Refuses messages for lack of room", "short", "{{cluster}} {{broker}}",
             "fmq_journal_full{$c}"),
            ("A flushed write takes", "s", "{{cluster}} {{broker}}", "fmq_probe_seconds{$c}"),
            ("Memory", "bytes", "{{cluster}} {{broker}}",
             "sum by (cluster, group, broker) (process_resident_memory_bytes"
             " * on (instance) group_left (cluster, group, broker) fmq_broker_info{$c})"),
        ),
    ),
    "operator": (
        "FMQ: operator and jobs",
        (
            ("Groups as declared", "short", "{{cluster}}",
             "sum by (cluster) (max by (cluster, group)"
             ' (fmq_operator_group_condition{type="Ready"}))'),
            ("Brokers missing", "short", "{{cluster}} {{group}}",
             "max by (cluster, group) (fmq_operator_group_brokers)"
             " - max by (cluster, group) (fmq_operator_group_ready_brokers)"),
            ("Jobs", "short", "{{type}} {{phase}}",
             "max by (type, phase) (fmq_operator_jobs_in_phase)"),
            ("Bytes given to data jobs a second", "Bps", "{{cluster}} {{broker}}",
             "sum by (cluster, group, broker) (rate(fmq_scan_bytes_total" + RATE + "))"),
            ("Replicas that work", "short", "works", "sum(fmq_operator_lease_held)"),
            ("Groups", "short", "{{pod}}", "fmq_operator_groups"),
            ("Rounds a second", "short", "{{pod}}",
             "rate(fmq_operator_reconciles_total" + RATE + ")"),
            ("Failed rounds a second", "short", "{{pod}}",
             "rate(fmq_operator_failed_reconciles_total" + RATE + ")"),
            ("Writes a second", "short", "{{pod}}",
             "rate(fmq_operator_writes_total" + RATE + ")"),
            ("Status writes a second", "short", "{{pod}}",
             "rate(fmq_operator_status_writes_total" + RATE + ")"),
            ("Longest wait of a group", "s", "{{pod}}", "fmq_operator_stalled_seconds"),
            ("Since a group was looked after", "s", "{{cluster}} {{group}}",
             "max by (cluster, group) (fmq_operator_group_unreconciled_seconds)"),
            ("Lists and watches in vain for", "s", "{{pod}}", "fmq_operator_watch_failing_seconds"),
            ("Longest round", "s", "{{pod}}", "fmq_operator_longest_reconcile_seconds"),
        ),
    ),
}  # fmt: skip
CHOSEN: Final = 'cluster=~"$cluster", group=~"$group"'


def main(arguments: list[str]) -> int:
    """See the module; with --check, 1 if a file is not as it would be written."""
    stale = []
    for name, (title, panels) in BOARDS.items():
        path, text = (
            FOLDER / f"{name}.json",
            json.dumps(board(name, title, panels), indent=1) + "\n",
        )
        if "--check" not in arguments:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    for each in stale:
        print(f"dashboards/{each} is old: python tools/make_dashboards.py", file=sys.stderr)
    return 1 if stale else 0


def board(name: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Return one dashboard."""
    variables = (
        [] if name == "operator" else [variable("cluster", ""), variable("group", "cluster")]
    )
    source = {
        "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source",
    }  # fmt: skip
    return {
        "uid": f"fmq-{name}",
        "title": title,
        "tags": ["fmq"],
        "timezone": "",
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "schemaVersion": 39,
        "templating": {"list": [source, *variables]},
        "panels": [panel(n, *each) for n, each in enumerate(panels)],
    }


def panel(n: int, title: str, unit: str, legend: str, query: str) -> dict[str, Any]:
    """Return one panel; two stand in a row."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    target = {
        "refId": "A",
        "datasource": source,
        "expr": query.replace("$c", CHOSEN),
        "legendFormat": legend,
    }
    return {
        "id": n + 1,
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": 12 * (n % 2), "y": 8 * (n // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [target],
    }


def variable(name: str, within: str) -> dict[str, Any]:
    """Return a dashboard variable: a choice among the label's values."""
    matcher = f'{{{within}=~"${within}"}}' if within else ""
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values(fmq_broker_info{matcher}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
