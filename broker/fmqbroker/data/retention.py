"""Old segments go: by time and size, whole, and none that somebody in the group still needs.

A master keeps what its slowest in-sync slave lacks, and anyone keeps what is not committed. Who is
not master keeps what the acting master, or somebody in sync, may lack (R8): a master that comes
back without its newest bytes has nobody else to have them from, nor has who is promoted (ADR 0041).

At the disk limit (messages are refused for want of room) an in-sync slave holds nothing back any
more: it is left behind, loses its stream when it comes to what is gone, and with it its place in
the in-sync set, and is then told RESET_TO. A person is told at once, by a log line and
`left_behind`.

Leaves on disk what `Journal.retire` does.
"""

from collections.abc import Callable
from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, Position
from fmqport.clock import Clock

EVERY_S: Final = 10.0
"""How often old segments are looked for."""

_log = structlog.get_logger()


class Retention:
    """`left_behind` counts, per slave, how often the disk limit took what it still needed."""

    def __init__(
        self,
        me: BrokerId,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        master: MasterReplication,
        slave: SlaveReplication,
        clock: Clock,
        clock_doubt: Callable[[], str] = lambda: "",
    ) -> None:
        self.left_behind: dict[BrokerId, int] = {}
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
        """Until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.look()

    async def look(self) -> int:
        """Delete what may go; how many bytes went."""
        journal = self._journal
        ours = min(self._commit.commit_end, journal.durable_end)
        masters = self._group.state.value.master == self._me
        keep_from = min(ours, self._master.keep_from() if masters else self._others_hold())
        try:
            by_age = self._may_by_age()
            freed = await journal.retire(keep_from, self._clock.wall_ms(), by_age=by_age)
            if not freed and masters and journal.full and keep_from < ours:
                freed = await journal.retire(ours, self._clock.wall_ms(), by_age=by_age)
                self._tell_left_behind(journal.log_start if freed else Position(0))
        except FmqError as error:
            _log.warning("retention_failed", error=str(error))
            return 0
        if freed:
            _log.info("old_segments_deleted", bytes=freed, start=journal.log_start)
        return freed

    def _may_by_age(self) -> bool:
        """No, while the clock is in doubt; a line in the log when that begins and when it ends."""
        doubt = self._clock_doubt()
        if bool(doubt) is not self._held:
            self._held = bool(doubt)
            if doubt:
                _log.warning("deletion_by_age_held", why=doubt)
            else:
                _log.info("deletion_by_age_goes_on")
        return not doubt

    def _others_hold(self) -> Position:
        """So much the acting master and all in sync have: as it said in the newest opened term."""
        state, held = self._group.state.value, self._slave.upstream.held
        known = (held.master, held.epoch) == (state.master, state.opened)
        return held.keep_from if known else Position(0)

    def _tell_left_behind(self, log_start: Position) -> None:
        isr = self._group.state.value.isr
        for broker, view in sorted(self._master.links.items()):
            if broker in isr and view.received_end < log_start:
                self.left_behind[broker] = self.left_behind.get(broker, 0) + 1
                _log.error(
                    "slave_left_behind",
                    slave=broker,
                    its_end=view.received_end,
                    log_start=log_start,
                    times=self.left_behind[broker],
                    why="the disk is full, and retention deleted what it still needed; it will "
                    "drop its journal and fill itself anew",
                )
