"""How much room the disk has, and who may still use it.

| taken | as long as |
|---|---|
| DATA, by a master | `min_free_bytes` are free, and the next segment's file can be had |
| DATA that was taken in before less was free | the file system has room for it |
| what a master wrote, by a slave | half of that: disks of one size do not fill at the same moment |
| OFFSETS, CONFIG and other control | the file system has room for them, whatever we keep free |
| OFFSETS that a term is opened with | there is room for them with the reserve |
| EPOCH | always: it may use the reserve too |

So a master whose disk is full keeps what consumers acknowledge, and one that starts again opens its
term; reads need no room at all. Control batches that find their segment full go into a small one.

Leaves on disk: `reserve`, zeros, which is removed when a term, or a checkpoint (at a start, or
before the journal gets shorter), finds no room at all, and made again when there is room. Not here:
why DATA is refused is told by `head.py`, and when is looked at again by `upkeep.py`.
"""

from enum import IntEnum
from typing import Final

import structlog

from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.header import batch_len
from fmqcore.journal.segments import usual_snap
from fmqport.disk import Disk, DiskFull

RESERVE: Final = "reserve"
"""Space that is ours whatever others write to the file system."""
CONTROL_BYTES: Final = 1024 * 1024
"""What a small segment has for control batches, beside its SNAP."""
KEPT_FOR_TERMS: Final = 4096
"""While there is little room, the last bytes of a segment are for what opens a term alone."""
_PAGE: Final = 4096
log = structlog.get_logger()


class Claim(IntEnum):
    """For whom a segment's file is made: the higher, the more of the free space it may use."""

    DATA = 0
    CONTROL = 1
    TERM = 2


def reserve_bytes(segment_bytes: int) -> int:
    """Of the reserve: a segment with the largest SNAP, and a checkpoint."""
    segment = control_segment(usual_snap(segment_bytes), segment_bytes)
    return segment + min(CONTROL_BYTES, segment_bytes)


def control_segment(snap_len: int, segment_bytes: int) -> int:
    """How long a segment for control batches alone is."""
    length = batch_len(snap_len) + CONTROL_BYTES
    return min((length + _PAGE - 1) // _PAGE * _PAGE, segment_bytes)


class Space:
    """See the module. `no_data` and `no_control` are empty, or say why those are refused."""

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
        """Empty, or why not everything is taken now."""
        return self.no_data or self.roll_blocked

    @property
    def reserved(self) -> bool:
        """Is the reserve there (or not wanted)?"""
        return self._reserve

    @property
    def low(self) -> str:
        """Empty, or how much less is free than the settings want to keep."""
        return self._low

    def affords(self, size: int) -> bool:
        """Is there room for a control segment of that size, as far as was seen last?"""
        return self._free >= 2 * size

    def lends(self, size: int) -> bool:
        """Is there room for a term's segment of that size, the reserve counted?"""
        return self._free + (self._held_bytes if self._reserve else 0) >= size

    def spend(self, size: int) -> None:
        """A segment was begun in memory; its file will follow."""
        self._free -= size

    # ---- what was found
    def note_full(self, why: str) -> None:
        """A derived file found no room: no more DATA until there is some."""
        if not self._no_room:
            log.error("journal: no room, messages are refused, reads go on", why=why)
        self._no_room = why
        self._settle()

    def note_stuck(self, why: str) -> None:
        """The writer found no room: nothing more is taken in until what waits is written."""
        if not self.no_control:
            log.error("journal: no room, nothing can be stored, reads go on", why=why)
        self.no_control = why
        self._settle()

    def note_unstuck(self) -> None:
        """A write went through."""
        if self.no_control:
            log.info("journal: what waited for room is written")
            self.no_control = ""
            self._settle()

    def note_room(self) -> None:
        """Nothing lacks room any more."""
        if self._no_room:
            log.info("journal: there is room again")
            self._no_room = ""
            self._settle()

    async def check(self) -> None:
        """Look at what is free."""
        self._free = await self._disk.free_bytes()
        low = self._too_low(self._free, self._kept)
        if low and not self._low:
            log.error("journal: little room, messages are refused, reads go on", why=low)
        self._low = low
        self._settle()

    async def require(self, size: int, claim: Claim) -> None:
        """Raise `DiskFull` if a file of that size leaves less than is kept from such a claim."""
        free = await self._disk.free_bytes()
        kept = self._kept if claim is Claim.DATA else 0
        if low := self._too_low(free, kept, size):
            raise DiskFull(f"a file of {size} bytes is wanted: {low}")
        self._free = min(self._free, free - size)

    # ---- the reserve
    def adopt_reserve(self, size: int) -> None:
        """At start: an earlier run left it."""
        self._reserve, self._held_bytes = True, size

    async def keep_reserve(self) -> None:
        """Make it if it is not there; without room for it, do without."""
        if self._reserve or self.tight:
            return
        try:
            await self.require(self._reserve_bytes, Claim.DATA)
            await (await self._disk.create(RESERVE, self._reserve_bytes)).close()
            self._reserve, self._missed = True, False
            self._held_bytes = self._reserve_bytes
        except DiskFull as error:
            if not self._missed:
                log.warning("journal: no room for a reserve", why=str(error))
            self._missed = True

    async def use_reserve(self) -> bool:
        """Give its space to whoever needs it now; False if there is none."""
        if not self._reserve:
            return False
        log.warning("journal: the reserve is used", bytes=self._held_bytes)
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
