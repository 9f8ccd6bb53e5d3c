"""A broker's metrics for Prometheus. No other module here imports prometheus-client.

Values come from the broker snapshot alone; the text is made in short turns of the event loop. All
metrics carry the labels `cluster`, `group`, `broker`; docs/operations/metrics.md describes them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fmqbroker.admin.snapshot import BrokerSnapshot, ConsumerLag, TopicsSnapshot
from fmqbroker.app.health import Health
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import STEPS, Slices
from fmqcore.ids import Permission, TopicId
from fmqcore.version import VERSION
from fmqcore.zk.group_state import Mode

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_OWN: Final = ("cluster", "group", "broker")
Family = GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily


class Metrics:
    """The metrics of one broker, as text."""

    def __init__(self, settings: BrokerSettings, health: Health) -> None:
        self._broker = BrokerCollector(settings, health)
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    async def text(self) -> bytes:
        """Return the current metrics in Prometheus' text format."""
        parts = [generate_latest(self._process)]
        async for family in self._broker.families():
            for part in _parts(family):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts)


class _Of(Collector):
    """A collector of one family, as `generate_latest` requires it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield the one metric family that this collector serves."""
        yield self._family


def _parts(family: Family) -> Iterator[bytes]:
    """Yield the family's text in parts of some milliseconds; only the first has comments.

    The family loses its samples: freeing some hundred thousand at once takes a long turn, too.
    """
    samples, family.samples = family.samples[::-1], []
    first = True
    while samples or first:
        part = Metric(family.name, family.documentation, family.type)
        part.samples = samples[: -STEPS - 1 : -1]
        del samples[-STEPS:]
        text = generate_latest(_Of(part))
        if not first:
            lines = text.splitlines(keepends=True)
            text = b"".join(line for line in lines if not line.startswith(b"# "))
        first = False
        yield text


class BrokerCollector:
    """Makes the metrics of a broker snapshot on request."""

    def __init__(self, settings: BrokerSettings, health: Health) -> None:
        self._labels = (settings.cluster, settings.group, settings.broker)
        self._health = health
        self._stored: dict[TopicId, int] = {}  # the most ever seen

    async def families(self) -> AsyncIterator[Family]:
        """Yield all families; before the broker has joined its group, only those about itself."""
        health = self._health
        info = InfoMetricFamily("fmq_broker", "This broker", labels=_OWN)
        info.add_metric(self._labels, {"version": VERSION})
        yield info
        yield self._gauge(
            "fmq_broker_running", "1 once it has arrived in its group", not health.stage
        )
        if health.probe_ms >= 0:
            yield self._gauge(
                "fmq_probe_seconds", "How long the last probe's flushed write took",
                health.probe_ms / 1000,
            )  # fmt: skip
        if health.snapshots is not None:
            broker = health.snapshots.take()
            tables = (self._role, self._journal, self._replication, self._clock, self._tables)
            for families in tables:
                for family in families(broker):
                    yield family
            topics = await health.snapshots.topics()
            yield await self._messages(topics)
            if topics.consumers is not None:
                for family in await self._consumers(topics.consumers):
                    yield family
            for family in await self._ordered(topics):
                yield family

    # ---- families by part
    def _role(self, b: BrokerSnapshot) -> Iterator[Family]:
        state = b.state
        kinds = (("read", Permission.READ), ("write", Permission.WRITE))
        yield self._by(
            "fmq_serves", "1 if it serves that now; write: it takes messages", "operation",
            [(what, bool(b.serves & kind)) for what, kind in kinds],
        )  # fmt: skip
        yield self._by(
            "fmq_granted", "1 if its role and its lease let it serve that at this moment",
            "operation",
            [(what, bool(b.granted & kind)) for what, kind in kinds],
        )  # fmt: skip
        yield self._gauge("fmq_master", "1 if it is its group's master", state.master == b.broker)
        yield self._gauge("fmq_epoch", "The group's epoch as this broker knows it", state.epoch)
        yield self._by(
            "fmq_mode", "The group's mode as this broker knows it: 1 for that one", "mode",
            [(mode.value, mode is state.mode) for mode in Mode],
        )  # fmt: skip
        yield self._gauge(
            "fmq_in_sync_slaves", "How many slaves are in the in-sync set", len(state.isr)
        )
        yield self._gauge(
            "fmq_zookeeper_connected", "1 while ZooKeeper answers this broker",
            b.zookeeper_connected,
        )  # fmt: skip
        yield self._gauge(
            "fmq_takeover_degraded", "1 after a return that lost a takeover's tail", state.degraded
        )

    def _journal(self, b: BrokerSnapshot) -> Iterator[Family]:
        ends = b.positions._asdict().items()
        yield self._by("fmq_journal_position_bytes", "Where the journal's ends are", "at", ends)
        yield self._gauge(
            "fmq_journal_full", "1 while messages are refused for lack of room",
            bool(b.disk_full_reason),
        )  # fmt: skip
        yield self._gauge(
            "fmq_policy_unmet",
            "1 while the policy cannot be met",
            b.unwritable_reason is not None,
        )
        yield self._count("fmq_scan_bytes", "Stored bytes given to data jobs", b.scanned_bytes)
        yield self._count(
            "fmq_scans_refused", "Ranges that data jobs had to ask for again", b.refused_scans
        )

    def _replication(self, b: BrokerSnapshot) -> Iterator[Family]:
        if b.state.master != b.broker:
            yield self._gauge(
                "fmq_upstream_connected", "1 while linked to the master", b.upstream_connected
            )
            return
        slaves, end = b.slaves, b.positions.end
        # The lag of a slave that has not acknowledged anything yet is not known.
        lags = [(s.broker, max(end - s.durable_end, 0)) for s in slaves if s.durable_end]
        for name, text, pairs in (
            ("connected", "1 while linked", [(s.broker, s.connected) for s in slaves]),
            ("in_sync", "1 if in the in-sync set", [(s.broker, s.in_sync) for s in slaves]),
            ("lag_bytes", "Behind the master's end, durably", lags),
        ):
            yield self._by(f"fmq_slave_{name}", f"Of each slave: {text}", "slave", pairs)

    def _clock(self, b: BrokerSnapshot) -> Iterator[Family]:
        yield self._gauge(
            "fmq_clock_in_doubt",
            "1 while nothing is deleted by age, as the clock may be wrong",
            b.clock_doubt is not None,
        )
        yield self._gauge(
            "fmq_store_time_ahead_seconds", "How far the newest store time is in the future",
            b.store_time_ahead_ms / 1000,
        )  # fmt: skip

    def _tables(self, b: BrokerSnapshot) -> Iterator[Family]:
        tables = b.tables
        used = (("progress", tables.progress_bytes), ("producers", tables.producers))
        most = (("progress", tables.progress_room), ("producers", tables.producer_limit))
        text = "What a table of the journal's state holds: bytes of progress, entries of producers"
        yield self._by("fmq_state_used", text, "table", used)
        yield self._by("fmq_state_limit", "What it can hold at most", "table", most)
        yield self._count(
            "fmq_producers_forgotten",
            "Producers of a queue that had to go within a day: their retries are not known",
            tables.forgotten_producers,
        )
        yield self._count(
            "fmq_idle_groups_forgotten",
            "Consumer groups of a topic whose progress went as they had no members for long",
            tables.forgotten_groups,
        )

    # ---- families by topic
    async def _ordered(self, topics: TopicsSnapshot) -> tuple[Family, ...]:
        labels, slices = (*_OWN, "topic"), Slices()
        segments, unavailable, blocked, unknown = (
            GaugeMetricFamily(f"fmq_ordered_{name}", text, labels=labels)
            for name, text in (
                ("segments", "Segments of an ordered topic's chain"),
                ("unavailable_seconds", "How long a sender here has waited for an open segment"),
                ("blocked_subscriptions", "Consumer groups that stop before an unknown end"),
                ("unknown_ends", "Segments whose end is not known"),
            )
        )
        switches = CounterMetricFamily(
            "fmq_ordered_switches", "Segments closed, by reason", labels=(*labels, "reason")
        )
        for topic, figures, by_reason in topics.ordered:
            await slices.step()
            of = (*self._labels, topic)
            segments.add_metric(of, figures.segments)
            unavailable.add_metric(of, figures.unavailable_s)
            blocked.add_metric(of, figures.blocked_subscriptions)
            unknown.add_metric(of, figures.unknown_ends)
            for reason, count in by_reason.items():
                switches.add_metric((*of, reason), count)
        return segments, unavailable, blocked, unknown, switches

    async def _messages(self, topics: TopicsSnapshot) -> Family:
        # A tail that was never acknowledged may be truncated. Prometheus takes a falling counter
        # as reset: it would add all messages ever stored to the rate.
        self._stored = {t: max(n, self._stored.get(t, 0)) for t, n in topics.stored.items()}
        total = CounterMetricFamily(
            "fmq_topic_messages", "Messages ever stored here", labels=(*_OWN, "topic")
        )
        slices = Slices()
        for name, of in topics.names:
            await slices.step()
            if of in self._stored:
                total.add_metric((*self._labels, name), self._stored[of])
        return total

    async def _consumers(self, consumers: Sequence[ConsumerLag]) -> tuple[Family, ...]:
        labels = (*_OWN, "topic", "consumer_group")
        behind = GaugeMetricFamily(
            "fmq_consumer_lag_messages",
            "Messages stored here that are still to come to a consumer group",
            labels=labels,
        )
        members = GaugeMetricFamily(
            "fmq_consumer_members", "Sessions of a consumer group here", labels=labels
        )
        slices = Slices()
        for found in consumers:
            await slices.step()
            of = (*self._labels, found.topic, found.group)
            behind.add_metric(of, found.behind)
            members.add_metric(of, found.members)
        return behind, members

    # ---- making families
    def _gauge(self, name: str, text: str, value: float) -> Family:
        family = GaugeMetricFamily(name, text, labels=_OWN)
        family.add_metric(self._labels, float(value))
        return family

    def _count(self, name: str, text: str, value: float) -> Family:
        family = CounterMetricFamily(name, text, labels=_OWN)
        family.add_metric(self._labels, value)
        return family

    def _by(self, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
        family = GaugeMetricFamily(name, text, labels=(*_OWN, label))
        for of, value in values:
            family.add_metric((*self._labels, of), float(value))
        return family
