"""Writes the checkpoint when its content has changed. A journal at rest costs no disk work.

While the journal is truncated or dropped, only `truncation.py` writes the checkpoint: one of the
old journal would take back the record that a truncation is in progress (D5).

Leaves on disk: `checkpoint`, replaced atomically (`fmqcore.journal.checkpoint` defines its content
and the required order of effects).
"""

from collections.abc import Awaitable, Callable

import structlog

from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.head import Head
from fmqbroker.journal.loss_flags import Doubts
from fmqbroker.journal.store import SegmentStore
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint, encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT
from fmqport.disk import DiskFull

log = structlog.get_logger()


class Checkpoints:
    """Writes checkpoints; `commit_end` is the newest commit end that was noted."""

    def __init__(
        self,
        store: SegmentStore,
        flusher: Flusher,
        head: Head,
        interval_ms: int,
        commit_end: Position,
        doubts: Doubts,
    ) -> None:
        self.commit_end = commit_end
        self._doubts = doubts
        self._store = store
        self._flusher = flusher
        self._head = head
        self._interval_s = interval_ms / 1000
        self._noted = Signal()
        self._written: Checkpoint | None = None

    def note_commit_end(self, position: Position) -> None:
        """See `Journal.note_commit_end`; it never falls."""
        if position > self.commit_end:
            self.commit_end = position
            self._noted.notify()

    async def run(self) -> None:
        """Write after each change, at most once per interval, until cancelled.

        Cleared loss flags are written at once: else the next incarnation waits for others in vain.
        """
        tried = self._doubts.all
        while True:
            while self._now() == self._written:
                await wait_any(self._noted, self._doubts.changed, self._flusher.flushed)
            if self._doubts.all == tried:
                await wait_any(self._doubts.changed, timeout_s=self._interval_s)
            tried = self._doubts.all  # at once only once: it may not be possible now
            try:
                await self._store.space.check()
                if not self._head.being_cut:
                    await self.write()
            except DiskFull as error:  # the old one stays, and stays true
                self._store.space.note_full(str(error))

    async def write(self, *, clean: bool = False, drop_from: Position | None = None) -> None:
        """Write the checkpoint now. Raises `DiskFull`, `DiskFailed`."""
        await self._put(self._now()._replace(clean=clean, drop_from=drop_from))

    async def write_with_reserve(self, *, drop_from: Position | None = None) -> None:
        """Write the checkpoint, from the disk's reserve if need be. Raises `DiskFull`.

        What frees space on a full disk needs this checkpoint first.
        """
        await self._with_reserve(lambda: self.write(drop_from=drop_from))

    async def write_at_start(self, *, needed: bool) -> None:
        """Write before the first append; on a full disk an old one that claims no more will do.

        `needed`: the existing one claims something that will stop being true. Raises `DiskFull`.
        """
        if needed:
            await self.write_with_reserve()
            return
        try:
            await self.write()
        except DiskFull as error:
            self._store.space.note_full(str(error))

    async def write_reset(self, position: Position) -> None:
        """Record that all existing data is void and the journal is empty at `position`.

        This comes before what makes room, too. Raises `DiskFull`.
        """
        ends = position, position, self.commit_end
        void = self._doubtful(Checkpoint(*ends, 0, False, (), (), Position(0)))
        await self._with_reserve(lambda: self._put(void))

    async def _put(self, checkpoint: Checkpoint) -> None:
        await self._store.disk.replace_file(CHECKPOINT, encode_checkpoint(checkpoint))
        self._written = checkpoint

    async def _with_reserve(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except DiskFull as error:
            if not await self._store.space.use_reserve():
                raise
            await write()
            self._store.space.note_full(str(error))

    def _now(self) -> Checkpoint:
        flusher, store = self._flusher, self._store
        durable_end = max(flusher.durable_end, store.journal_start)  # D9: nothing above it is named
        known = Checkpoint(
            journal_start=store.journal_start,
            durable_end=durable_end,
            commit_end=self.commit_end,
            last_header_crc=flusher.durable_crc,
            clean=False,
            bases=tuple(s.base for s in store.segments if s.base < durable_end),
            epochs=tuple(e for e in self._head.state.epochs if e[1] < durable_end),
        )
        return self._doubtful(known)

    def _doubtful(self, known: Checkpoint) -> Checkpoint:
        lacks, tail_lost, unproven, mark = self._doubts.all
        return known._replace(lacks=lacks, tail_lost=tail_lost, unproven=unproven, acked_under=mark)
