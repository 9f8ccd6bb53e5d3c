"""The taker's side journal (DESIGN §6): consumer progress made while the master is gone.

Order of effects: entries are fsynced here, then acknowledged; later checkpointed into the group's
state. Leaves `takeover.journal` in the data directory; a restarted taker finds it again, a master
removes it. It never stands alone: the group's state and the journal's table are merged by version.
"""

from collections.abc import Iterable, Mapping

import structlog

from fmqcore.consume.merge import cut_up
from fmqcore.consume.record import encode_record
from fmqcore.consume.sidefile import NAME, decode, encode_frame, encode_head
from fmqcore.errors import Malformed
from fmqcore.journal.control import decode_offsets, encode_offsets
from fmqcore.journal.offsets import OffsetEntry, OffsetKey, merge
from fmqcore.words import Epoch
from fmqport.disk import Disk, DiskFile

COMPACT_BYTES = 4 * 1024 * 1024
"""Written anew when it has grown by so much: only the last change of a key counts."""
_FRAME_BYTES = 512 * 1024

_log = structlog.get_logger()


class SideJournal:
    """The open side journal. One writer at a time (its owner holds a lock)."""

    def __init__(self, disk: Disk, epoch: Epoch, file: DiskFile) -> None:
        self._disk = disk
        self.epoch = epoch
        self._file = file
        self._end = file.size
        self._base = file.size

    @staticmethod
    async def load(disk: Disk) -> dict[OffsetKey, OffsetEntry]:
        """What an earlier takeover of ours left; empty if there is none or it is not readable."""
        data = await disk.read_file(NAME)
        table: dict[OffsetKey, OffsetEntry] = {}
        if data is None:
            return table
        try:
            found = decode(data)
            for payload in found.payloads:
                merge(table, decode_offsets(payload))
        except Malformed as error:
            # Its checkpoint in the group's state is at most a second older: go on with that.
            _log.error("takeover_journal_unreadable", file=NAME, error=str(error))
            return table
        if found.torn:
            _log.warning("takeover_journal_torn", file=NAME, kept=found.end, cut_bytes=found.torn)
        return table

    @staticmethod
    async def epoch_left(disk: Disk) -> Epoch | None:
        """The term whose side journal is there, if any."""
        data = await disk.read_file(NAME)
        try:
            return None if data is None else decode(data).epoch
        except Malformed:
            return Epoch(0)

    @classmethod
    async def start(
        cls, disk: Disk, epoch: Epoch, table: Mapping[OffsetKey, OffsetEntry]
    ) -> "SideJournal":
        """Begin a file (atomically, in the place of an old one) that holds `table`; fsynced."""
        data = b"".join((encode_head(epoch), *_frames(table.items())))
        await disk.replace_file(NAME, data)
        return cls(disk, epoch, await disk.open(NAME))

    async def append(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Add entries; stored (fsynced) at return. Raises `DiskFull`, `DiskFailed`."""
        data = b"".join(_frames(entries.items()))
        await self._file.write([(self._end, [data])], sync=True)
        self._end += len(data)

    async def compact(self, table: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Write it anew from `table` if it has grown too long."""
        if self._end - self._base < COMPACT_BYTES:
            return
        fresh = await self.start(self._disk, self.epoch, table)
        await self._file.close()
        self._file, self._end, self._base = fresh._file, fresh._end, fresh._base

    async def close(self) -> None:
        """Close the file; it stays."""
        await self._file.close()

    @staticmethod
    async def remove(disk: Disk) -> None:
        """What was in it is in a journal now."""
        await disk.remove(NAME)


def checkpoint_of(table: Mapping[OffsetKey, OffsetEntry], max_chars: int) -> str | None:
    """The record as the group's state shall hold it; None: too large, what it holds stays."""
    record, whole = encode_record(table, max_chars)
    if not whole:
        _log.error(
            "takeover_checkpoint_too_large",
            entries=len(table),
            at_most_chars=max_chars,
            kept="the record before" if record is None else "floors only",
        )
    return record


def _frames(entries: Iterable[tuple[OffsetKey, OffsetEntry]]) -> list[bytes]:
    return [encode_frame(encode_offsets(part)) for part in cut_up(entries, _FRAME_BYTES)]
