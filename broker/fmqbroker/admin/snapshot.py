"""The broker snapshot: one broker at one moment, as frozen values; all its figures come from it.

| reader | from |
|---|---|
| status call | `BrokerSnapshot` (`admin/status_reply.py`) |
| probes over HTTP | `BrokerSnapshot` (`app/health.py`) |
| metrics | `BrokerSnapshot`, `TopicsSnapshot` (`app/metrics.py`) |

`admin/snapshot_source.py` takes them from the broker's parts. A reader imports no part: an import
contract says so. A further reader, such as a page for people, needs these values alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fmqbroker.ordered.chain_figures import TopicFigures
from fmqbroker.produce.intake import Refusal
from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, GroupName, Permission, Position, TopicId
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState


class Positions(NamedTuple):
    """The ends of a journal, and its start."""

    start: Position = Position(0)
    commit: Position = Position(0)
    durable: Position = Position(0)
    written: Position = Position(0)
    end: Position = Position(0)


class SlaveLink(NamedTuple):
    """One configured slave as its master sees it."""

    broker: BrokerId
    connected: bool
    in_sync: bool
    received_end: Position
    durable_end: Position


class Served(NamedTuple):
    """Since when, and until how long ago, clients were served; None = not served (any more)."""

    reads_served_ms: int | None = None
    writes_served_ms: int | None = None
    reads_ended_ago_ms: int | None = None
    writes_ended_ago_ms: int | None = None
    followed_master: BrokerId = BrokerId("")
    master_silent_ms: int = 0
    unacknowledged_reason: str = ""


class TableUse(NamedTuple):
    """What the tables of the journal's state hold, and what they dropped."""

    progress_bytes: int = 0
    progress_room: int = 0
    producers: int = 0
    producer_limit: int = 0
    forgotten_producers: int = 0
    forgotten_groups: int = 0


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """One broker that has joined its group."""

    cluster: str
    group: GroupName
    broker: BrokerId
    config: GroupConfig  # with the acting master in it
    state: GroupState
    uptime_ms: int = 0
    # ---- ZooKeeper
    registered: bool = False
    zookeeper_connected: bool = False
    # ---- what it serves
    granted: Permission = Permission.NONE
    grant_reason: str = ""
    remedy: Remedy = Remedy.NONE
    serves: Permission = Permission.NONE
    refusal: Refusal | None = None
    served: Served = Served()
    # ---- its journal
    positions: Positions = Positions()
    disk_full_reason: str = ""
    unwritable_reason: str | None = None
    withheld_reason: str = ""
    damage: str = ""
    store_time_ahead_ms: int = 0
    clock_doubt: str | None = None
    tables: TableUse = TableUse()
    # ---- replication, data jobs
    slaves: tuple[SlaveLink, ...] = ()
    upstream_connected: bool = False
    scanned_bytes: int = 0
    refused_scans: int = 0

    @property
    def master(self) -> BrokerId:
        """The acting master; before the first term, the wanted one."""
        return self.state.master or self.config.master


class ConsumerLag(NamedTuple):
    """One consumer group on one topic, here."""

    topic: str
    group: str
    behind: int
    members: int


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """The topics of one broker, summed over their queues; taken over many turns of the loop."""

    stored: Mapping[TopicId, int] = field(default_factory=dict)  # messages ever stored
    names: tuple[tuple[str, TopicId], ...] = ()  # sorted; without topics that the journal refutes
    consumers: tuple[ConsumerLag, ...] | None = None  # None: it does not serve the reads
    ordered: tuple[TopicFigures, ...] = ()
