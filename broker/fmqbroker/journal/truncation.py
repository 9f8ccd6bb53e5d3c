"""Makes the journal shorter: truncation to a batch boundary, reset, retention.

Order of effects (D5). Truncation and reset: a checkpoint that names what is void, then files are
removed (newest first), the rest of the truncated file is zeroed and a `resume` file of that part
removed, then a checkpoint without it; so the next start finishes what a crash interrupts.
Retention: a checkpoint with the new `journal_start`, then the files go, oldest first. A started
operation is finished even if the task that asked for it is cancelled. All three make room, so what
they write before may use the reserve.

A concurrent reader sees the journal as it was or as it will be: all its parts get shorter in one
step, before the first file goes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from fmqbroker.journal.components import Parts
from fmqbroker.journal.recovery import Loaded, forget_above, load_segment, read_resume
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.ids import Position
from fmqcore.journal.resume_file import RESUME
from fmqport.disk import DiskFailed, DiskFull

T = TypeVar("T")
Adopt = Callable[[Loaded | None], None]
"""Continues from the tail's end, with what is left of the newest segment (`Head.adopt`)."""
log = structlog.get_logger()


async def cut(parts: Parts, position: Position, adopt: Adopt) -> None:
    """Truncate to `position`, a batch boundary.

    All below it must be durable; above it, some may be neither written nor have a file. The
    flusher's `turn` must be held. Raises `NotFound`, `InvalidArgument`, `DiskFull`.
    """
    store = parts.store
    _require_below(parts, position)
    keep = next((s for s in reversed(store.segments) if s.base < position), None)
    loaded = await _load_below(store, keep, position) if keep else None
    if loaded is not None and loaded.end != position:
        raise NotFound(f"no batch ends at position {position}, so the journal is not cut there")
    start = await parts.catalog.start_of(keep) if keep else None
    kept = await parts.catalog.scanned(keep, loaded.built, position) if keep and loaded else None
    log.warning("journal_truncated", end=parts.tail.end, to=position)
    await parts.checkpoints.write_with_reserve(drop_from=position)
    with _no_way_back():
        parts.tail.cut(position)
        void = store.part_from(position)
        if keep is None or kept is None or start is None:
            parts.catalog.clear()
        else:
            parts.catalog.cut(keep, start, kept)
        parts.reader.forget()
        parts.flusher.cut(position, (loaded.last_header_crc if loaded else None) or 0)
        adopt(loaded)
        await store.remove(void)
        if keep is not None and position < keep.end:
            await store.wipe_from(keep, position)
        await forget_above(store.disk, position)
        await parts.checkpoints.write()


async def _load_below(store: SegmentStore, keep: StoredSegment, position: Position) -> Loaded:
    """Scan the segment below `position`, from the resume file on if that counts."""
    resume = await read_resume(store.disk, await store.readable(keep), keep, position)
    return await load_segment(store, keep, position, resume)


async def reset(parts: Parts, position: Position, adopt: Adopt) -> None:
    """Drop everything; the journal is then empty at `position`. The flusher's `turn` is held."""
    log.warning("journal_reset", end=parts.tail.end, new_start=position)
    await parts.checkpoints.write_reset(position)
    with _no_way_back():
        parts.tail.restart(position)
        void = parts.store.part_from(Position(0))
        parts.store.journal_start = position
        parts.catalog.clear()
        parts.reader.forget()
        parts.flusher.cut(position, 0)
        adopt(None)
        await parts.store.remove(void)
        await parts.store.disk.remove(RESUME)
        await parts.checkpoints.write()


async def retire(
    parts: Parts,
    keep_from: Position,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    seen_ms: dict[Position, int],
) -> int:
    """See `Journal.retire`. The newest segment always stays, and so does what an index needs.

    `seen_ms`: when this broker first saw a segment. A store time of the future comes from a clock
    that was ahead; the segment is then as old as its first sight, or as the next correction.
    """
    store = parts.store
    keep_from = min(keep_from, parts.flusher.durable_end)
    for base in [base for base in seen_ms if base < store.journal_start]:
        del seen_ms[base]
    for segment in store.segments:
        seen_ms.setdefault(segment.base, now_ms)
    count = 0
    for segment, following in zip(store.segments, store.segments[1:], strict=False):
        if segment.end > keep_from:
            break
        # Nothing in a segment is younger than the SNAP of the one behind it.
        store_ms = (await parts.catalog.start_of(following)).store_ms
        if store_ms > now_ms:
            corrections = await parts.catalog.corrections()
            later = [c.store_ms for c in corrections if c.base > following.base]
            store_ms = min([store_ms, *later])
        age_ms = now_ms - min(store_ms, seen_ms.get(following.base, now_ms))
        held = parts.tail.end - segment.base
        if not (retention_ms and age_ms > retention_ms) and not (
            retention_bytes and held > retention_bytes
        ):
            break
        if await parts.catalog.low_watermark(segment) is not None:
            break  # an index needs something in it
        count += 1
    if not count:
        return 0
    before = store.journal_start
    store.journal_start = store.segments[count].base
    try:
        await parts.checkpoints.write_with_reserve()
    except DiskFull:
        store.journal_start = before
        raise
    parts.tail.drop_below(store.journal_start)
    # R7: a concurrent lookup must not find an offset still listed and then return the next.
    await parts.catalog.begin_at(store.segments[count])
    for _ in range(count):
        await store.drop_first()
    parts.catalog.forget_first()
    log.info("journal_retired", from_=before, to=store.journal_start)
    return store.journal_start - before


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even if the caller is cancelled; then pass the cancellation on.

    A failure that must end the process has done so within `work` (D3): the cancellation wins.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as caught:
            cancelled = caught
    if cancelled is not None:
        task.exception()  # seen
        raise cancelled
    return task.result()


@contextmanager
def _no_way_back() -> Iterator[None]:
    """Make `DiskFull` fatal once something is void: the next start finishes the operation."""
    try:
        yield
    except DiskFull as error:
        raise DiskFailed(
            f"the truncation of the journal cannot be finished: {error}; free disk space: the next "
            "start finishes it"
        ) from error


def _require_below(parts: Parts, position: Position) -> None:
    if not parts.store.journal_start <= position <= parts.tail.end:
        raise NotFound(
            f"cannot truncate at {position}: the journal is [{parts.store.journal_start}, "
            f"{parts.tail.end})"
        )
    if position < parts.checkpoints.commit_end and position < parts.tail.end:
        # R5; `commit_end` may be past the journal's end: then nothing committed can be lost.
        raise InvalidArgument(
            f"will not truncate at {position}: the journal is committed up to "
            f"{parts.checkpoints.commit_end}"
        )
