"""Delete old segments, whole, by time and size, but none that the group still needs.

A master keeps what its slowest in-sync slave lacks, and every broker keeps what is not committed. A
slave keeps what the acting master, or any in-sync slave, may lack (R8): a master that comes back
without its newest bytes, or a promoted slave, can copy them from no other broker (ADR 0041).

At the disk limit (messages are refused for lack of room) an in-sync slave holds nothing back any
more: it is left behind, loses its stream where segments are gone, and with it its place in the
in-sync set, and is then sent RESET_TO. This is reported at once, by a log line and `left_behind`.

What consumer groups of ordered topics have not read stays, too (`ordered/kept_segments.py`), up to
the disk limit: there it is given up last, which is logged.

`Journal.retire` makes the changes on disk. It also keeps what a derived index still needs
(`DerivedIndex.low_watermark`), even at the disk limit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.kept_segments import KeptSegments
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, Position
from fmqport.clock import Clock

EVERY_S: Final = 10.0
"""Interval between two checks for old segments."""

_log = structlog.get_logger()


class Retention:
    """Deletes old segments.

    `left_behind` counts, per slave, how often the disk limit deleted what it still needed.
    """

    def __init__(
        self,
        me: BrokerId,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        master: MasterReplication,
        slave: SlaveReplication,
        clock: Clock,
        clock_doubt: Callable[[], str | None] = lambda: None,
        ordered: KeptSegments | None = None,
    ) -> None:
        self.left_behind: dict[BrokerId, int] = {}
        self._ordered = ordered
        self._me = me
        self._journal = journal
        self._commit = commit
        self._group = group
        self._master = master
        self._slave = slave
        self._clock = clock
        self._clock_doubt = clock_doubt
        self._held = False  # deletion by age, as the log has it

    async def run(self) -> None:
        """Check every `EVERY_S` seconds until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.check_once()

    async def check_once(self) -> int:
        """Delete the segments that may be deleted; return the number of bytes freed."""
        journal = self._journal
        ours = min(self._commit.commit_end, journal.durable_end)
        masters = self._group.state.value.master == self._me
        keep_from = min(ours, self._master.keep_from() if masters else self._others_hold())
        try:
            unread = await self._ordered.oldest() if self._ordered is not None else {}
            unread_from = min(unread.values(), default=ours)
            by_age = self._may_by_age()
            bounds = [min(keep_from, unread_from)]
            if masters:
                bounds.append(min(ours, unread_from))
            bounds.append(ours if masters else keep_from)
            freed, bound = await self._retire(bounds, by_age=by_age)
        except FmqError as error:
            _log.warning("retention_failed", error=str(error))
            return 0
        if freed:
            _log.info("old_segments_deleted", bytes=freed, start=journal.journal_start)
            if bound > keep_from:
                self._log_left_behind(journal.journal_start)
            self._log_expired(unread)
        return freed

    async def _retire(self, bounds: Sequence[Position], *, by_age: bool) -> tuple[int, Position]:
        """Delete below the first bound; at the disk limit below the next, until room is made.

        Return the bytes freed, and the bound that freed them.
        """
        highest = Position(-1)
        for bound in bounds:
            if bound > highest:
                highest = bound
                freed = await self._journal.retire(bound, self._clock.wall_ms(), by_age=by_age)
                if freed or not self._journal.full:
                    return freed, bound
        return 0, highest

    def _may_by_age(self) -> bool:
        """Return whether the clock allows deletion by age; log each change."""
        doubt = self._clock_doubt()
        held = doubt is not None
        if held is not self._held:
            self._held = held
            if held:
                _log.warning("deletion_by_age_held", reason=doubt)
            else:
                _log.info("deletion_by_age_resumed")
        return not held

    def _others_hold(self) -> Position:
        """Return up to where the acting master and all in-sync slaves have the journal.

        The master reported this position in the newest opened term; 0 = not known.
        """
        state, held = self._group.state.value, self._slave.upstream.held
        known = (held.master, held.epoch) == (state.master, state.last_opened_epoch)
        return held.keep_from if known else Position(0)

    def _log_expired(self, unread: Mapping[str, Position]) -> None:
        """Log the ordered topics of which the disk limit deleted what is not consumed."""
        start = self._journal.journal_start
        for topic, position in sorted(unread.items()):
            if position < start:
                _log.error(
                    "ordered_segment_expired",
                    topic=topic,
                    position=position,
                    journal_start=start,
                    reason="the disk is full, and retention deleted records that consumer groups "
                    "had not read; `fmq ordered status` names the groups",
                )

    def _log_left_behind(self, journal_start: Position) -> None:
        isr = self._group.state.value.isr
        for broker, view in sorted(self._master.links.items()):
            if broker in isr and view.received_end < journal_start:
                self.left_behind[broker] = self.left_behind.get(broker, 0) + 1
                _log.error(
                    "slave_left_behind",
                    slave=broker,
                    its_end=view.received_end,
                    journal_start=journal_start,
                    times=self.left_behind[broker],
                    reason="the disk is full, and retention deleted what it still needed; it will "
                    "drop its journal and copy it again",
                )
