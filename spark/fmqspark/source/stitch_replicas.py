"""Join the headers of a segment from several replicas where no replica has them all.

It also checks that the replicas that have a range have the same. Each stretch is of one replica,
below the end up to which that replica knows it to be committed, and its first batch names the last
one before it. So all that is joined is one history; replicas that contradict each other are not
joined. Leaves nothing on disk.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from fmqcore.batch.header import HEADER_LEN, BatchFault
from fmqcore.errors import CorruptJournal, FmqError
from fmqcore.ids import Position, TopicId
from fmqcore.journal.scan import Fault
from fmqcore.journal.segments import Segment, segment_name
from fmqcore.scan.headers import HeaderBlock, ScanRange, scan_headers
from fmqcore.scan.payloads import damaged
from fmqspark.source.access import open_bytes
from fmqspark.source.brokers import is_broker
from fmqspark.source.files import Throttle
from fmqspark.source.replicas import Replica
from fmqspark.source.snaps import topic_names_in


class Joined(NamedTuple):
    """Headers from a segment's base on, and the topics that they name."""

    headers: HeaderBlock
    names: dict[TopicId, str]
    end: Position  # of what could be given
    why: FmqError | OSError | None  # the segment goes on, and no replica gives it


class _Stretch(NamedTuple):
    """Headers that one replica gives from some position on."""

    replica: Replica
    end: Position
    headers: HeaderBlock = HeaderBlock()
    names: dict[TopicId, str] = {}  # noqa: RUF012  # no code adds to it
    why: FmqError | OSError | None = None


def join(
    segment: Segment, until: Position, holders: Sequence[Replica], notices: list[str]
) -> Joined:
    """Join headers as far as some replica goes; `notices` gets which replicas others replaced.

    Raises `CorruptJournal` if two that know the same to be committed have not the same.
    """
    at, raw, names = segment.base, bytearray(), dict[TopicId, str]()
    last: _Stretch | None = None
    while at < until:
        tried = [_stretch(segment, at, until, r, last) for r in holders if r.end > at]
        best = max(tried, key=lambda each: each.end, default=None)
        if best is None or best.end == at:
            failures = [each.why for each in tried if each.why is not None]
            why = failures[0] if failures else damaged(segment.base, at, "no replica continues")
            return Joined(HeaderBlock(bytes(raw)), names, at, why)
        for each in tried:
            if not best.headers.raw.startswith(each.headers.raw):
                raise _contradict(segment, at, each.replica, best.replica)
        notices += [
            f"{each.replica.path} cannot give what {best.replica.path} can: {each.why}"
            for each in tried
            if each.why is not None and each.end < best.end
        ]
        raw += best.headers.raw
        names |= best.names
        at, last = best.end, best
    return Joined(HeaderBlock(bytes(raw)), names, at, None)


def _stretch(
    segment: Segment, at: Position, until: Position, replica: Replica, last: _Stretch | None
) -> _Stretch:
    """Return a replica's stretch. Raises `CorruptJournal` if it does not follow `last`."""
    reach, prev = min(replica.end, until), None
    if last is not None:
        prev = last.headers.column("header_crc")[-1]
    try:
        with open_bytes(replica.path, segment.base, Throttle(0), reach) as data:
            headers, done = scan_headers(data.read, ScanRange(segment, at, reach, prev))
            names = topic_names_in(data.read, segment.base, headers)
    except (FmqError, OSError) as error:
        return _Stretch(replica, at, why=error)
    if done.position >= reach:
        return _Stretch(replica, done.position, headers, names)
    stop = done.stop if isinstance(done.stop, Fault) else None
    if last and stop and stop.fault == BatchFault.CHAIN and stop.position == at:
        raise _contradict(segment, at, replica, last.replica)
    reason = stop or "nothing is there"
    why = damaged(segment.base, done.position, reason, f"{replica.path}: ")
    return _Stretch(replica, done.position, headers, names, why)


def require_alike(segment: Segment, holders: Sequence[Replica], known: HeaderBlock) -> None:
    """Raise `CorruptJournal` if two replicas differ up to where one ends in this segment.

    What the one gives, and what the other goes on with, would be no history. Each header names the
    one before it, so the last one stands for all. `known`: headers that some replica gave. A live
    broker follows its master, and is not asked.
    """
    for one in holders if len(holders) > 1 else ():
        if is_broker(one.path) or not segment.base < one.end <= segment.end:
            continue
        if _holds(one, segment, known, one.end):
            continue
        own = _headers_of(one, segment, one.end)
        for other in holders:
            if other is one or other.end < one.end or _holds(other, segment, own, one.end):
                continue
            theirs = _headers_of(other, segment, one.end)
            for i in range(min(len(own), len(theirs))):
                if own.header_bytes(i) != theirs.header_bytes(i):
                    raise _contradict(segment, own.column("position")[i], one, other)


def _holds(replica: Replica, segment: Segment, headers: HeaderBlock, end: Position) -> bool:
    """Return whether a replica holds the last of these headers below `end`, unchanged."""
    positions = headers.column("position")
    last = bisect_left(positions, end) - 1
    if last < 0 or positions[last] + headers.column("total_len")[last] > end:
        return False
    try:
        with open_bytes(replica.path, segment.base, Throttle(0), end) as data:
            found = data.read(HEADER_LEN, positions[last] - segment.base)
    except (FmqError, OSError):
        return False
    return found == headers.header_bytes(last)


def _headers_of(replica: Replica, segment: Segment, end: Position) -> HeaderBlock:
    """Return a replica's headers as far as they can be read; their reader reports damage."""
    try:
        with open_bytes(replica.path, segment.base, Throttle(0), end) as data:
            return scan_headers(data.read, ScanRange(segment, segment.base, end))[0]
    except (FmqError, OSError):
        return HeaderBlock()


def _contradict(segment: Segment, at: int, one: Replica, other: Replica) -> CorruptJournal:
    return CorruptJournal(
        f"{segment_name(segment.base)}: {one.path} and {other.path} contradict each other in the "
        f"batches around position {at}; run `fmq job check` on both directories, and leave out "
        "the one that it blames"
    )
