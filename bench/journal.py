"""A data directory for benchmarks, written as a broker stores it: segments, indexes, checkpoint."""

from pathlib import Path
from typing import BinaryIO, Final

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, batch_len, encode_header, padding, parse_header
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.checkpoint import Checkpoint, encode_checkpoint
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.segments import (
    CHECKPOINT,
    eof_batch,
    fits,
    index_name,
    segment_name,
    snap_batch,
)
from fmqcore.journal.state import JournalState

SEGMENT: Final = 128 * 1024 * 1024
_TOPIC: Final = TopicId(7)
_QUEUES: Final = 8
_EPOCH: Final = Epoch(0)
_MS: Final = 1_700_000_000_000


class JournalFile:
    """Append batches, then `close`."""

    def __init__(self, folder: Path, segment: int = SEGMENT) -> None:
        folder.mkdir()
        self._segment = segment
        self._folder = folder
        self._state = JournalState(topics={_TOPIC: ("flights", _QUEUES)})
        self._crc = 0
        self._at = Position(0)
        self._bases: list[Position] = []
        self._turn = 0
        self._file: BinaryIO | None = None
        self._begin()

    def add(self, attrs: int, payload: bytes, records: int) -> None:
        """The next batch, to the queues in turn."""
        length = batch_len(len(payload))
        if not fits(self._at, length, self._end):
            self._roll()
        queue = self._turn % _QUEUES
        self._turn += 1
        offset = self._state.next_offsets.get((_TOPIC, queue), Offset(0))
        header, self._crc = encode_header(
            type=BatchType.DATA,
            position=self._at,
            epoch=_EPOCH,
            prev_header_crc=self._crc,
            payload_len=len(payload),
            payload_crc=crc32c(payload),
            store_ms=_MS + self._turn,
            attrs=attrs,
            queue_id=queue,
            topic_id=_TOPIC,
            record_count=records,
            base_offset=offset,
        )
        self._state.next_offsets[_TOPIC, queue] = Offset(offset + records)
        self._put(header + payload + padding(len(payload)))

    def close(self) -> None:
        """A full-length newest segment, and a checkpoint: all is durable and committed."""
        assert self._file is not None, "closed once"
        self._file.truncate(self._segment)
        self._file.close()
        checkpoint = Checkpoint(
            Position(0), self._at, self._at, self._crc, True, tuple(self._bases)
        )
        (self._folder / CHECKPOINT).write_bytes(encode_checkpoint(checkpoint))

    @property
    def _end(self) -> Position:
        return Position(self._bases[-1] + self._segment)

    def _begin(self) -> None:
        self._bases.append(self._at)
        self._index = SegmentIndex(self._at)
        self._file = (self._folder / segment_name(self._at)).open("wb", buffering=1024 * 1024)
        raw, self._crc = snap_batch(
            base=self._at,
            segment_bytes=self._segment,
            epoch=_EPOCH,
            prev_header_crc=self._crc,
            payload=self._state.to_snap(_MS),
            store_ms=_MS + self._turn,
        )
        self._put(raw)

    def _roll(self) -> None:
        if self._at != self._end:
            raw, self._crc = eof_batch(
                position=self._at,
                segment_end=self._end,
                epoch=_EPOCH,
                prev_header_crc=self._crc,
                store_ms=_MS + self._turn,
            )
            self._put(raw)
        assert self._file is not None, "a segment is open"
        self._file.truncate(self._segment)
        self._file.close()
        (self._folder / index_name(self._bases[-1])).write_bytes(self._index.encode())
        self._begin()

    def _put(self, raw: bytes) -> None:
        assert self._file is not None, "a segment is open"
        self._file.write(raw)
        header = parse_header(raw[:96])
        self._index.add(header)
        self._at = header.end
