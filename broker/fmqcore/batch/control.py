"""Payloads of control batches: EPOCH, OFFSETS, CONFIG, DELIVER, SEAL (SNAP: `state.py`). Pure.

Little-endian; versioned by the batch header's version. The byte diagrams are in
`docs/reference/file-format.md`. DELIVER (delayed messages) has only its encoding here: no code
writes or obeys it yet.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer
from fmqcore.batch.fields import Fields, encode_name
from fmqcore.batch.offset_entry import (
    OffsetEntry,
    OffsetKey,
    cost_of,
    decode_entry,
    encode_entry,
)
from fmqcore.errors import Malformed
from fmqcore.ids import MAX_QUEUES, BrokerId, Epoch, Position, TopicId
from fmqcore.properties import NONE, Properties
from fmqcore.turns import PIECE, Turns, finish

_EPOCH: Final = Struct("<I")
_COUNT: Final = Struct("<I")
_CONFIG: Final = Struct("<HIH")
_DELIVER: Final = Struct("<QIIQ")
_SEAL: Final = Struct("<IHHQ")
_SEAL_END: Final = Struct("<Q")
_TOPIC_KIND: Final = 1


class EpochOpened(NamedTuple):
    """An EPOCH payload."""

    epoch: Epoch
    master: BrokerId


class TopicSetting(NamedTuple):
    """A CONFIG payload of kind 1: a topic as this group holds it; queues 0 = deleted."""

    topic_id: TopicId
    name: str
    queues: int
    properties: Properties = NONE


class Deliver(NamedTuple):
    """A DELIVER payload: where the stored bytes of a message that is now due are."""

    source: Position
    source_len: int  # total_len of the source batch
    source_header_crc: int
    deliver_at_ms: int


class Seal(NamedTuple):
    """A SEAL payload: this group takes no more records into one segment of an ordered topic."""

    topic_id: TopicId
    segment: int  # its number in the topic's chain
    ends: tuple[int, ...]  # per queue: offset after the segment's last record


def encode_epoch(epoch: Epoch, master: BrokerId) -> bytes:
    """Encode EPOCH: it opens a master's term; the batch's own header has the new epoch, too."""
    return _EPOCH.pack(epoch) + encode_name(master)


def decode_epoch(payload: Buffer) -> EpochOpened:
    """Decode EPOCH; raise `Malformed`."""
    fields = Fields(payload, "EPOCH payload")
    (epoch,) = fields.take(_EPOCH)
    opened = EpochOpened(Epoch(epoch), BrokerId(fields.name()))
    fields.done()
    return opened


def encode_offsets(entries: Mapping[OffsetKey, OffsetEntry]) -> bytes:
    """Encode OFFSETS: consumer progress; `offsets.merge` defines which entry wins."""
    return finish(encoding_offsets(entries, sorted(entries)))


def encoding_offsets(
    entries: Mapping[OffsetKey, OffsetEntry], keys: Iterable[OffsetKey], *, thin: bool = False
) -> Turns[bytes]:
    """Encode the entries under `keys` in pieces; `thin`: without the ranges above the floors.

    The table may change between two pieces: each entry is encoded as it is when its turn comes, and
    one that is gone by then is left out. That suffices where each later change is encoded again,
    because no entry depends on another.
    """
    pieces, parts, count, cost = list[bytes](), list[bytes](), 0, 0
    for key in keys:
        entry = entries.get(key)
        if entry is None:
            continue
        parts.append(encode_entry(key, entry._replace(ranges=()) if thin else entry))
        cost += cost_of(entry)
        if cost >= PIECE:
            count += len(parts)
            pieces.append(b"".join(parts))
            parts, cost = [], 0
            yield
    pieces.append(b"".join(parts))
    return b"".join((_COUNT.pack(count + len(parts)), *pieces))


def decode_offsets(payload: Buffer) -> dict[OffsetKey, OffsetEntry]:
    """Decode OFFSETS; raise `Malformed`."""
    return finish(decoding_offsets(payload))


def decoding_offsets(payload: Buffer) -> Turns[dict[OffsetKey, OffsetEntry]]:
    """Like `decode_offsets`, in pieces; `payload` must not change meanwhile."""
    fields = Fields(payload, "OFFSETS payload")
    (count,) = fields.take(_COUNT)
    entries: dict[OffsetKey, OffsetEntry] = {}
    cost = 0
    for _ in range(count):
        key, entry = decode_entry(fields)
        entries[key] = entry
        cost += cost_of(entry)
        if cost >= PIECE:
            cost = 0
            yield
    _require_all(fields, len(entries), count)
    return entries


def decode_offsets_packed(payload: Buffer) -> dict[OffsetKey, tuple[OffsetEntry, bytes]]:
    """Decode OFFSETS, each entry with its own bytes; raise `Malformed`."""
    fields = Fields(payload, "OFFSETS payload")
    (count,) = fields.take(_COUNT)
    entries: dict[OffsetKey, tuple[OffsetEntry, bytes]] = {}
    for _ in range(count):
        at = fields.at
        key, entry = decode_entry(fields)
        entries[key] = (entry, fields.since(at))
    _require_all(fields, len(entries), count)
    return entries


def _require_all(fields: Fields, found: int, count: int) -> None:
    fields.done()
    if found != count:
        raise Malformed("OFFSETS payload does not decode: a key occurs twice")


def encode_topic(topic_id: TopicId, name: str, queues: int, properties: Properties = NONE) -> bytes:
    """Encode CONFIG: a topic as this group holds it (queues 0 = deleted); raise `Malformed`."""
    if not 0 <= queues <= MAX_QUEUES:
        raise Malformed(f"topic {name} has {queues} queues, at most {MAX_QUEUES}")
    head = _CONFIG.pack(_TOPIC_KIND, topic_id, queues) + encode_name(name)
    return head + (encode_properties(properties) if properties else b"")


def decode_topic(payload: Buffer) -> TopicSetting:
    """Decode CONFIG; raise `Malformed`."""
    fields = Fields(payload, "CONFIG payload")
    kind, topic_id, queues = fields.take(_CONFIG)
    if kind != _TOPIC_KIND:
        raise fields.malformed(f"unknown kind {kind}, written by a newer FMQ: upgrade this one")
    if queues > MAX_QUEUES:
        raise fields.malformed(f"{queues} queues, at most {MAX_QUEUES}")
    name = fields.name()
    properties = take_properties(fields) if fields.at < len(payload) else NONE
    fields.done()
    return TopicSetting(TopicId(topic_id), name, queues, properties)


def encode_properties(properties: Properties) -> bytes:
    """Encode a topic's properties: their length, and a JSON object; raise `Malformed`."""
    raw = properties.encode()
    return _COUNT.pack(len(raw)) + raw


def take_properties(fields: Fields) -> Properties:
    """Decode a topic's properties; raise `Malformed`."""
    (length,) = fields.take(_COUNT)
    return Properties.decode(fields.raw(length))


def encode_deliver(deliver: Deliver) -> bytes:
    """Encode DELIVER: a delayed message is due."""
    return _DELIVER.pack(*deliver)


def decode_deliver(payload: Buffer) -> Deliver:
    """Decode DELIVER; raise `Malformed`."""
    fields = Fields(payload, "DELIVER payload")
    source, length, crc, deliver_at_ms = fields.take(_DELIVER)
    fields.done()
    return Deliver(Position(source), length, crc, deliver_at_ms)


def encode_seal(seal: Seal) -> bytes:
    """Encode SEAL: where a segment of an ordered topic ends in this group."""
    head = _SEAL.pack(seal.topic_id, len(seal.ends), 0, seal.segment)
    return head + b"".join(map(_SEAL_END.pack, seal.ends))


def decode_seal(payload: Buffer) -> Seal:
    """Decode SEAL; raise `Malformed`."""
    fields = Fields(payload, "SEAL payload")
    topic_id, queues, _, segment = fields.take(_SEAL)
    ends = tuple(end for (end,) in fields.many(_SEAL_END, queues))
    fields.done()
    return Seal(TopicId(topic_id), segment, ends)
