"""A broker's metrics for Prometheus. No other module here imports prometheus-client.

Values are read from state that the parts keep anyway: nothing is counted on the hot path. Values
per queue are summed per topic, and both the sums and the text are made in short turns of the event
loop. All metrics carry the labels `cluster`, `group`, `broker`;
docs/operations/metrics.md describes them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fmqbroker.app.health import Health, Running
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import STEPS, Slices
from fmqbroker.runtime.steady_clock import clock_doubt
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.lag import acked_above, lag
from fmqcore.ids import Permission, TopicId
from fmqcore.version import VERSION
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic_numbers import conflict

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_ORDERED_STEPS: Final = 10
"""Steps (`runtime.slices`) that the figures of one ordered topic take."""
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
        """Yield the family."""
        yield self._family


def _parts(family: Family) -> Iterator[bytes]:
    """Yield the family's text in parts of some milliseconds; only the first has comments."""
    for at in range(0, max(len(family.samples), 1), STEPS):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[at : at + STEPS]
        text = generate_latest(_Of(part))
        if at:
            lines = text.splitlines(keepends=True)
            text = b"".join(line for line in lines if not line.startswith(b"# "))
        yield text


class BrokerCollector:
    """Reads the metrics of the broker's parts on request."""

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
        if health.running is not None:
            tables = (self._role, self._journal, self._replication, self._clock, self._tables)
            for families in tables:
                for family in families(health.running):
                    yield family
            async for family in self._topics(health.running):
                yield family
            for family in await self._ordered(health.running):
                yield family

    # ---- families by part
    def _role(self, r: Running) -> Iterator[Family]:
        state = r.group.state.value
        kinds = (("read", Permission.READ), ("write", Permission.WRITE))
        serves, granted = r.intake.serves(), r.gate.permission()
        yield self._by(
            "fmq_serves", "1 if it serves that now; write: it takes messages", "operation",
            [(what, bool(serves & kind)) for what, kind in kinds],
        )  # fmt: skip
        yield self._by(
            "fmq_granted", "1 if its role and its lease let it serve that at this moment",
            "operation",
            [(what, bool(granted & kind)) for what, kind in kinds],
        )  # fmt: skip
        yield self._gauge("fmq_master", "1 if it is its group's master", state.master == r.me)
        yield self._gauge("fmq_epoch", "The group's epoch as this broker knows it", state.epoch)
        yield self._by(
            "fmq_mode", "The group's mode as this broker knows it: 1 for that one", "mode",
            [(mode.value, mode is state.mode) for mode in Mode],
        )  # fmt: skip
        yield self._gauge(
            "fmq_in_sync_slaves", "How many slaves are in the in-sync set", len(state.isr)
        )
        yield self._gauge(
            "fmq_zookeeper_connected", "1 while ZooKeeper answers this broker", r.group.connected
        )
        yield self._gauge(
            "fmq_takeover_degraded", "1 after a return that lost a takeover's tail", state.degraded
        )

    def _journal(self, r: Running) -> Iterator[Family]:
        j = r.journal
        ends = [
            ("start", j.journal_start),
            ("commit", r.commit.commit_end),
            ("durable", j.durable_end),
            ("written", j.written_end),
            ("end", j.end),
        ]
        yield self._by("fmq_journal_position_bytes", "Where the journal's ends are", "at", ends)
        yield self._gauge(
            "fmq_journal_full", "1 while messages are refused for lack of room", bool(j.full)
        )
        yield self._gauge(
            "fmq_policy_unmet",
            "1 while the policy cannot be met",
            r.commit.unwritable_reason is not None,
        )

        sent = CounterMetricFamily("fmq_scan_bytes", "Stored bytes given to data jobs", labels=_OWN)
        sent.add_metric(self._labels, r.segments.sent_bytes)
        yield sent
        refused = CounterMetricFamily(
            "fmq_scans_refused", "Ranges that data jobs had to ask for again", labels=_OWN
        )
        refused.add_metric(self._labels, r.segments.refused)
        yield refused

    def _replication(self, r: Running) -> Iterator[Family]:
        if r.group.state.value.master != r.me:
            yield self._gauge(
                "fmq_upstream_connected", "1 while linked to the master", r.slave.upstream.connected
            )
            return
        slaves = {member.id for member in r.group.config.slaves}  # a removed one may be linked yet
        links = sorted((slave, link) for slave, link in r.master.links.items() if slave in slaves)
        isr, end = r.group.state.value.isr, r.journal.end
        # The lag of a slave that has not acknowledged anything yet is not known.
        lags = [(s, max(end - v.durable_end, 0)) for s, v in links if v.durable_end]
        for name, text, pairs in (
            ("connected", "1 while linked", [(slave, view.connected) for slave, view in links]),
            ("in_sync", "1 if in the in-sync set", [(slave, slave in isr) for slave, _ in links]),
            ("lag_bytes", "Behind the master's end, durably", lags),
        ):
            yield self._by(f"fmq_slave_{name}", f"Of each slave: {text}", "slave", pairs)

    def _clock(self, r: Running) -> Iterator[Family]:
        doubt = clock_doubt(r.clock) is not None
        yield self._gauge(
            "fmq_clock_in_doubt",
            "1 while nothing is deleted by age, as the clock may be wrong",
            doubt,
        )
        ahead_ms = max(r.journal.last_ms - r.clock.wall_ms(), 0)
        yield self._gauge(
            "fmq_store_time_ahead_seconds", "How far the newest store time is in the future",
            ahead_ms / 1000,
        )  # fmt: skip

    def _tables(self, r: Running) -> Iterator[Family]:
        limits, state = r.fetch.groups.state_limits, r.journal.state
        used = (("progress", limits.progress_bytes), ("producers", limits.producers))
        most = (("progress", limits.progress_room), ("producers", limits.producer_limit))
        text = "What a table of the journal's state holds: bytes of progress, entries of producers"
        yield self._by("fmq_state_used", text, "table", used)
        yield self._by("fmq_state_limit", "What it can hold at most", "table", most)
        for name, help_text, count in (
            (
                "fmq_producers_forgotten",
                "Producers of a queue that had to go within a day: their retries are not known",
                state.forgotten_producers,
            ),
            (
                "fmq_idle_groups_forgotten",
                "Consumer groups of a topic whose progress went as they had no members for long",
                r.idle_groups.forgotten,
            ),
        ):
            family = CounterMetricFamily(name, help_text, labels=_OWN)
            family.add_metric(self._labels, count)
            yield family

    async def _ordered(self, r: Running) -> tuple[Family, ...]:
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
        for topic, figures, by_reason in r.ordered:
            await slices.step(_ORDERED_STEPS)
            of = (*self._labels, topic)
            segments.add_metric(of, figures.segments)
            unavailable.add_metric(of, figures.unavailable_s)
            blocked.add_metric(of, figures.blocked_subscriptions)
            unknown.add_metric(of, figures.unknown_ends)
            for reason, count in by_reason.items():
                switches.add_metric((*of, reason), count)
        return segments, unavailable, blocked, unknown, switches

    async def _topics(self, r: Running) -> AsyncIterator[Family]:
        stored, slices = dict[TopicId, int](), Slices()
        for (topic_id, _), offset in list(r.journal.state.next_offsets.items()):
            await slices.step()
            stored[topic_id] = stored.get(topic_id, 0) + offset
        # A tail that was never acknowledged may be truncated. Prometheus takes a falling counter
        # as reset: it would add all messages ever stored to the rate.
        self._stored = {t: max(count, self._stored.get(t, 0)) for t, count in stored.items()}
        total = CounterMetricFamily(
            "fmq_topic_messages", "Messages ever stored here", labels=(*_OWN, "topic")
        )
        noted = r.journal.state.topics
        topics = sorted(
            (topic.name, of)
            for of, topic in r.view.topics_by_id.items()
            if conflict(topic, noted) is None
        )
        for name, of in topics:
            await slices.step()
            if of in self._stored:
                total.add_metric((*self._labels, name), self._stored[of])
        yield total
        if r.gate.permission() & Permission.READ:
            for family in await self._consumers(r):
                yield family

    async def _consumers(self, r: Running) -> tuple[Family, ...]:
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
        for topic_id in r.offsets.topics():
            for group in r.offsets.groups_in(topic_id):
                topic = r.view.topics_by_id.get(topic_id)
                here = topic.queues_in(r.group.config.group) if topic is not None else 0
                queues = [q for q in r.offsets.queues_of(group, topic_id) if q < here]
                await slices.step(1 + len(queues) // 4)
                if topic is None or not queues or conflict(topic, r.journal.state.topics):
                    continue
                if r.offsets.is_temporary(group, topic_id):  # no consumer waits for it to catch up
                    continue
                total = 0
                for queue in queues:
                    await slices.step()
                    total += self._lag(r, OffsetKey(group, topic_id, queue))
                of = (*self._labels, topic.name, group)
                live = r.fetch.groups.get(group, topic_id)
                behind.add_metric(of, total)
                members.add_metric(of, 0 if live is None else len(live.sessions))
        return behind, members

    def _lag(self, r: Running, key: OffsetKey) -> int:
        entry = r.offsets.get(key)
        if entry is None or entry.deleted:
            return 0
        begin = r.journal.begin_offset(key.topic_id, key.queue_id)
        end = r.fetch.groups.committed(key.topic_id, key.queue_id)
        topic, chains = r.view.topics_by_id.get(key.topic_id), r.fetch.groups.chains
        if topic is not None and topic.ordered and chains is not None:
            return chains.to_come(key.group, key.topic_id, key.queue_id, entry, begin, end)
        return lag(entry.floor, begin, end, acked_above(entry, begin, end))

    # ---- making families
    def _gauge(self, name: str, text: str, value: float) -> Family:
        family = GaugeMetricFamily(name, text, labels=_OWN)
        family.add_metric(self._labels, float(value))
        return family

    def _by(self, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
        family = GaugeMetricFamily(name, text, labels=(*_OWN, label))
        for of, value in values:
            family.add_metric((*self._labels, of), float(value))
        return family
