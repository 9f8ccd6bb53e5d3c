"""Recovery: what a start reads, decides and repairs to open a data directory's journal.

The decisions are pure (`fmqcore.journal.recovery`); this file does the reading between them and
executes them: leftovers are removed, a torn tail is truncated and the rest of the file zeroed
durably, what remains is written again where it may never have reached the disk, and fsynced. Damage
below the durable end is never truncated: `CorruptJournal`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import structlog

from fmqbroker.journal.catalog import Catalog
from fmqbroker.journal.damage_notes import forget, noted
from fmqbroker.journal.disk_space import RESERVE
from fmqbroker.journal.loss_flags import Doubts
from fmqbroker.journal.segment_scan import scan_segment
from fmqbroker.journal.store import SPARE, SegmentStore, StoredSegment
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.crc import extend
from fmqcore.batch.header import BatchHeader
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fmqcore.journal.derived import DerivedIndex
from fmqcore.journal.findings import Code, Finding, Severity, refusal, warning
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import (
    Clean,
    Cut,
    Refuse,
    SegmentFile,
    Survey,
    check_length,
    judge,
    judge_sealed,
    replaying,
    survey,
)
from fmqcore.journal.resume_file import RESUME, Resume, decode_resume
from fmqcore.journal.scan import Blank, Cursor, Scan, Stop
from fmqcore.journal.segments import CHECKPOINT, Segment
from fmqcore.journal.state import JournalState
from fmqcore.turns import Turns
from fmqport.disk import Disk, DiskFile, DiskFull

_ALIKE: Final = 4
_STEP: Final = 4 * 1024 * 1024
log = structlog.get_logger()


class Loaded(NamedTuple):
    """The result of scanning the newest segment's batches."""

    end: Position
    state: JournalState
    built: SegmentIndex
    epoch: Epoch
    last_header_crc: int | None  # None: nothing good is in it
    last_ms: int
    stop: Stop
    cursor: Cursor
    raw_crc: int | None = None  # of the file's bytes below `end`, if that was looked at


class _Index(SegmentIndex):
    """A segment's index, with the store time of the segment's last batch of any type."""

    def __init__(self, base: Position) -> None:
        super().__init__(base)
        self.last_ms = 0

    def add(self, header: BatchHeader) -> None:
        self.last_ms = header.store_ms
        super().add(header)


class Recovered(NamedTuple):
    """The parts of an open journal; `loaded` is None for a journal without a batch."""

    store: SegmentStore
    catalog: Catalog
    loaded: Loaded | None
    known_commit_end: Position
    clean: bool
    unclean: bool  # the checkpoint on the disk says no more than that all this was durable
    doubts: Doubts


async def recover(
    disk: Disk, store: SegmentStore, indexes: Sequence[DerivedIndex[Any]] = ()
) -> Recovered:
    """Recover the locked directory; `indexes` beside the queue index. Raises `CorruptJournal`."""
    checkpoint, damaged = await _read_checkpoint(disk)
    listing = await disk.list()
    found = survey(listing, checkpoint, damaged=damaged, suffixes=store.suffixes)
    _refuse(disk, found.refusal)
    for finding in found.findings:
        log.warning("journal_recovery", finding=str(finding))
    for name in found.leftovers:
        await disk.remove(name)
    store.journal_start = found.journal_start
    for file in found.segments:
        store.add(file.base, file.end, on_disk=True)
    if (reserved := dict(listing).get(RESERVE)) is not None:
        store.space.adopt_reserve(reserved)
    clean = checkpoint is not None and checkpoint.clean
    suspect = await noted(disk, store)
    if suspect is not None and suspect is not store.last:
        await _load_sealed(disk, store, suspect)
    in_full = suspect is store.last
    loaded, whole = await _recover_last(disk, store, found, checkpoint, in_full=in_full)
    await forget(disk)
    if loaded is not None:
        await _make_durable(store, loaded.end, loaded.end if clean else found.durable_end)
        # As long as the master's segments; a few small ones may be from times without room.
        store.next_bytes = max(segment.size for segment in store.segments[-_ALIKE:])
    files = dict(listing)
    if (size := files.get(SPARE)) is not None:
        await store.adopt_spare(size)
    catalog = Catalog(store, indexes)
    end = loaded.end if loaded else store.journal_start
    commit_end = await _commit_end(disk, store, checkpoint, end)
    await fill_catalog(store, catalog, loaded, commit_end)
    # F17: without a readable checkpoint, what the directory had fsynced is unknown.
    had_cut = checkpoint is None or checkpoint.tail_lost
    unclean = checkpoint is not None and not clean and checkpoint.drop_from is None
    unclean = unclean and (whole or had_cut)
    orderly, tail_lost = clean and whole, not whole or had_cut
    lacks = not orderly or (checkpoint is not None and checkpoint.lacks)
    mark = checkpoint.acked_under if checkpoint else 0
    unproven = checkpoint is None or checkpoint.unproven
    doubts = Doubts(lacks=lacks, tail_lost=tail_lost, unproven=unproven, acked_under=mark)
    return Recovered(store, catalog, loaded, commit_end, orderly, unclean, doubts)


async def load_segment(
    store: SegmentStore,
    segment: StoredSegment,
    until: Position | None = None,
    resume: Resume | None = None,
) -> Loaded:
    """Scan a segment, in full, from `resume` on, or up to `until`, into state and index."""
    cursor, state, index = Cursor(segment.base), JournalState(), _Index(segment.base)
    if resume is not None:
        cursor, state, index = await in_turns(_resuming(resume))

    def visit(scan: Scan) -> Turns[Stop]:
        return replaying(scan, state, index)

    stop = await scan_segment(store, segment, cursor, visit, until=until)
    return Loaded(
        end=stop.position,
        state=state,
        built=index,
        epoch=cursor.epoch or Epoch(0),
        last_header_crc=cursor.prev_header_crc,
        last_ms=index.last_ms,
        stop=stop,
        cursor=cursor,
    )


async def fill_catalog(
    store: SegmentStore, catalog: Catalog, loaded: Loaded | None, commit_end: Position
) -> None:
    """Add the existing segments to the catalog, the newest one as it was scanned."""
    if loaded is None:
        return
    last = store.segments[-1]
    await catalog.load_uncommitted(commit_end)
    parts = await catalog.scanned(last, loaded.built, loaded.end)
    catalog.begin(last, await catalog.start_of(last), parts)
    catalog.first = await catalog.start_of(store.segments[0])


async def _recover_last(
    disk: Disk,
    store: SegmentStore,
    found: Survey,
    checkpoint: Checkpoint | None,
    *,
    in_full: bool,
) -> tuple[Loaded | None, bool]:
    """Scan, judge and repair the newest segment; also return whether no repair was needed."""
    segment, clean = store.last, checkpoint is not None and checkpoint.clean
    if segment is None:
        return None, True
    file = await store.readable(segment)
    resume = None if in_full else await read_resume(disk, file, segment, found.cut_at)
    loaded = await load_segment(store, segment, found.cut_at, resume)
    if found.cut_at is not None:
        await forget_above(disk, loaded.end)
    at, crc = (resume.position, resume.raw_crc) if resume else (segment.base, 0)
    raw_crc = await _raw_crc(file, at - segment.base, loaded.end - segment.base, crc)
    loaded = loaded._replace(raw_crc=raw_crc)
    dirty = isinstance(loaded.stop, Blank) and not await _is_zero(file, loaded.end - segment.base)
    verdict = judge(loaded.stop, file.name, durable_end=found.durable_end, clean=clean, dirty=dirty)
    match verdict:
        case Refuse():
            _refuse(disk, verdict.finding)
        case Cut():
            log.warning("journal_recovery", finding=str(verdict.finding))
            await _note_cut(disk, store, checkpoint)
        case Clean():
            pass
    if loaded.end == segment.base:
        await store.remove(store.part_from(segment.base))
        return await _recover_sealed(disk, store), isinstance(verdict, Clean)
    length = check_length(loaded.cursor.segment, SegmentFile(segment.base, file.size))
    _refuse(disk, length if length and length.severity is Severity.ERROR else None)
    if loaded.cursor.segment is not None:
        segment.end = loaded.cursor.segment.end
    if file.size < segment.size:  # else the next start takes what follows for too far away
        await file.write([(segment.size - 1, [b"\0"])], sync=True)
    if isinstance(verdict, Cut):
        await store.wipe_from(segment, loaded.end)
    return loaded, isinstance(verdict, Clean)


async def _note_cut(disk: Disk, store: SegmentStore, checkpoint: Checkpoint | None) -> None:
    """Record a truncation before the unreadable bytes go: else the next start would not know.

    Raises `DiskFull`; then nothing goes.
    """
    if checkpoint is not None and not checkpoint.tail_lost:
        await _note(disk, store, checkpoint._replace(clean=False, tail_lost=True))


async def _commit_end(
    disk: Disk, store: SegmentStore, checkpoint: Checkpoint | None, end: Position
) -> Position:
    """Return the known commit end, bounded by the journal's end if committed bytes are lost.

    Another history may follow there: nothing in it would be known to be committed, and no batch
    need start at the old commit end. So the bound is recorded before any append (R4, R5).
    """
    if checkpoint is None or checkpoint.commit_end <= end:
        return checkpoint.commit_end if checkpoint else Position(0)
    now, _ = await _read_checkpoint(disk)  # a cut was noted in it, maybe
    await _note(disk, store, (now or checkpoint)._replace(commit_end=end))
    return end


async def _note(disk: Disk, store: SegmentStore, noted: Checkpoint) -> None:
    try:
        await disk.replace_file(CHECKPOINT, encode_checkpoint(noted))
    except DiskFull:
        if not await store.space.use_reserve():
            raise
        await disk.replace_file(CHECKPOINT, encode_checkpoint(noted))


async def _recover_sealed(disk: Disk, store: SegmentStore) -> Loaded | None:
    """Load the segment before an empty newest one; it must be whole."""
    segment = store.last
    return None if segment is None else await _load_sealed(disk, store, segment)


async def _load_sealed(disk: Disk, store: SegmentStore, segment: StoredSegment) -> Loaded:
    """Load a segment that must be whole. Raises `CorruptJournal`."""
    loaded = await load_segment(store, segment)
    if refuse := judge_sealed(loaded.stop, SegmentFile(segment.base, segment.size)):
        _refuse(disk, refuse.finding)
    return loaded


async def _make_durable(store: SegmentStore, end: Position, durable_end: Position) -> None:
    """D3: sync what was found, and rewrite what is not known to be durable.

    If an fsync failed before this start, the kernel shows these bytes as clean without having
    written them: a sync alone would change nothing.
    """
    segment = store.segments[-1]
    file = await store.readable(segment)
    at = max(durable_end, segment.base)
    while at < end:
        data = await file.read(at - segment.base, min(_STEP, end - at))
        await file.write([(at - segment.base, [data])], sync=False)
        at = Position(at + len(data))
    await file.write([], sync=True)


async def _read_checkpoint(disk: Disk) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint, and why it does not decode."""
    data = await disk.read_file(CHECKPOINT)
    try:
        return (None if data is None else decode_checkpoint(data)), ""
    except Malformed as error:
        log.warning("journal_checkpoint_unreadable", reason=str(error))
        return None, str(error)


async def read_resume(
    disk: Disk, file: DiskFile, segment: StoredSegment, until: Position | None
) -> Resume | None:
    """Return the resume file's content if it matches the segment's file, else None."""
    data = await disk.read_file(RESUME)
    if data is None:
        return None
    try:
        resume = decode_resume(data)
    except Malformed as error:
        log.warning("journal_resume_file_unreadable", reason=str(error))
        return None
    if resume.base != segment.base or (until is not None and until < resume.position):
        return None  # of an older segment, or of what is being cut
    if await _raw_crc(file, 0, resume.position - segment.base, 0) != resume.raw_crc:
        sentence = f"its checksum does not match {file.name} below {resume.position}"
        finding = warning(Code.M001, RESUME, None, sentence, "nothing: the segment is scanned")
        log.warning("journal_recovery", finding=str(finding))
        return None
    return resume


async def forget_above(disk: Disk, position: Position) -> None:
    """Remove the resume file if it covers bytes behind `position`, a truncation's place.

    Other bytes are written there next, and each start would find that the file does not fit.
    """
    data = await disk.read_file(RESUME)
    if data is None:
        return
    with suppress(Malformed):  # the next start reports it
        if decode_resume(data).position > position:
            await disk.remove(RESUME)


def _resuming(resume: Resume) -> Turns[tuple[Cursor, JournalState, "_Index"]]:
    state = yield from JournalState.decoding_snap(resume.snap)
    index = yield from _Index.decoding(resume.entries)
    index.last_ms = resume.last_ms
    cursor = Cursor(
        resume.position,
        resume.last_header_crc,
        resume.epoch,
        Segment(resume.base, resume.end),
        dict(state.next_offsets),
        complete=True,
    )
    return cursor, state, index


async def _raw_crc(file: DiskFile, at: int, end: int, crc: int) -> int:
    while at < end:
        data = await file.read(at, min(_STEP, end - at))
        if not data:
            break
        crc = extend(crc, data)
        at += len(data)
    return crc


async def _is_zero(file: DiskFile, at: int) -> bool:
    zeros = bytes(_STEP)
    while data := await file.read(at, _STEP):
        if data != zeros[: len(data)]:
            return False
        at += len(data)
    return True


def _refuse(disk: Disk, finding: Finding | None) -> None:
    if finding is not None:
        raise refusal(disk.path, finding)
