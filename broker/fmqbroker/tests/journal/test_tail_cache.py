"""The tail cache against a plain list of batches."""

import random

import pytest

from fmqbroker.journal.tail_cache import Tail
from fmqcore.errors import NotFound
from fmqcore.ids import Position


class Model:
    """Batches as (start, end, bytes, closes); appended to both."""

    def __init__(self, chance: random.Random) -> None:
        self.tail = Tail(Position(0), 3000)
        self.batches: list[tuple[int, int, bytes, bool]] = []
        self.chance = chance

    def add(self) -> None:
        chance, tail = self.chance, self.tail
        for _ in range(chance.randrange(1, 6)):
            length = 8 * chance.randrange(1, 40)
            start, raw = tail.end, bytes([chance.randrange(256)]) * length
            end = Position(start + length)
            closes = chance.random() < 0.1
            if closes and chance.random() < 0.7:  # an EOF reaches further than its bytes
                end = Position(end + 8 * chance.randrange(20))
            tail.add((raw[:5], raw[5:]), length, end)
            if closes:
                tail.close_segment()
            self.batches.append((start, end, raw, closes))

    def read(self, position: int, max_bytes: int) -> bytes:
        taken, size = list[bytes](), 0
        for start, _, raw, closes in self.batches:
            if start < position:
                continue
            if taken and size + len(raw) > max_bytes:
                break
            taken.append(raw)
            size += len(raw)
            if closes:
                break
        return b"".join(taken)


@pytest.mark.parametrize("seed", range(30))
def test_reads_are_whole_batches_within_one_segment(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    tail, written = model.tail, Position(0)
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                model.add()
            case 2:
                blocks = tail.blocks_from(written, chance.randrange(2000))
                expected = model.read(written, 10**9)
                assert expected.startswith(b"".join(b.data for b in blocks))
                written = blocks[-1].end if blocks else written
                assert not any(b.closes_segment for b in blocks[:-1])
            case 3:
                tail.evict(written)
                assert tail.start <= written
            case 4 if model.batches:
                cut = chance.choice(model.batches[-6:])[0]
                if cut >= tail.start:
                    tail.cut(Position(cut))
                    model.batches = [b for b in model.batches if b[0] < cut]
                    written = min(written, Position(cut))
                    assert tail.end == cut
            case _:
                tail.seal()
        for start, *_ in model.batches:
            got = tail.read(Position(start), limit := chance.randrange(1200))
            assert got == (model.read(start, limit) if start >= tail.start else None)
        assert tail.read(tail.end, 100) == b""
        assert tail.held == sum(
            len(raw) for start, _, raw, _ in model.batches if start >= tail.start
        )


def test_a_whole_block_is_given_without_a_copy() -> None:
    tail = Tail(Position(0), 1000)
    tail.add((b"x" * 64,), 64, Position(64))
    tail.seal()
    assert tail.read(Position(0), 1000) is tail.read(Position(0), 64)
    assert tail.blocks_from(Position(0), 1)[0].data is tail.read(Position(0), 64)


def test_read_where_no_batch_starts_is_refused() -> None:
    tail = Tail(Position(0), 1000)
    tail.add((b"x" * 64,), 64, Position(64))
    for length in (1000, 1):
        with pytest.raises(NotFound):
            tail.read(Position(8), length)
