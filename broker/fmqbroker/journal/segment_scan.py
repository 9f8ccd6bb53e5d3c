"""Scans one segment's file in windows, so that memory stays small, and in turns of the loop."""

from collections.abc import Callable
from typing import Final

from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.header import BatchFault
from fmqcore.ids import Position
from fmqcore.journal.scan import Cursor, Fault, Scan, Sealed, Stop
from fmqcore.turns import Turns

WINDOW_BYTES: Final = 2 * 1024 * 1024

Visit = Callable[[Scan], Turns[Stop]]
"""Runs a scan to its end, in pieces, and returns why it ended."""


async def scan_segment(
    store: SegmentStore,
    segment: StoredSegment,
    cursor: Cursor,
    visit: Visit,
    *,
    payloads: bool = True,
    until: Position | None = None,
) -> Stop:
    """Scan from `cursor` on: `visit` gets one `Scan` per window, all over the same cursor.

    Returns why the scan ended. Raises `NotFound` if the segment was removed meanwhile.
    """
    window = WINDOW_BYTES
    while True:
        start = cursor.position
        data = await store.read(segment, start - segment.base, window)
        stop = await in_turns(visit(Scan(data, start, cursor, payloads=payloads, until=until)))
        if len(data) < window or isinstance(stop, Sealed):  # the file's end
            return stop
        if until is not None and cursor.position >= until:
            return stop
        if isinstance(stop, Fault) and stop.fault is BatchFault.CONTENT:
            return stop
        if cursor.position > start:
            continue  # perhaps only the window ended there: look again with a fresh one
        if isinstance(stop, Fault) and stop.fault is BatchFault.SHORT:
            window *= 4  # a batch larger than the window
            continue
        return stop
