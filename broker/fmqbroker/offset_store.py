"""Consumer offsets: where they are kept in each mode (DESIGN §3, §6).

CONTRACT STUB (owner: consume). As master: OFFSETS batches in the journal. As taker
(slave-consume): an fsynced side journal `takeover.journal`, checkpointed into the group's state
at most a second later. The way back: `freeze` here, `install` on the master.
"""

from collections.abc import Mapping

from fmqbroker.commit import CommitFrontier
from fmqbroker.group_store import GroupStore
from fmqbroker.journal import Journal
from fmqbroker.settings import BrokerSettings
from fmqcore.journal.state import OffsetEntry, OffsetKey
from fmqport.clock import Clock
from fmqport.disk import Disk


class OffsetStore:
    """The one place where consumer progress is read and written."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        raise NotImplementedError

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """The newest entry known here, stored or about to be."""
        raise NotImplementedError

    async def put(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Store; returns when stored as the mode asks (committed in the journal, or fsynced).

        Raises `NoPermission` while frozen or when neither master nor taker.
        """
        raise NotImplementedError

    async def run(self) -> None:
        """Gather, write and checkpoint until cancelled."""
        raise NotImplementedError

    async def become_master(self) -> None:
        """Entries go to the journal from now on; a side journal of ours is removed."""
        raise NotImplementedError

    async def become_taker(self, record: str) -> None:
        """Start the side journal from: the journal's table, our old side journal, `record`."""
        raise NotImplementedError

    def retire(self) -> None:
        """Neither master nor taker: `put` is refused."""
        raise NotImplementedError

    async def freeze(self) -> bytes:
        """Refuse more, fsync what is there, return the takeover's entries (OFFSETS payload)."""
        raise NotImplementedError

    async def install(self, payload: bytes) -> None:
        """On the master, before it serves: append and make durable (locally); idempotent."""
        raise NotImplementedError
