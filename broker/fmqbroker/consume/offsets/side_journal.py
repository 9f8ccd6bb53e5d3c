"""A takeover reader's side journal: progress made while the master is away.

Order of effects: entries are fsynced here, then acknowledged, later checkpointed into the group's
state. The file `takeover.journal` stays in the data directory; a restarted takeover reader loads it
again, a master removes it. It is always merged by version with the group's state and the journal's
table. An I/O error ends the process (`SideDisk`): then another broker may take the reads over.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import structlog

from fmqbroker.runtime.fatal import or_die
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.control import decoding_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, merge
from fmqcore.consume.offsets.merge import cut_up, pieces_of
from fmqcore.consume.offsets.side_journal import NAME, decode, encode_frame, encode_head
from fmqcore.consume.offsets.takeover_record import encoding_record
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch
from fmqport.disk import Disk, DiskFile
from fmqport.lifecycle import Lifecycle

T = TypeVar("T")
COMPACT_BYTES = 4 * 1024 * 1024
"""Growth after which the file is compacted: only the last change of a key counts."""
_FRAME_BYTES = 32 * 1024
"""Most bytes of a frame's entries, but at least one entry."""

_log = structlog.get_logger()


class SideDisk:
    """The disk operations of a side journal. They raise `DiskFull`, never `DiskFailed`."""

    def __init__(self, disk: Disk, lifecycle: Lifecycle) -> None:
        self._disk = disk
        self._lifecycle = lifecycle

    async def read(self) -> bytes | None:
        """Return the whole file, or None if there is none."""
        return await self._or_die(self._disk.read_file(NAME))

    async def replace(self, data: bytes) -> DiskFile:
        """Replace the file's content with `data` (atomically, fsynced), and open it."""
        await self._or_die(self._disk.replace_file(NAME, data))
        return await self._or_die(self._disk.open(NAME))

    async def append(self, file: DiskFile, at: int, data: bytes) -> None:
        """Write `data` at `at`, the open file's end; fsynced at return."""
        await self._or_die(file.write([(at, [data])], sync=True))

    async def close(self, file: DiskFile) -> None:
        """Close the file; it stays on disk."""
        await self._or_die(file.close())

    async def remove(self) -> None:
        """Remove the file durably; a missing file is no error."""
        await self._or_die(self._disk.remove(NAME))

    async def _or_die(self, work: Awaitable[T]) -> T:
        """Do a disk operation; if it fails, end the process: it would keep the reads (D3)."""
        return await or_die(work, self._lifecycle, "the side journal's disk")


class SideJournal:
    """The open side journal. One writer at a time (its owner holds a lock)."""

    def __init__(self, disk: SideDisk, epoch: Epoch, file: DiskFile) -> None:
        self._disk = disk
        self.epoch = epoch
        self._file = file
        self._end = file.size
        self._base = file.size

    @staticmethod
    async def load(disk: SideDisk) -> dict[OffsetKey, OffsetEntry]:
        """Return the entries of this broker's earlier takeover; empty if missing or unreadable."""
        data = await disk.read()
        table: dict[OffsetKey, OffsetEntry] = {}
        if data is None:
            return table
        try:
            found = decode(data)
            for payload in found.payloads:
                merge(table, await in_turns(decoding_offsets(payload)))
        except Malformed as error:
            # The checkpoint in the group's state is at most a second older: go on with that.
            _log.error("takeover_journal_unreadable", file=NAME, error=str(error))
            return table
        if found.torn:
            _log.warning("takeover_journal_torn", file=NAME, kept=found.end, cut_bytes=found.torn)
        return table

    @staticmethod
    async def epoch_left(disk: SideDisk) -> Epoch | None:
        """Return the term of the side journal on disk, 0 if unreadable, None if there is none."""
        data = await disk.read()
        try:
            return None if data is None else decode(data).epoch
        except Malformed:
            return Epoch(0)

    @classmethod
    async def start(
        cls, disk: SideDisk, epoch: Epoch, table: Mapping[OffsetKey, OffsetEntry]
    ) -> "SideJournal":
        """Create a file with `table`, fsynced, atomically replacing an old one.

        An entry that changes during the write may be in the file with its old or its new value: the
        caller must append it afterwards. Only a `ProgressTable` may change.
        """
        data = b"".join((encode_head(epoch), *await _frames(table)))
        return cls(disk, epoch, await disk.replace(data))

    async def append(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Add entries; stored (fsynced) at return. Raises `DiskFull`."""
        data = b"".join(await _frames(entries))
        await self._disk.append(self._file, self._end, data)
        self._end += len(data)

    async def compact(self, table: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Rewrite the file from `table` if it has grown by `COMPACT_BYTES`."""
        if self._end - self._base < COMPACT_BYTES:
            return
        fresh = await self.start(self._disk, self.epoch, table)
        await self._disk.close(self._file)
        self._file, self._end, self._base = fresh._file, fresh._end, fresh._base

    async def close(self) -> None:
        """Close the file without removing it."""
        await self._disk.close(self._file)

    @staticmethod
    async def remove(disk: SideDisk) -> None:
        """Remove the file, whose entries are in a journal now."""
        await disk.remove()


async def checkpoint_of(table: Mapping[OffsetKey, OffsetEntry], max_chars: int) -> str | None:
    """Return the record for the group's state; None if too large: the old record stays.

    Works in short turns of the loop. An entry that changes meanwhile may be in the record with its
    old or its new value: the caller must make another checkpoint after such a change.
    """
    record, whole = await in_turns(encoding_record(table, max_chars))
    if not whole:
        _log.error(
            "takeover_checkpoint_too_large",
            entries=len(table),
            at_most_chars=max_chars,
            kept="the record before" if record is None else "floors only",
        )
    return record


async def _frames(table: Mapping[OffsetKey, OffsetEntry]) -> list[bytes]:
    frames: list[bytes] = []
    for piece in pieces_of(table):
        if frames:
            await asyncio.sleep(0)
        frames += [
            encode_frame(encode_offsets(part)) for part in cut_up(piece.items(), _FRAME_BYTES)
        ]
    return frames
