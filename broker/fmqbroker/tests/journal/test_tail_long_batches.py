"""A long batch's pieces are joined after the turn of the loop that added it."""

import pytest

from fmqbroker.journal.tail_cache import BLOCK_BYTES, Tail
from fmqcore.ids import Position

PIECES = [bytes([number]) * 100_000 for number in range(60)]
LENGTH = sum(map(len, PIECES))


def a_tail() -> Tail:
    """A long batch between two short ones."""
    tail = Tail(Position(0), 1 << 30)
    tail.add((b"a" * 96,), 96, Position(96))
    tail.add_long(PIECES, LENGTH, Position(96 + LENGTH))
    tail.add((b"z" * BLOCK_BYTES,), BLOCK_BYTES, Position(96 + LENGTH + BLOCK_BYTES))
    return tail


def all_bytes(tail: Tail) -> bytes:
    return b"".join(block.data for block in tail.blocks_from(Position(0), 1 << 30))


EXPECTED = b"a" * 96 + b"".join(PIECES) + b"z" * BLOCK_BYTES


def test_long_batch_then_joined_by_the_first_reader() -> None:
    tail = a_tail()
    assert tail.held == len(EXPECTED)
    assert list(tail._unjoined.values()) == [PIECES]
    assert tail.read(Position(96), LENGTH) == b"".join(PIECES)
    assert not tail._unjoined
    assert all_bytes(tail) == EXPECTED
    assert tail.held == len(EXPECTED)


@pytest.mark.parametrize("position", [0, 96, 96 + LENGTH])
def test_long_batch_cut_then_nothing_comes_back(position: int) -> None:
    tail = a_tail()
    tail.cut(Position(position))
    assert all_bytes(tail) == EXPECTED[:position]
    assert (tail.end, tail.held) == (position, position)


def test_short_batch_then_no_block_of_its_own() -> None:
    tail = Tail(Position(0), 1 << 30)
    tail.add_long((b"a" * 96,), 96, Position(96))
    tail.add((b"b" * 96,), 96, Position(192))
    assert [block.data for block in tail.blocks_from(Position(0), 1)] == [b"a" * 96 + b"b" * 96]
