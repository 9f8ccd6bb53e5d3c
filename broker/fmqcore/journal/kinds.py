"""The registry of batch kinds: one row for each, read by everything that reads a journal. Pure.

A new control batch is a number in `BatchType`, its codec (`batch/control.py`) and a row here:
recovery, replication, `fmq journal`, the verifier and the Spark jobs follow the row. DATA, EOF,
EPOCH and SNAP are the journal's structure: offsets, frames and terms. The scan kernels check those
four by themselves.

A version without a row for a kind skips its batches if the number has `SKIP_BIT`, and stops at the
first one if it has not (ADR 0061). A skipped batch is checked, stored, shipped and kept like all
others; it changes no state, and SNAP holds nothing of what it means.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fmqcore.batch.control import (
    decode_deliver,
    decode_epoch,
    decode_offsets,
    decode_offsets_packed,
    decode_seal,
    decode_topic,
)
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader, BatchType, kind_name
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.journal.state import JournalState

Content = Mapping[str, Any]
"""The content of a control batch as plain data, for JSON."""


def _nothing(_state: JournalState, _header: BatchHeader, _payload: Buffer) -> None:
    pass


def _no_content(_header: BatchHeader, _payload: Buffer) -> Content:
    return {}


@dataclass(frozen=True, slots=True)
class Kind:
    """One row.

    `decode` reads the payload and raises `Malformed`; None: no payload, or none to decode here.
    `apply` changes the journal's state by one batch; `by_payload`: it needs the payload, so a
    payload that does not decode stops a broker. `show` returns what `fmq journal` prints. `frame`:
    the journal writes it itself, at a segment's begin or end.
    """

    type: int
    decode: Callable[[Buffer], object] | None = None
    apply: Callable[[JournalState, BatchHeader, Buffer], None] = _nothing
    show: Callable[[BatchHeader, Buffer], Content] = _no_content
    by_payload: bool = False
    frame: bool = False

    @property
    def name(self) -> str:
        """The name that people read."""
        return kind_name(self.type)


# ---- what a batch changes
def _apply_data(state: JournalState, header: BatchHeader, _payload: Buffer) -> None:
    state.count(header)


def _apply_eof(state: JournalState, header: BatchHeader, _payload: Buffer) -> None:
    state.note_frame(header)


def _apply_epoch(state: JournalState, header: BatchHeader, _payload: Buffer) -> None:
    state.begin_epoch(header.epoch, header.position)


def _apply_offsets(state: JournalState, header: BatchHeader, payload: Buffer) -> None:
    state.merge_offsets(decode_offsets_packed(payload), header.store_ms)


def _apply_topic(state: JournalState, _header: BatchHeader, payload: Buffer) -> None:
    state.set_topic(decode_topic(payload))


def _apply_seal(state: JournalState, header: BatchHeader, payload: Buffer) -> None:
    state.note_seal(decode_seal(payload), header.end)


def _apply_snap(state: JournalState, header: BatchHeader, payload: Buffer) -> None:
    state.follow_snap(header, JournalState.from_snap(payload))


# ---- what people see
def _show_epoch(_header: BatchHeader, payload: Buffer) -> Content:
    return {"master": decode_epoch(payload).master}


def _show_offsets(_header: BatchHeader, payload: Buffer) -> Content:
    return {"progress": [_progress(*item) for item in decode_offsets(payload).items()]}


def _show_topic(_header: BatchHeader, payload: Buffer) -> Content:
    setting = decode_topic(payload)
    shown = {"topic_id": setting.topic_id, "name": setting.name, "queues": setting.queues}
    return shown | ({"properties": dict(setting.properties)} if setting.properties else {})


def _show_deliver(_header: BatchHeader, payload: Buffer) -> Content:
    return decode_deliver(payload)._asdict()


def _show_seal(_header: BatchHeader, payload: Buffer) -> Content:
    seal = decode_seal(payload)
    return {"topic_id": seal.topic_id, "segment": seal.segment, "ends": list(seal.ends)}


def _show_snap(header: BatchHeader, payload: Buffer) -> Content:
    state = JournalState.from_snap(payload)
    return {
        "segment_bytes": header.base_offset,
        "queues": len(state.next_offsets),
        "topics": len(state.topics),
        "progress_entries": len(state.offsets),
        "producers": len(state.producers),
        "epochs": len(state.epochs),
    }


def _show_skipped(header: BatchHeader, _payload: Buffer) -> Content:
    return {"skipped": "a newer FMQ wrote it", "payload_bytes": header.payload_len}


def _progress(key: OffsetKey, entry: OffsetEntry) -> Content:
    return {
        "group": key.group,
        "topic_id": key.topic_id,
        "queue": key.queue_id,
        "version": entry.version,
        "floor": None if entry.deleted else entry.floor,
        "ranges": [list(pair) for pair in entry.ranges],
    }


# ---- the rows
_ROWS: Final = (
    Kind(BatchType.DATA, apply=_apply_data),
    Kind(BatchType.EOF, apply=_apply_eof, frame=True),
    Kind(BatchType.EPOCH, decode_epoch, _apply_epoch, _show_epoch),
    Kind(BatchType.OFFSETS, decode_offsets, _apply_offsets, _show_offsets, by_payload=True),
    Kind(BatchType.CONFIG, decode_topic, _apply_topic, _show_topic, by_payload=True),
    Kind(BatchType.DELIVER, decode_deliver, show=_show_deliver),  # not written yet
    Kind(BatchType.SEAL, decode_seal, _apply_seal, _show_seal, by_payload=True),
    Kind(
        BatchType.SNAP, JournalState.from_snap, _apply_snap, _show_snap, by_payload=True, frame=True
    ),
)
_KINDS: Final[dict[int, Kind]] = {row.type: row for row in _ROWS}
assert _KINDS.keys() == set(BatchType), "each kind has one row"


def kind_of(kind: int) -> Kind:
    """Return the row of a parsed header's `type`; for one to skip, a row that does nothing.

    A kind that it must not skip never gets here: `parse_header` refuses it.
    """
    return _KINDS.get(kind) or Kind(kind, show=_show_skipped)


def apply_batch(state: JournalState, header: BatchHeader, payload: Buffer) -> None:
    """Apply one batch to the state, in journal order. DATA, EPOCH, EOF need no payload: pass b"".

    Raises `Malformed` for a payload that does not decode, if the state depends on it.
    """
    row = _KINDS.get(header.type)
    if row is not None:
        row.apply(state, header, payload)
