"""The building blocks of the samples in `alert_cases.py`."""

from typing import NamedTuple

STEP_S = 15

BROKERS = ('cluster="c",group="g",broker="g-0"', 'cluster="c",group="g",broker="g-1"')
GROUP = {"cluster": "c", "group": "g"}
BROKER = GROUP | {"broker": "g-0"}


def of(name: str, *values: str, more: str = "") -> dict[str, str]:
    """Return a metric's series for each broker, in promtool's notation: `0x40` is 0, 40 times."""
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
    """Return the name of a series that the operator exports for the group."""
    return f'fmq_operator_group_{name}{{cluster="c",group="g"{more}}}'


WRITE, READ = ',operation="write"', ',operation="read"'
SLAVE = ',slave="g-1"'
PROGRESS = ',table="progress"'
MUCH = 64 * 1024 * 1024
WORKS = 'fmq_operator_lease_held{instance="%s"}'
OPERATOR = 'fmq_operator_stalled_seconds{instance="o"}'
LAG = 'fmq_consumer_lag_messages{cluster="c",group="%s",broker="%s",topic="t",consumer_group="r"}'
MEMBERS = LAG.replace("lag_messages", "members")

ORDERED = 'fmq_ordered_%s{cluster="c",group="g",broker="%s",topic="t"}'
"""A figure of an ordered topic, as one broker reports it."""
TOPIC = 'fmq_operator_topic_ready{cluster="c",topic="t"}'
JOB = 'fmq_operator_job_failed{job_namespace="n",group="g",broker_job="j"}'
BLIND = 'fmq_operator_watch_failing_seconds{namespace="n",job="o",pod="%s"}'
NEGLECTED = (
    'fmq_operator_group_unreconciled_seconds{cluster="c",group="%s",namespace="n",job="o",pod="a"}'
)
RELEASE = {"namespace": "n", "job": "o"}

NEW, ITS = ',mode="NEW"', ',mode="MASTER"'
OTHER = 'cluster="d",group="g",broker="g-0"'
"""A group of the same name in another cluster: its samples say nothing about this one."""


def slave_alone(linked: str, mode: str = ITS, **values: str) -> dict[str, str]:
    """Return the samples of a slave whose master is not scraped. The slave serves nothing."""
    names = {
        f'fmq_serves{{{BROKERS[1]},operation="{what}"}}': "0x240" for what in ("read", "write")
    }
    of_slave = {"broker_info": "1x240", "master": "0x240", "upstream_connected": linked} | values
    return (
        names
        | {f"fmq_{name}{{{BROKERS[1]}}}": value for name, value in of_slave.items()}
        | {f"fmq_mode{{{BROKERS[1]}{mode}}}": "1x240"}
    )
