"""Which topics and batches this broker takes, and how much may wait for acks in all its sessions.

Appended to the journal here: a topic's CONFIG, before its first batch.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.journal.state_limits import StateLimits
from fmqbroker.produce.intake import Intake
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate, stopping_refusal
from fmqcore import errors
from fmqcore.batch.control import encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import KNOWN_ATTRS, Attrs, BatchType
from fmqcore.ids import GroupName, Permission, TopicId
from fmqcore.ordered.copies import keep_copy
from fmqcore.properties import NONE
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

_log = structlog.get_logger()

LEVELS: Final = frozenset(client_pb2.AckLevel.values())
_REFRESH_S: Final = 1.0
"""Time limit for asking ZooKeeper about a topic that may have just been created elsewhere."""


class Admission:
    """What all produce sessions of a broker share, and the checks that each batch passes."""

    def __init__(
        self,
        journal: Journal,
        commit: CommitFrontier,
        gate: Gate,
        view: ClusterView,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self.journal = journal
        self.commit = commit
        self.gate = gate
        self.view = view
        self.settings = settings
        self.clock = clock
        self.waiting_bytes = 0  # of all sessions: appended, not yet acknowledged
        self.released = Signal()  # `waiting_bytes` fell
        self.intake = Intake(gate, commit, journal)
        self._group = GroupName(settings.group)
        self.limits = StateLimits(settings, journal)
        self._queues: dict[int, tuple[TopicConfig, int]] = {}  # whose CONFIG is in the journal
        self._queues_of_epoch = journal.epoch  # a journal is only ever cut between two epochs

    def is_sole_writer(self) -> bool:
        """Return whether no broker appends messages now unless this one does."""
        return self.gate.is_master() and not self.intake.stopping

    def topic_of(self, name: str) -> TopicConfig:
        """Return the topic of that name; raise `UnknownTopic` without one."""
        topic = self.view.topics.get(name)
        if topic is None:
            raise errors.UnknownTopic(f"there is no topic {name!r}: create it first")
        return topic

    async def find_topics(self, names: Iterable[str]) -> None:
        """Search ZooKeeper for topics that the view lacks; without an answer it stays as it is."""
        await self._search(self.view.find_topics(*names))

    async def find_ids(self, ids: Iterable[int]) -> None:
        """Search ZooKeeper for the topics with these numbers, likewise."""
        await self._search(self.view.find_ids(map(TopicId, ids)))

    async def _search(self, search: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_REFRESH_S):
                await search
        except (errors.Unavailable, TimeoutError):
            _log.info("topics_not_refreshed")

    def require_write(self) -> None:
        """Raise `NoPermission` if this broker is stopping or may not serve writes."""
        if self.intake.stopping:
            raise stopping_refusal()
        self.gate.require(Permission.WRITE)

    def is_full(self) -> bool:
        """Return whether too many bytes wait for acks or for the disk to read any stream."""
        limit = self.settings.total_window_bytes
        unwritten = self.journal.end - self.journal.written_end
        return self.waiting_bytes > limit or unwritten > limit

    def require_ordered(self, topic_id: TopicId) -> int:
        """Raise unless batches of this ordered topic are taken now; return its queue count."""
        self.require_write()
        return self.queues_of(topic_id, ordered=True)

    def queues_of(self, topic_id: TopicId, *, ordered: bool = False) -> int:
        """Return the topic's queue count in this group; append its CONFIG first if needed.

        Raises `UnknownTopic`, `InvalidArgument` if the topic is of the other kind, or the conflict
        between the topic and the journal.
        """
        if self._queues_of_epoch != self.journal.epoch:
            self._queues.clear()
            self._queues_of_epoch = self.journal.epoch
        topic = self.view.topics_by_id.get(topic_id)
        if topic is not None and topic.ordered != ordered:  # also of a known one: K3
            raise _other_kind(topic)
        known = self._queues.get(topic_id)
        if known is not None and known[0] is topic:
            return known[1]
        if topic is None:
            raise errors.UnknownTopic(f"no topic with id {topic_id}: it may have been deleted")
        queues = self.queues_here(topic)
        state = self.journal.state
        noted = state.topic_properties.get(topic_id, NONE)
        if (reason := conflict(topic, state.topics)) is not None:
            raise reason
        properties = keep_copy(topic.noted_properties, noted) if ordered else topic.noted_properties
        if (state.topics.get(topic_id), noted) != ((topic.name, queues), properties):
            payload = encode_topic(topic_id, topic.name, queues, properties)
            self.journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))
        self._queues[topic_id] = (topic, queues)
        return queues

    def check(self, batch: client_pb2.ProduceBatch) -> None:
        """Validate a batch without parsing its columns; raise a typed error if it is invalid."""
        payload, count, settings = batch.payload, batch.record_count, self.settings
        size = len(payload)
        if size > settings.max_payload_bytes or count > settings.max_records:
            raise errors.TooLarge(
                f"a batch of {size} bytes and {count} records is too large: this broker takes at "
                f"most {settings.max_payload_bytes} bytes and {settings.max_records} records"
            )
        if batch.attrs & ~KNOWN_ATTRS:
            if batch.attrs & Attrs.CODEC_MASK:
                raise errors.Unsupported(
                    f"codec {batch.attrs & Attrs.CODEC_MASK} of the batch is not supported: send "
                    "it uncompressed"
                )
            raise errors.Malformed(f"attrs {batch.attrs:#06x} of the batch has unknown bits")
        if not count or size < 4 * (count + 1):
            raise errors.Malformed(
                f"a payload of {size} bytes is too short for {count} records: the client encoded "
                "the batch wrongly"
            )
        if batch.deliver_at_ms:
            raise errors.Unsupported(
                "deliver_at_ms is set, but this version delivers at once only: leave it out"
            )
        if batch.ack not in LEVELS:
            raise errors.Unsupported(f"ack level {batch.ack} of the batch is not supported")
        if crc32c(payload) != batch.payload_crc:
            raise errors.BadCrc(f"the payload's CRC32C is not {batch.payload_crc:#010x}")
        if self.waiting_bytes > 2 * settings.total_window_bytes:
            raise errors.Overloaded(
                f"{self.waiting_bytes} bytes of all producers wait in this broker, over twice "
                "total_window_bytes: send again later"
            )

    def queues_here(self, topic: TopicConfig) -> int:
        """Return the topic's queue count in this group; raise `UnknownTopic` if it has none."""
        queues = topic.queues_in(self._group)
        if not queues:
            raise errors.UnknownTopic(f"topic {topic.name} has no queue in group {self._group}")
        return queues


def require_ordinary(topic: TopicConfig) -> None:
    """Refuse ordinary batches of an ordered topic: offsets and sequences would drift apart (K3)."""
    if topic.ordered:
        raise _other_kind(topic)


def _other_kind(topic: TopicConfig) -> errors.InvalidArgument:
    if topic.ordered:
        return errors.InvalidArgument(
            f"topic {topic.name} is ordered: it takes the sends of one active sender; use "
            "`ordered_producer` (fmq produce --ordered), not an ordinary producer"
        )
    return errors.InvalidArgument(f"topic {topic.name} is not ordered: use an ordinary producer")
