"""Return values of the admin: plain frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fmqcore.consume.offsets.lag import lag
from fmqcore.errors import Malformed
from fmqcore.ids import Permission
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json
from fmqcore.zk.topic import TopicConfig as TopicInfo
from fmqproto.v1 import admin_pb2

NO_PROGRESS: Final = "the next page would be the same"


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """A consumer group's progress in one queue."""

    group: str  # consumer group; "" for a queue that none has read
    topic: str
    broker_group: str
    queue: int
    committed: int
    begin: int
    end: int  # one past the last readable offset
    in_flight: int = 0
    session: str = ""  # who holds it now
    client: str = ""
    acked: int = 0  # done out of order, above `committed` and stored still
    stored_end: int = 0  # one past the last stored offset
    end_to_come: int = 0  # ordered: from there to `end` nothing comes to the group; 0 = `end`
    withheld_reason: str = ""  # why `withheld` messages may not be read; "" = a moment only

    @property
    def lag(self) -> int:
        """Messages still to consume, without deleted ones and those done out of order."""
        return lag(self.committed, self.begin, self.end, self.acked)

    @property
    def withheld(self) -> int:
        """Messages that are stored and may not be read yet: their acks are awaited."""
        return max(self.stored_end - self.end, 0)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group on one topic."""

    group: str
    topic: str
    queues: int = 0
    lag: int = 0
    in_flight: int = 0
    sessions: frozenset[str] = frozenset()

    def with_queue(self, row: QueueOffsets) -> "GroupInfo":
        """Return the same group with one more queue."""
        return replace(
            self,
            queues=self.queues + 1,
            lag=self.lag + row.lag,
            in_flight=self.in_flight + row.in_flight,
            sessions=self.sessions | ({row.session} if row.session else set()),
        )


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A slave as its master sees it."""

    broker: str
    connected: bool
    in_sync: bool
    received_end: int
    durable_end: int
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The status that one broker reports; `error` is the reason if it did not answer."""

    group: str
    broker: str
    address: str
    cluster: str = ""
    role: str = ""
    permission: Permission = Permission.NONE
    mode: str = ""
    epoch: int = 0
    master: str = ""
    reader: str = ""
    reason: str = ""
    journal_start: int = 0
    end: int = 0
    durable_end: int = 0
    commit_end: int = 0
    replicas: tuple[ReplicaStatus, ...] = ()
    version: str = ""
    uptime_ms: int = 0
    zookeeper_connected: bool = False
    error: str = ""
    unwritable_reason: str = ""
    withheld_records: int = 0  # stored, and not readable for the reason below
    withheld_reason: str = ""

    @property
    def takes_messages(self) -> bool:
        """Whether a send by the policy is taken; if not, see `unwritable_reason`."""
        return bool(self.permission & Permission.WRITE) and not (
            self.unwritable_reason or self.error
        )

    @property
    def serves(self) -> Permission:
        """The granted permission, without WRITE if the broker takes no messages."""
        return self.permission if self.takes_messages else self.permission & ~Permission.WRITE


@dataclass(frozen=True, slots=True)
class OrderedTopicStatus:
    """An ordered topic's chain and how its sends stand. Times: the brokers' wall clocks, in ms."""

    topic: str
    chain: Chain
    phase: str  # of the sends: empty, open, closing, ended; unknown without ZooKeeper
    reason: str  # what takes the sends, or what they wait for
    since_ms: int  # since when in this phase; 0 = not known
    answered_ms: int  # ages count from here
    senders: tuple[str, ...]  # in line, the active one first
    obstacles: Mapping[str, str]  # by group: why it may not take the next segment; "" = it may
    # by segment that consumers cannot read to its end: what to do
    stuck: Mapping[int, str] = field(default_factory=dict)
    # only from `switch`: the segment that it closed, or found closed by another; 0 = none
    switched_segment: int = 0


def status_of(reply: admin_pb2.StatusReply, address: str) -> BrokerStatus:
    """Return the status that a broker reported."""
    return BrokerStatus(
        group=reply.group,
        broker=reply.broker,
        address=address,
        cluster=reply.cluster,
        role=reply.role,
        permission=Permission(reply.permission & Permission.FULL),
        mode=reply.mode,
        epoch=reply.epoch,
        master=reply.master,
        reader=reply.reader,
        reason=reply.reason,
        journal_start=reply.journal_start,
        end=reply.end,
        durable_end=reply.durable_end,
        commit_end=reply.commit_end,
        replicas=tuple(
            ReplicaStatus(
                r.broker, r.connected, r.in_sync, r.received_end, r.durable_end, r.lag_bytes
            )
            for r in reply.replicas
        ),
        version=reply.version,
        uptime_ms=reply.uptime_ms,
        zookeeper_connected=reply.zookeeper_connected,
        # an older broker reports its disk only
        unwritable_reason=reply.unwritable_reason or reply.disk_full_reason,
        withheld_records=reply.withheld_records,
        withheld_reason=reply.withheld_reason,
    )


__all__ = [
    "BrokerStatus",
    "GroupInfo",
    "OrderedTopicStatus",
    "QueueOffsets",
    "ReplicaStatus",
    "TopicInfo",
    "ordered_status_of",
    "status_of",
]


def offsets_of(row: admin_pb2.QueueOffsets, withheld_reason: str = "") -> QueueOffsets:
    """Return progress in one queue from its wire form, and the reason that its reply has."""
    return QueueOffsets(
        group=row.group,
        topic=row.topic,
        broker_group=row.broker_group,
        queue=row.queue_id,
        committed=row.committed,
        begin=row.begin,
        end=row.end,
        in_flight=row.in_flight,
        session=row.session,
        client=row.client,
        acked=row.acked_ahead,
        stored_end=row.stored_end,
        end_to_come=row.end_to_come,
        withheld_reason=withheld_reason if row.stored_end > row.end else "",
    )


def ordered_status_of(row: admin_pb2.OrderedTopicStatus, answered_ms: int) -> OrderedTopicStatus:
    """Return an ordered topic's status from its wire form; raise `Malformed`."""
    chain = chain_from_json(row.chain)
    stuck = {segment.segment: segment.remedy for segment in row.stuck}
    if missing := sorted(number for number in stuck if chain.segment(number) is None):
        raise Malformed(
            f"the status of ordered topic {row.topic} names stuck segments {missing} that its "
            "chain lacks"
        )
    return OrderedTopicStatus(
        topic=row.topic,
        chain=chain,
        phase=row.phase,
        reason=row.reason,
        since_ms=row.since_ms,
        answered_ms=answered_ms,
        senders=tuple(row.senders),
        obstacles={g.group: g.obstacle for g in row.groups},
        stuck=stuck,
    )
