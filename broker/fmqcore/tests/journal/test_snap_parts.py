"""A SNAP is of one moment, and what it costs does not grow with what changed."""

from random import Random

from fmqcore.batch.control import decode_offsets_packed, encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.packed_entries import PAGE_ENTRIES
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.packed_queues import PackedQueues
from fmqcore.journal.segments import snap_batch
from fmqcore.journal.state import JournalState

GROUPS, QUEUES = 20, 500
KEYS = [OffsetKey(f"g{g}", TopicId(1 + q % 5), q) for g in range(GROUPS) for q in range(QUEUES)]


def put(state: JournalState, version: int) -> None:
    keys = list(KEYS)
    Random(version).shuffle(keys)
    for at in range(0, len(keys), 100):
        part = dict.fromkeys(keys[at : at + 100], OffsetEntry(version, Offset(version)))
        state.merge_offsets(decode_offsets_packed(encode_offsets(part)), store_ms=1)


def test_state_changed_later_then_the_payload_of_its_moment() -> None:
    state = JournalState()
    put(state, 1)
    state.next_offsets[TopicId(1), 0] = Offset(1)
    snapshot, payload = state.snapshot(0), state.to_snap(0)
    put(state, 2)
    state.next_offsets[TopicId(1), 0] = Offset(2)
    state.next_offsets[TopicId(1), 1] = Offset(2)
    assert state.to_snap(0) != payload
    assert snapshot.payload == payload
    assert JournalState.from_snap(payload).next_offsets == {(TopicId(1), 0): 1}


def test_all_entries_changed_then_parts_as_many_as_pages() -> None:
    """No part is joined of single entries in the turn of a roll."""
    state = JournalState()
    put(state, 1)
    parts = state.snapshot(0).parts
    put(state, 2)
    assert len(state.snapshot(0).parts) == len(parts)
    assert len(parts) <= 2 * (len(KEYS) // PAGE_ENTRIES + GROUPS)


def test_parts_then_length_and_checksum_of_the_payload() -> None:
    state = JournalState()
    put(state, 3)
    snapshot = state.snapshot(0)
    assert snapshot.payload_len == len(snapshot.payload)
    assert snapshot.payload_crc == crc32c(snapshot.payload)


def test_received_snap_then_equal_only_to_the_last_bit() -> None:
    state = JournalState()
    put(state, 3)
    snapshot, base = state.snapshot(0), Position(1 << 20)
    data, _ = snap_batch(
        base=base, payload=snapshot.payload, segment_bytes=1 << 20, epoch=Epoch(1),
        prev_header_crc=0, store_ms=1,
    )  # fmt: skip
    end = HEADER_LEN + snapshot.payload_len
    assert snapshot.is_at(HEADER_LEN, end, data)
    assert not snapshot.is_at(HEADER_LEN, end + 1, data + b"x")
    assert not snapshot.is_at(HEADER_LEN, end, data[: end - 1])
    for at in (HEADER_LEN, (HEADER_LEN + end) // 2, end - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        assert not snapshot.is_at(HEADER_LEN, end, bytes(changed))


def test_queues_in_any_order_then_packed_ascending() -> None:
    keys = [(TopicId(1 + number % 3), number) for number in range(2500)]
    Random(1).shuffle(keys)
    packed, offsets = PackedQueues(keys[:1000]), {key: Offset(key[1] << 30) for key in keys}
    for key in keys[1000:]:
        packed.add(key)
    state = JournalState(next_offsets=offsets)
    assert JournalState.from_snap(state.to_snap(0)).next_offsets == offsets
    assert packed.pack(offsets) == PackedQueues(sorted(keys)).pack(offsets)
    assert len(packed) == len(keys)
