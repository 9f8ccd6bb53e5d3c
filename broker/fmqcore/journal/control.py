"""Payloads of control batches: EPOCH, OFFSETS, CONFIG, DELIVER, SEAL (SNAP: `state.py`). Pure.

CONTRACT STUB (owner: journal formats). Little-endian, versioned by the batch header's version.
"""

from collections.abc import Mapping

from fmqcore.crc import Buffer
from fmqcore.journal.state import OffsetEntry, OffsetKey
from fmqcore.words import BrokerId, Epoch, TopicId


def encode_epoch(epoch: Epoch, master: BrokerId) -> bytes:
    """EPOCH: opens a master's term; the batch's own header already carries the new epoch."""
    raise NotImplementedError


def encode_offsets(entries: Mapping[OffsetKey, OffsetEntry]) -> bytes:
    """OFFSETS: consumer progress; replaces each key's entry if its version is higher."""
    raise NotImplementedError


def decode_offsets(payload: Buffer) -> dict[OffsetKey, OffsetEntry]:
    """Decode; raise `Malformed`."""
    raise NotImplementedError


def encode_topic(topic_id: TopicId, name: str, queues: int) -> bytes:
    """CONFIG: a topic as this group holds it (queues 0 = deleted)."""
    raise NotImplementedError
