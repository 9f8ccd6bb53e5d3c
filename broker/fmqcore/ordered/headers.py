"""What the header of an ordered batch holds of sender and sequence. Pure.

The broker writes these three fields when it appends; Spark's checks compare them with the chain.
No broker decides by them: the sequence of a record follows from its offset (K13).
"""

from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import crc32c
from fmqcore.ids import TopicId

_SENDER: Final = Struct("<II")
_EPOCHS: Final = 2**16
_SEQUENCES: Final = 2**32


class HeaderSender(NamedTuple):
    """Fields of a batch header, by their names in `BatchHeader`."""

    producer_id: int  # CRC32C of topic id and sender epoch; never 0, which means no producer
    producer_epoch: int  # sender epoch mod 2^16
    base_sequence: int  # sequence of the first record mod 2^32


def header_sender(topic_id: TopicId, sender_epoch: int, sequence: int) -> HeaderSender:
    """Return the fields for a batch that starts with `sequence` of this sender epoch.

    Two sender epochs below 2^32 of one topic never have the same producer id.
    """
    crc = crc32c(_SENDER.pack(topic_id, sender_epoch % _SEQUENCES))
    return HeaderSender(crc or _SEQUENCES, sender_epoch % _EPOCHS, sequence % _SEQUENCES)


def sequence_of(base_sequence: int, near: int) -> int:
    """Return the sequence that is nearest to `near` and has these 32 low bits."""
    ahead = (base_sequence - near) % _SEQUENCES
    sequence = near + ahead - (_SEQUENCES if ahead > _SEQUENCES // 2 else 0)
    return sequence if sequence >= 0 else sequence + _SEQUENCES
