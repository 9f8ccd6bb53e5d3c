"""Which part of a slave's suffix is control batches alone, and may go to a term that is not set."""

import pytest

from fmqcore.batch.header import BatchType, encode_header, padding
from fmqcore.ids import Epoch, Position
from fmqcore.replication.frames import end_of_batches, leading_control, leading_work


def batch(
    kind: BatchType, *, segment: int = 0, payload: bytes = b"12345", length: int = 0
) -> bytes:
    header, _ = encode_header(
        type=kind,
        position=Position(64),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=len(payload),
        payload_crc=0,
        store_ms=0,
        base_offset=segment,
        **({"total_len": length} if length else {}),
    )
    return header + payload + padding(len(payload))


EPOCH, OFFSETS = batch(BatchType.EPOCH), batch(BatchType.OFFSETS, payload=b"x" * 20)
DATA = batch(BatchType.DATA)
SMALL, LARGE = (batch(BatchType.SNAP, segment=8 * 1024 * 1024 + more) for more in (0, 8))
EOF = batch(BatchType.EOF, payload=b"", length=4096)


@pytest.mark.parametrize(
    ("batches", "leading"),
    [
        ([], 0),
        ([DATA], 0),
        ([EPOCH], 1),
        ([EPOCH, OFFSETS, DATA, EPOCH], 2),
        ([SMALL, EPOCH], 2),  # a segment that may hold control batches alone
        ([LARGE, EPOCH], 0),
        ([EPOCH, LARGE], 1),
        ([OFFSETS, EOF], 2),  # the EOF is sent as its header and stands for all that follows
        ([EOF], 1),
        ([DATA, EOF], 0),
    ],
)
def test_the_control_batches_before_the_first_record(batches: list[bytes], leading: int) -> None:
    assert leading_control(b"".join(batches)) == b"".join(batches[:leading])


@pytest.mark.parametrize(
    ("batches", "leading"),
    [
        ([], 0),
        ([DATA] * 10, 10),
        ([DATA] * 11, 10),
        ([OFFSETS] * 3, 2),  # each has room for three entries or four, with its header
        ([DATA] * 5 + [OFFSETS] * 2, 6),
        ([batch(BatchType.OFFSETS, payload=b"x" * 4096), DATA], 1),  # never none
        ([DATA] * 9 + [EOF], 10),
        ([LARGE, DATA], 2),
    ],
)
def test_a_message_has_as_much_as_a_short_turn_applies(batches: list[bytes], leading: int) -> None:
    assert leading_work(b"".join(batches), 10) == b"".join(batches[:leading])


@pytest.mark.parametrize(
    ("batches", "length"),
    [
        ([], 0),
        ([DATA], len(DATA)),
        ([OFFSETS, DATA, EPOCH], len(OFFSETS) + len(DATA) + len(EPOCH)),
        ([DATA, EOF], len(DATA) + 4096),
        ([EOF], 4096),
    ],
)
def test_batches_end_where_the_next_one_begins(batches: list[bytes], length: int) -> None:
    assert end_of_batches(Position(64), b"".join(batches)) == 64 + length
