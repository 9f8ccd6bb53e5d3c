"""How much room the disk has, and which writes may still use it.

| accepted | as long as |
|---|---|
| DATA, by a master | `min_free_bytes` are free, and the next segment's file can be had |
| DATA accepted before less was free | the file system has room for it |
| a master's batches, by a slave | half of that: disks of one size do not fill at the same moment |
| OFFSETS, CONFIG and other control | the file system has room for them, whatever is kept free |
| OFFSETS that a term is opened with | there is room for them with the reserve |
| EPOCH | always: it may use the reserve too |

So a master whose disk is full keeps what consumers acknowledge, and one that starts again opens its
term; reads need no room at all. Control batches that find their segment full go into a small one.

Leaves on disk: `reserve`, zeros. It is removed when a term, or a checkpoint (at a start, or before
the journal gets shorter), finds no room at all, and created again when there is room. Not here:
`head.py` reports why DATA is refused, `upkeep.py` decides when to check the space again.
"""

from enum import IntEnum
from typing import Final

import structlog

from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.header import batch_len
from fmqcore.journal.segments import usual_snap
from fmqport.disk import Disk, DiskFull

RESERVE: Final = "reserve"
"""Space reserved for the broker, whatever others write to the file system."""
CONTROL_BYTES: Final = 1024 * 1024
"""Room for control batches in a small segment, beside its SNAP."""
KEPT_FOR_TERMS: Final = 4096
"""With little room, the last bytes of a segment are only for what opens a term."""
_PAGE: Final = 4096
log = structlog.get_logger()


class Claim(IntEnum):
    """The purpose of a segment's file: the higher, the more of the free space it may use."""

    DATA = 0
    CONTROL = 1
    TERM = 2


def reserve_bytes(segment_bytes: int) -> int:
    """Return the reserve's size: a segment with the largest SNAP, and a checkpoint."""
    segment = control_segment(usual_snap(segment_bytes), segment_bytes)
    return segment + min(CONTROL_BYTES, segment_bytes)


def control_segment(snap_len: int, segment_bytes: int) -> int:
    """Return the length of a segment for control batches alone."""
    length = batch_len(snap_len) + CONTROL_BYTES
    return min((length + _PAGE - 1) // _PAGE * _PAGE, segment_bytes)


class Space:
    """See the module. `no_data` and `no_control` are empty or the reason why those are refused."""

    def __init__(self, disk: Disk, segment_bytes: int, min_free_bytes: int) -> None:
        self.no_data = ""
        self.no_control = ""
        self.roll_blocked = ""  # why no further segment for DATA can be had now
        self.follows = False  # what is appended comes from a master
        self.changed = Signal()
        self._disk = disk
        self._min_free = min_free_bytes
        self._free = 1 << 62  # as of the last look
        self._low = ""  # less is free than the settings want to keep
        self._no_room = ""  # something derived found no room
        self._reserve_bytes = reserve_bytes(segment_bytes) if min_free_bytes else 0
        self._reserve = not min_free_bytes  # the file is there (or not wanted)
        self._held_bytes = self._reserve_bytes  # what it has; an older version's has less
        self._missed = False

    @property
    def tight(self) -> str:
        """Empty, or why some batches are refused now."""
        return self.no_data or self.roll_blocked

    @property
    def reserved(self) -> bool:
        """Whether the reserve exists (or is not wanted)."""
        return self._reserve

    @property
    def low(self) -> str:
        """Empty, or by how much the free space is below what the settings keep."""
        return self._low

    def affords(self, size: int) -> bool:
        """Return whether a control segment of that size fits, as of the last check."""
        return self._free >= 2 * size

    def lends(self, size: int) -> bool:
        """Return whether a term's segment of that size fits, including the reserve."""
        return self._free + (self._held_bytes if self._reserve else 0) >= size

    def spend(self, size: int) -> None:
        """Count a segment that was started in memory and whose file will follow."""
        self._free -= size

    # ---- what was found
    def note_full(self, reason: str) -> None:
        """Refuse DATA: a derived file found no room."""
        if not self._no_room:
            log.error("journal_no_room_for_messages", reason=reason)
        self._no_room = reason
        self._settle()

    def note_stuck(self, reason: str) -> None:
        """Refuse everything until the waiting bytes are written: the writer found no room."""
        if not self.no_control:
            log.error("journal_no_room", reason=reason)
        self.no_control = reason
        self._settle()

    def note_unstuck(self) -> None:
        """Accept again: a write succeeded."""
        if self.no_control:
            log.info("journal_delayed_writes_done")
            self.no_control = ""
            self._settle()

    def note_room(self) -> None:
        """Accept DATA again: no derived file lacks room any more."""
        if self._no_room:
            log.info("journal_room_restored")
            self._no_room = ""
            self._settle()

    async def check(self) -> None:
        """Check the free space."""
        self._free = await self._disk.free_bytes()
        low = self._too_low(self._free, self._kept)
        if low and not self._low:
            log.error("journal_room_low", reason=low)
        self._low = low
        self._settle()

    async def require(self, size: int, claim: Claim) -> None:
        """Raise `DiskFull` if a file of that size leaves less than is kept from such a claim."""
        free = await self._disk.free_bytes()
        kept = self._kept if claim is Claim.DATA else 0
        if low := self._too_low(free, kept, size):
            raise DiskFull(f"no room for a file of {size} bytes: {low}")
        self._free = min(self._free, free - size)

    # ---- the reserve
    def adopt_reserve(self, size: int) -> None:
        """At start: take over the reserve that an earlier run left."""
        self._reserve, self._held_bytes = True, size

    async def keep_reserve(self) -> None:
        """Create the reserve if it does not exist; go on without it if there is no room."""
        if self._reserve or self.tight:
            return
        try:
            await self.require(self._reserve_bytes, Claim.DATA)
            await (await self._disk.create(RESERVE, self._reserve_bytes)).close()
            self._reserve, self._missed = True, False
            self._held_bytes = self._reserve_bytes
        except DiskFull as error:
            if not self._missed:
                log.warning("journal_no_room_for_reserve", reason=str(error))
            self._missed = True

    async def use_reserve(self) -> bool:
        """Free the reserve's space for an urgent write; return False if there is no reserve."""
        if not self._reserve:
            return False
        log.warning("journal_reserve_used", bytes=self._held_bytes)
        await self._disk.remove(RESERVE)
        self._reserve = False
        return True

    # ---- within
    @property
    def _kept(self) -> int:
        return self._min_free // 2 if self.follows else self._min_free

    def _settle(self) -> None:
        self.no_data = self.no_control or self._no_room or self._low
        if self.no_data:
            self.changed.notify()

    def _too_low(self, free: int, kept: int, wanted: int = 0) -> str:
        if free - wanted >= kept:
            return ""
        return (
            f"{free} bytes are free at {self._disk.path}, min_free_bytes keeps "
            f"{kept}: make room, or shorten the retention"
        )
