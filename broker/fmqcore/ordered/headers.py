"""What the header of an ordered batch holds of sender and sequence. Pure.

The broker writes these three fields when it appends; checks compare them with the chain. No broker
decides by them: the sequence of a record follows from its offset (K13).
"""

from typing import Final, NamedTuple

from fmqcore.batch.header import MAX_PRODUCER_EPOCH

_SEQUENCES: Final = 2**32


class HeaderSender(NamedTuple):
    """Fields of a batch header, by their names in `BatchHeader`."""

    producer_id: int  # 0: the producer table must not count it, `judge_batch` knows repeats
    producer_epoch: int  # sender epoch mod 2^16
    base_sequence: int  # sequence of the first record mod 2^32


def header_sender(sender_epoch: int, sequence: int) -> HeaderSender:
    """Return the fields for a batch that starts with `sequence` of this sender epoch."""
    return HeaderSender(0, sender_epoch & MAX_PRODUCER_EPOCH, sequence % _SEQUENCES)


def sequence_of(base_sequence: int, near: int) -> int:
    """Return the sequence that is nearest to `near` and has these 32 low bits."""
    ahead = (base_sequence - near) % _SEQUENCES
    sequence = near + ahead - (_SEQUENCES if ahead > _SEQUENCES // 2 else 0)
    return sequence if sequence >= 0 else sequence + _SEQUENCES
