"""An index with too many entries, or entries out of order."""

from pathlib import Path
from struct import pack_into, unpack_from

import pytest

from fmqcore.batch.crc import crc32c
from fmqcore.journal.index import ENTRY_LEN, IndexFile
from fmqspark.tests.kit import check, code_rows
from fmqspark.tests.test_code_limits import INDEX, SEALED, index_of


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("queue", [-1, 0])
def test_i004_duplicate_entry_of_an_existing_batch(a: Path, queue: int, offset: int) -> None:
    index = bytearray(index_of(SEALED))
    _, at, length = IndexFile(bytes(index)).queues[queue]
    end = at + length * ENTRY_LEN
    entry = bytearray(index[end - ENTRY_LEN : end])
    pack_into("<Q", entry, 0, unpack_from("<Q", entry, 0)[0] + offset)
    index[end:end] = entry
    for count in (32, 48 + 16 * (queue % len(IndexFile(index_of(SEALED)).queues))):
        pack_into("<Q", index, count, unpack_from("<Q", index, count)[0] + 1)
    pack_into("<I", index, 8, crc32c(bytes(index[12:])))
    (a / INDEX).write_bytes(index)
    last = unpack_from("<Q", entry, 8)[0]
    assert code_rows(check(a)) == [("I004", "error", last)]


def test_i005_descending_entries_are_reported_with_their_place(a: Path) -> None:
    index = bytearray(index_of(SEALED))
    _, at, _ = IndexFile(bytes(index)).queues[1]
    first, second = (bytes(index[at + n : at + n + ENTRY_LEN]) for n in (0, ENTRY_LEN))
    index[at : at + 2 * ENTRY_LEN] = second + first
    pack_into("<I", index, 8, crc32c(bytes(index[12:])))
    (a / INDEX).write_bytes(index)
    assert code_rows(check(a)) == [("I005", "error", unpack_from("<Q", second, 8)[0])]
