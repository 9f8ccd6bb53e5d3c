"""Learn the topics that came and went within one segment, from their own CONFIG batch.

No SNAP names them. An id is never given twice, so a topic that was deleted and recreated has
several, some of which may be such. A request for topics by name needs all of them. Leaves nothing
on disk.
"""

from collections.abc import Sequence
from functools import partial

from fmqcore.batch.header import BatchType
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.segments import Segment
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqcore.scan.selection import EVERYTHING, Range
from fmqspark.source.access import first_of, open_bytes
from fmqspark.source.files import Throttle
from fmqspark.source.snaps import topic_names_in
from fmqspark.source.splits import require_all
from fmqspark.source.survey import SegmentView, Survey


def add_topic_names(found: Survey, within: Sequence[Range] = (EVERYTHING,)) -> None:
    """Learn the names of all topics that have records in these parts of the journal.

    Reads the headers of the segments whose SNAPs do not name them. Raises what reading raises.
    """
    for view in found.segments:
        here = Range(view.segment.base, view.until)
        if any(not here.cut(part).empty for part in within) and _grown(view) - found.names.keys():
            found.names |= _names_in(view)


def _grown(view: SegmentView) -> set[TopicId]:
    """Return the topics that have records there; of the newest segment all names are known."""
    after = view.after or {}
    return {key[0] for key, end in after.items() if end > view.before.get(key, Offset(0))}


def _names_in(view: SegmentView) -> dict[TopicId, str]:
    """Read each part from one that holds it, as records are read; a slave behind holds some."""
    names, begin = dict[TopicId, str](), view.segment.base
    ends = {end for _, end in view.partly if begin < end < view.segment.end}
    for end in (*sorted(ends), view.segment.end):
        part = partial(_names_of, view.segment, begin, end)
        names |= first_of(view.holders(end), part)
        begin = end
    return names


def _names_of(segment: Segment, begin: Position, end: Position, source: str) -> dict[TopicId, str]:
    names = dict[TopicId, str]()
    with open_bytes(source, segment.base, Throttle(0), end) as data:
        scan = HeaderScan(data.read, ScanRange(segment, begin, end))
        for block in scan:
            if BatchType.CONFIG in block.column("type"):
                names |= topic_names_in(data.read, segment.base, block)
    require_all(scan, end, f"{source}: ")
    return names
