"""The interface of replication for failover. Owner: replication.

Two roles, two halves; `replication/master.py` and `replication/slave.py` implement them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fmqbroker.runtime.notifier import Signal
from fmqcore.ids import BrokerId, Epoch, Position


@dataclass(slots=True)
class LinkView:
    """The state of one slave as its master sees it."""

    connected: bool = False
    caught_up: bool = False  # counted to within `in_sync_lag_bytes` of the master's end
    sent_end: Position = Position(0)  # handed to its stream
    received_end: Position = Position(0)
    durable_end: Position = Position(0)
    epoch: Epoch = Epoch(0)  # of the newest message its last ack had read; older ones do not count
    lease_until_ms: int = 0  # the master's monotonic clock: the slave's unexpired grant
    heard: bool = False  # sent a Hello since the start; its suffix is not needed any more
    reader: bool = False  # it reported that it serves (served) reads in slave-consume
    incarnation: str = ""  # of the process whose stream it is
    refused: str = ""  # why its last Hello was refused; "" = it was not
    kept: bool = False  # heard when it had all that it ever fsynced
    whole: bool = False  # heard when it lacked nothing of what it ever acknowledged to hold
    emptied: bool = False  # its disk was lost before it was first heard


class Held(NamedTuple):
    """The position up to which a master and all its in-sync slaves held the journal in `epoch`."""

    master: BrokerId = BrokerId("")
    epoch: Epoch = Epoch(0)
    keep_from: Position = Position(0)


@dataclass(slots=True)
class UpstreamView:
    """The state of the master as this broker, its slave, sees it.

    Order of effects at a claim: failover sets `claiming`, then checks `promised_until_ms`, then
    does the compare-and-set. While `claiming` is set no promise is made, so none can slip in.
    """

    connected: bool = False  # stream up and welcomed
    caught_up: bool = False  # its end equals the master's end as last sent, or nothing is missing
    promised_until_ms: int = 0  # this broker's monotonic clock: it claims nothing before
    claiming: bool = False  # set by failover alone: about to claim, grants nothing
    held: Held = Held()  # R8: what other brokers have for sure; it outlives the stream
    heard_master: BrokerId = BrokerId("")  # whom the last message came from; it outlives the stream
    heard_ms: int = 0  # this broker's monotonic clock: when that message came


class MasterReplication(Protocol):
    """The master's half."""

    reconciling: asyncio.Lock  # held while a suffix is pulled, a term opened, a slave's journal cut
    changed: Signal  # a link came, went, was heard, caught up, or its lease grew (coalesced)
    reported: Signal  # an ack of a slave out of sync, which moves no commit end

    @property
    def links(self) -> Mapping[BrokerId, LinkView]:
        """Every configured slave with its link's state."""
        ...

    def open_for(self, epoch: Epoch) -> None:
        """Start the term `epoch` (its EPOCH batch is appended): count acks, keep the isr."""
        ...

    def close_writes(self) -> None:
        """Stop serving as master; slaves may still dial to reconcile and to send suffixes."""
        ...

    @property
    def successors(self) -> frozenset[BrokerId]:
        """The slaves that may claim the reads: in any in-sync set that may stand, or joining it.

        One that was removed from the configuration stays among them until the set is without it.
        """
        ...

    def kept_end(self) -> Position:
        """Return where the journal ends without the batches of a term that never stood.

        Above it lies nothing that was there before: EPOCH and others of a try to open a term.
        """
        ...

    def require_on_disk(self, promised: Callable[[], Position]) -> None:
        """Let no slave join the in-sync set whose disk holds less than up to `promised()`."""
        ...

    def keep_from(self) -> Position:
        """Return the position that the slowest in-sync slave needs; retention stops there."""
        ...


class SlaveReplication(Protocol):
    """The slave's half."""

    upstream: UpstreamView
    changed: Signal

    async def hand_over(self, epoch: Epoch, offsets: bytes, timeout_s: float) -> str:
        """Call the master's HandOver; return "" if installed, else why not.

        Raises `TransportError`.
        """
        ...
