"""Read what a segment holds about itself: its SNAP, its headers, the topics that they name.

Leaves nothing on disk.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fmqcore.batch.control import TopicSetting, decode_topic
from fmqcore.batch.header import (
    HEADER_LEN,
    BadBatch,
    BatchHeader,
    BatchType,
    check_payload,
    kind_name,
    parse_header,
)
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import FmqError, InvalidArgument, Malformed
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.scan import Fault
from fmqcore.journal.segments import Segment, segment_of_snap
from fmqcore.journal.snap_payload import snap_tables
from fmqcore.scan.headers import HeaderBlock, Read, ScanRange, scan_headers
from fmqcore.scan.payloads import damaged
from fmqspark.source.access import open_bytes
from fmqspark.source.files import Throttle
from fmqspark.source.replicas import Replica


class Ends(Mapping[QueueKey, Offset]):
    """Next offsets of queues in 16 bytes each.

    There are as many tables as segments, all at once, and a queue in a dictionary takes seven times
    that.
    """

    __slots__ = ("_ends", "_keys")

    def __init__(self, ends: Mapping[QueueKey, Offset]) -> None:
        packed = sorted((topic << 16 | queue, end) for (topic, queue), end in ends.items())
        self._keys = array("Q", [key for key, _ in packed])
        self._ends = array("Q", [end for _, end in packed])

    def __getitem__(self, key: QueueKey) -> Offset:
        packed = key[0] << 16 | key[1]
        at = bisect_left(self._keys, packed)
        if at == len(self._keys) or self._keys[at] != packed:
            raise KeyError(key)
        return Offset(self._ends[at])

    def __iter__(self) -> Iterator[QueueKey]:
        return ((TopicId(key >> 16), key & 0xFFFF) for key in self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Snap(NamedTuple):
    """The content of a segment's first batch."""

    segment: Segment
    header_crc: int
    prev_header_crc: int  # of the batch before it, which ends the segment before
    store_ms: int
    next_offsets: Mapping[QueueKey, Offset]
    names: dict[TopicId, str]
    second: tuple[Position, int] | None = None  # the batch behind it: where, and its header CRC
    corrected_from_ms: int = 0  # see `BatchHeader`

    @property
    def marks(self) -> dict[int, int]:
        """Header CRCs, by position, that distinguish its journal from all others.

        Each header names the batch before it, so a segment's first one stands for all below. A
        journal's very first one shows only when it was written, so there the second one is added.
        """
        first = {int(self.segment.base): self.header_crc}
        return first if self.second is None else first | {self.second[0]: self.second[1]}


def snap_of(base: Position, replica: Replica) -> Snap:
    """Return a replica's own SNAP. Raises `CorruptJournal`, `OSError`, `BrokerGone`."""
    return read_snap(replica.path, base, replica.until(base))


def headers_of(
    segment: Segment, until: Position, replica: Replica
) -> tuple[HeaderBlock, dict[TopicId, str]]:
    """Return a replica's headers of a segment below `until`, and the topics that they name.

    Raises `CorruptJournal`, `OSError`, `BrokerGone`.
    """
    if replica.end < until:
        raise damaged(segment.base, replica.end, f"{replica.path} ends there")
    with open_bytes(replica.path, segment.base, Throttle(0), until) as data:
        headers, done = scan_headers(data.read, ScanRange(segment, segment.base, until))
        if done.position < until:
            why = done.stop if isinstance(done.stop, Fault) else "nothing is there"
            raise damaged(segment.base, done.position, why, f"{replica.path}: ")
        return headers, topic_names_in(data.read, segment.base, headers)


def counted(headers: HeaderBlock) -> dict[QueueKey, Offset]:
    """Return the next offsets of the queues that have batches among these headers."""
    names = ("type", "topic_id", "queue_id", "base_offset", "record_count")
    return {
        (TopicId(topic), queue): Offset(base + count)
        for kind, topic, queue, base, count in zip(*map(headers.column, names), strict=True)
        if kind == BatchType.DATA
    }


def goes_on(snap: Snap, behind: Snap) -> None:
    """Raise `CorruptJournal` if a time or offset falls from one segment to the next.

    Such a segment, of another journal or an older one, would be left out as one that holds nothing.
    A time may fall at a correction.
    """
    if max(behind.store_ms, behind.corrected_from_ms) < snap.store_ms:
        back = "was stored"
    elif any(behind.next_offsets.get(key, end) < end for key, end in snap.next_offsets.items()):
        back = "counts the queues' messages as"
    else:
        return
    base = snap.segment.base
    why = f"the segment behind it, at {snap.segment.end}, {back} before it: one is not of here"
    raise damaged(base, base, why)


def same_journal(snap: Snap, holders: Sequence[Replica]) -> None:
    """Raise `InvalidArgument` if the replicas' segments begin with different SNAPs.

    What replicas know to be committed is the same bytes.
    """
    base = snap.segment.base
    for replica in holders if len(holders) > 1 else ():
        try:
            head = Position(base + HEADER_LEN)
            with open_bytes(replica.path, base, Throttle(0), head) as data:
                header = parse_header(data.read(HEADER_LEN, 0))
        except (BadBatch, OSError, FmqError):
            continue  # its own damage: its reader reports it
        if header.position != base or header.type != BatchType.SNAP:
            continue  # as well: another segment's bytes
        if header.header_crc != snap.header_crc:
            raise InvalidArgument(
                f"{replica.path} and {holders[0].path} are not replicas of one journal: their "
                f"segments at {base} start differently; name the directories of one group"
            )


def read_snap(path: str, base: Position, until: Position) -> Snap:
    """Return a segment's first batch. Raises `CorruptJournal`, `OSError`, `BrokerGone`."""
    with open_bytes(path, base, Throttle(0), until) as data:
        try:
            header = parse_header(data.read(HEADER_LEN, 0))
            if header.position != base or header.type != BatchType.SNAP:
                raise Malformed(f"it begins with a {kind_name(header.type)}")
            segment = segment_of_snap(header)
            if segment is None:
                raise Malformed(f"its SNAP states a segment of {header.base_offset} bytes")
            payload = data.read(header.payload_len, HEADER_LEN)
            check_payload(header, payload)
            next_offsets, names = snap_tables(payload)
            second = _second(data.read, header, until)
        except (BadBatch, Malformed) as error:
            raise damaged(base, base, error, f"{path}: ") from error
    ends = Ends(next_offsets)
    crcs = (header.header_crc, header.prev_header_crc)
    return Snap(segment, *crcs, header.store_ms, ends, names, second, header.corrected_from_ms)


def _second(read: Read, first: BatchHeader, until: Position) -> tuple[Position, int] | None:
    """Return place and header CRC of a journal's second batch; None if there is none."""
    if first.position or first.end + HEADER_LEN > until:
        return None
    try:
        header = parse_header(read(HEADER_LEN, first.end))
    except (BadBatch, OSError):  # its reader reports it
        return None
    follows = (header.position, header.prev_header_crc) == (first.end, first.header_crc)
    return (header.position, header.header_crc) if follows else None


def topic_names_in(read: Read, base: Position, headers: HeaderBlock) -> dict[TopicId, str]:
    """Return the topics that CONFIG batches among these headers name. Raises `CorruptJournal`."""
    return {s.topic_id: s.name for _, s in topic_settings_in(read, base, headers)}


def topic_settings_in(
    read: Read, base: Position, headers: HeaderBlock
) -> Iterator[tuple[Position, TopicSetting]]:
    """Return the topics in CONFIG batches among these headers. Raises `CorruptJournal`."""
    configs = [i for i, kind in enumerate(headers.column("type")) if kind == BatchType.CONFIG]
    for i in configs:
        header = parse_header(headers.header_bytes(i))
        payload = read(header.payload_len, header.position - base + HEADER_LEN)
        try:
            check_payload(header, payload)
            setting = decode_topic(payload)
        except (BadBatch, Malformed) as error:
            raise damaged(base, header.position, error) from error
        yield header.position, setting
