"""A small pure journal writer for tests: batches in, the files of a data directory out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fmqcore.batch.columns import encode
from fmqcore.batch.control import encode_epoch, encode_offsets, encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    HEADER_LEN,
    BatchHeader,
    BatchType,
    batch_len,
    encode_header,
    padding,
    parse_header,
    seal_header,
)
from fmqcore.ids import BrokerId, Epoch, Position, TopicId
from fmqcore.journal.checkpoint import Checkpoint, encode_checkpoint
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.segments import (
    CHECKPOINT,
    MIN_SEGMENT,
    NO_TERM,
    eof_batch,
    fits,
    index_name,
    segment_name,
    snap_batch,
    snap_room,
)
from fmqcore.journal.state import JournalState, OffsetEntry, OffsetKey


class JournalWriter:
    """Appends as a broker would; `segments` maps a base to its bytes so far."""

    def __init__(
        self, segment_bytes: int = MIN_SEGMENT, base: int = 0, state: JournalState | None = None
    ) -> None:
        self.segment_bytes = segment_bytes
        self.state = state or JournalState()
        self.end = Position(base)
        self.epoch = Epoch(0)
        self.now_ms = 1_700_000_000_000
        self.corrected_from_ms = 0  # of the next SNAP
        self.segments: dict[Position, bytearray] = {}
        self.headers: list[BatchHeader] = []
        self._prev_crc = 0
        self._begin()

    def append(self, type: int, payload: bytes, **fields: Any) -> BatchHeader:
        """Append one batch, starting a new segment if it does not fit."""
        if not fits(self.end, batch_len(len(payload)), self._segment_end):
            self.roll(Epoch(fields["epoch"]) if type == BatchType.EPOCH else NO_TERM)
        if type == BatchType.EPOCH:
            self.epoch = Epoch(fields.pop("epoch"))
        raw, _ = encode_header(
            type=cast(BatchType, type),
            position=self.end,
            epoch=self.epoch,
            prev_header_crc=self._prev_crc,
            payload_len=len(payload),
            payload_crc=crc32c(payload),
            store_ms=self.now_ms,
            **fields,
        )
        return self._put(raw + payload + padding(len(payload)))

    def data(self, topic: int, queue: int, values: Sequence[bytes], **fields: Any) -> BatchHeader:
        """Append a DATA batch at the queue's next offset."""
        attrs, payload = encode(values, keys=[b"k%d" % len(v) for v in values])
        offset = self.state.next_offsets.get((TopicId(topic), queue), 0)
        return self.append(
            BatchType.DATA,
            payload,
            **{
                "attrs": attrs,
                "topic_id": topic,
                "queue_id": queue,
                "record_count": len(values),
                "base_offset": offset,
                **fields,
            },
        )

    def open_epoch(self, epoch: int, master: str = "g1-0") -> BatchHeader:
        return self.append(
            BatchType.EPOCH, encode_epoch(Epoch(epoch), BrokerId(master)), epoch=epoch
        )

    def offsets(self, entries: Mapping[OffsetKey, OffsetEntry]) -> BatchHeader:
        return self.append(BatchType.OFFSETS, encode_offsets(entries))

    def topic(self, topic: int, name: str, queues: int) -> BatchHeader:
        return self.append(BatchType.CONFIG, encode_topic(TopicId(topic), name, queues))

    def roll(self, term: Epoch = NO_TERM) -> None:
        """Close the segment with an EOF (unless exactly full) and start the next.

        The EOF is framed for `term` if a term was open before.
        """
        end = self._segment_end
        framed_for = term if self.epoch else NO_TERM
        if self.end != end:
            raw, _ = eof_batch(
                position=self.end,
                segment_end=end,
                epoch=self.epoch,
                prev_header_crc=self._prev_crc,
                store_ms=self.now_ms,
                framed_for=framed_for,
            )
            self._put(raw)
        assert self.end == end
        self._begin(framed_for)

    @property
    def last_base(self) -> Position:
        return max(self.segments)

    @property
    def prev_crc(self) -> int:
        return self._prev_crc

    def index(self, base: int) -> bytes:
        """Return the index of one segment."""
        index = SegmentIndex(Position(base))
        for header in self.headers:
            if base <= header.position < base + self.segment_bytes:
                index.add(header)
        return index.encode()

    def checkpoint(self, **changes: Any) -> Checkpoint:
        """Return a checkpoint as of now: unclean, all durable unless another end is named."""
        durable_end = changes.get("durable_end", self.end)
        ends = {header.end: header.header_crc for header in self.headers}
        checkpoint = Checkpoint(
            journal_start=min(self.segments),
            durable_end=durable_end,
            commit_end=self.end,
            last_header_crc=ends.get(durable_end, 0),
            clean=False,
            bases=tuple(self.segments),
            epochs=tuple(e for e in self.state.epochs if e[1] < durable_end),
        )
        return checkpoint._replace(**changes)

    def files(self, checkpoint: Checkpoint | None = None) -> dict[str, bytes]:
        """Return the directory's files: segments preallocated, sealed ones with indexes."""
        files = {CHECKPOINT: encode_checkpoint(checkpoint)} if checkpoint else {}
        for base, data in self.segments.items():
            files[segment_name(base)] = bytes(data) + bytes(self.segment_bytes - len(data))
            if base != self.last_base:
                files[index_name(base)] = self.index(base)
        return files

    @property
    def _segment_end(self) -> Position:
        return Position(self.last_base + self.segment_bytes)

    def _begin(self, framed_for: Epoch = NO_TERM) -> None:
        base = self.end
        self.segments[base] = bytearray()
        raw, _ = snap_batch(
            base=base,
            segment_bytes=self.segment_bytes,
            epoch=self.epoch,
            prev_header_crc=self._prev_crc,
            payload=self.state.to_snap(self.now_ms, *snap_room(self.segment_bytes)),
            store_ms=self.now_ms,
            framed_for=framed_for,
            corrected_from_ms=self.corrected_from_ms,
        )
        self.corrected_from_ms = 0
        self._put(raw)

    def _apply(self, header: BatchHeader, payload: bytes) -> None:
        apply_batch(self.state, header, payload)

    def _put(self, raw: bytes) -> BatchHeader:
        header = parse_header(raw)
        self._apply(header, raw[96 : 96 + header.payload_len])
        self.segments[self.last_base] += raw
        self.headers.append(header)
        self.end = header.end
        self._prev_crc = header.header_crc
        self.now_ms += 1000
        return header


class DeafWriter(JournalWriter):
    """A writer that accepts all content that a newer version may have written."""

    def _apply(self, header: BatchHeader, payload: bytes) -> None:
        pass


SKIPPED, UNKNOWN = 0x91, 0x09
"""Kinds that a next version may write: this one skips the first and must not skip the second."""


def newer(kind: int = SKIPPED, batches: int = 60) -> JournalWriter:
    """Return a journal like `sample` in which a next version wrote batches of `kind`, too."""
    writer = sample(batches=batches)
    if kind == UNKNOWN:  # the writer is this version's: the batch gets its kind afterwards
        header = writer.append(SKIPPED, b"a next version's")
        return _with_kind(writer, header, kind)
    for number in range(20):
        writer.append(kind, b"a next version's %d" % number * number, topic_id=7, queue_id=1)
        writer.data(7, number % 4, [b"x" * 3000] * 3)
    writer.roll()
    writer.append(kind, b"at a segment's begin")
    return writer


def _with_kind(writer: JournalWriter, header: BatchHeader, kind: int) -> JournalWriter:
    raw, _ = seal_header(header._replace(type=kind))
    at = header.position - writer.last_base
    writer.segments[writer.last_base][at : at + HEADER_LEN] = raw
    return writer


def sample(segment_bytes: int = MIN_SEGMENT, batches: int = 40, base: int = 0) -> JournalWriter:
    """Return a journal with every batch type in use, over a few segments."""
    writer = JournalWriter(segment_bytes, base)
    writer.open_epoch(1)
    writer.topic(7, "orders", 4)
    for n in range(batches):
        values = [b"v%d-%d" % (n, i) + b"x" * (700 * (n % 3)) for i in range(1 + n % 5)]
        writer.data(7, n % 4, values, producer_id=11, producer_epoch=1, base_sequence=n)
        if n == batches // 2:
            writer.open_epoch(2, "g1-0")
        if n % 9 == 0:
            key = OffsetKey("billing", TopicId(7), n % 4)
            entry = OffsetEntry(n + 1, writer.state.next_offsets[TopicId(7), n % 4])
            writer.offsets({key: entry})
    return writer
