"""Writes the resume file, so that a start scans only what the newest segment got after it.

The newest segment's state is captured between two appends (its bytes are copied, no record is
looked at), and its index as of that place is encoded in short turns. Both are written when the
flusher has passed that place: only the flusher knows the checksum of the file's bytes below. No
sync is waited for: if the bytes are missing after a crash, the checksum does not match and the file
does not count.

While the journal is truncated or dropped nothing is captured: its parts disagree meanwhile.

Leaves on disk: `resume`, replaced atomically (`fmqcore.journal.resume_file`).
"""

import asyncio
from typing import Final

import structlog

from fmqbroker.journal.catalog import Catalog
from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.head import Head
from fmqbroker.journal.store import SegmentStore
from fmqbroker.journal.tail_cache import Tail
from fmqbroker.runtime.slices import in_turns
from fmqcore.ids import Position
from fmqcore.journal.resume_file import RESUME, Resume, encode_resume
from fmqport.disk import DiskFull

EVERY_BYTES = 16 * 1024 * 1024
"""A start scans at most about this many bytes, unless the journal's opener sets another number."""
_FACTOR: Final = 2
"""The file is rewritten only after this many times its own length in new bytes."""
_WHOLE: Final = 1 << 62
log = structlog.get_logger()


class Resumes:
    """The keeper alone calls `capture_or_write`; the flusher wakes it when something is due."""

    def __init__(
        self,
        store: SegmentStore,
        tail: Tail,
        flusher: Flusher,
        catalog: Catalog,
        head: Head,
        every_bytes: int | None = None,
    ) -> None:
        self._every_bytes = EVERY_BYTES if every_bytes is None else every_bytes
        self._store = store
        self._tail = tail
        self._flusher = flusher
        self._catalog = catalog
        self._head = head
        self._captured: Resume | None = None
        self._cuts = 0  # the flusher's, when it was captured
        flusher.care_at = self._next(Position(tail.end))

    async def capture_or_write(self) -> None:
        """Capture if it is due; write what was captured once its bytes are in the file."""
        if self._head.being_cut:
            return
        if self._captured is None and self._flusher.written_end >= self._flusher.care_at:
            await self._capture()
        if self._captured is not None and not self._head.being_cut:
            await self._write(self._captured)

    async def at_close(self) -> None:
        """Write a last resume file when nothing more is appended: the next start scans nothing."""
        self._captured = None
        last = self._store.last
        if last is not None and self._head.end - last.base >= self._every_bytes // 16:
            await self._capture()
            if self._captured is not None:
                await self._write(self._captured)

    def due(self) -> bool:
        """Return whether `capture_or_write` has work now; the keeper calls it until it has none."""
        if self._head.being_cut:
            return False
        if self._captured is None:
            return self._flusher.written_end >= self._flusher.care_at
        cut = self._cuts != self._flusher.cuts
        return cut or self._flusher.written_end >= self._captured.position

    async def _capture(self) -> None:
        head = self._head
        last = self._store.last
        if last is None or not last.base < head.end < last.end:
            self._flusher.care_at = self._next(head.end)
            return
        self._tail.seal()  # so that the flusher passes just there
        self._flusher.mark(head.end)
        cuts = self._cuts = self._flusher.cuts
        captured = Resume(
            last.base,
            last.end,
            head.end,
            head.last_ms,
            0,
            head.last_header_crc,
            head.epoch,
            b"",
            b"",
        )
        snapshot = head.state.snapshot(0, _WHOLE)
        entries = await in_turns(self._catalog.current.encoding(captured.position))
        await asyncio.sleep(0)
        snap = snapshot.payload
        await asyncio.sleep(0)  # the file is encoded in another turn
        if cuts != self._flusher.cuts:  # it was cut in one of those turns
            self._flusher.care_at = self._next(self._head.end)
            return
        self._captured = captured._replace(snap=snap, entries=entries)
        self._flusher.care_at = captured.position

    async def _write(self, captured: Resume) -> None:
        if self._cuts != self._flusher.cuts:  # what it describes is void
            self._captured = None
            self._flusher.care_at = self._next(self._head.end)
            return
        if self._flusher.written_end < captured.position:
            return
        self._captured = None
        self._flusher.care_at = self._next(captured.position)
        marked = self._flusher.marked_crc
        if marked is None:  # unknown since a cut
            return
        data = encode_resume(captured._replace(raw_crc=marked))
        next_bytes = max(self._every_bytes, _FACTOR * len(data))
        self._flusher.care_at = Position(captured.position + next_bytes)
        try:
            await self._store.disk.replace_file(RESUME, data)
        except DiskFull as error:  # a start takes longer
            log.warning("journal_no_room_for_resume_file", reason=str(error))
        if self._cuts != self._flusher.cuts:  # meanwhile
            await self._store.disk.remove(RESUME)

    def _next(self, position: Position) -> Position:
        return Position(position + self._every_bytes)
