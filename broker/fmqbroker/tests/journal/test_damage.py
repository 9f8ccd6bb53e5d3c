"""Damage found by a read: noted, reported, refused at the next start, forgotten if whole."""

from pathlib import Path

import pytest

from fmqbroker.journal.damage_notes import check_batches
from fmqbroker.tests.journal_kit import epoch, everything, fill, running
from fmqcore.batch.header import HEADER_LEN
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position
from fmqcore.journal.damage_note import SUSPECT

COUNT = 2000  # of 1000 bytes: 2 MB in segments of 64 KiB, more than the cache holds


async def filled(path: Path) -> list[Position]:
    async with running(path) as journal:
        journal.append(epoch(1))
        return fill(journal, COUNT)


def flip(path: Path, position: Position) -> Path:
    """Flip one bit in the payload of the batch that starts there."""
    file = max(f for f in path.glob("*.journal") if f.stem[0].isdigit() and int(f.stem) <= position)
    raw = bytearray(file.read_bytes())
    raw[position - int(file.stem) + HEADER_LEN + 50] ^= 4
    file.write_bytes(raw)
    return file


async def test_damage_in_sealed_segment_is_noted_on_read_then_refused(
    tmp_path: Path,
) -> None:
    at = (await filled(tmp_path))[100]
    file = flip(tmp_path, at)
    async with running(tmp_path) as journal:  # a start reads the newest segment only
        assert await journal.read_sound(journal.journal_start, 4096)
        assert journal.damage is None
        with pytest.raises(CorruptJournal, match=rf"{file.name}, position {at} .*payload CRC"):
            await journal.read_sound(at, 4096)
        assert journal.damage is not None
        assert (tmp_path / SUSPECT).read_bytes() == b"%d\n" % int(file.stem)
        assert await journal.read(at, 4096), "a plain read holds nothing against anything"
    for _ in range(2):
        with pytest.raises(CorruptJournal, match=file.name):
            async with running(tmp_path):
                pass
    flip(tmp_path, at)  # restored: only memory was wrong
    async with running(tmp_path) as journal:
        assert not (tmp_path / SUSPECT).exists()
        data = await everything(journal)
        assert check_batches(data)[1] is None


async def test_damage_in_newest_segment_is_refused_with_known_end(
    tmp_path: Path,
) -> None:
    at = (await filled(tmp_path))[-20]
    (tmp_path / SUSPECT).write_bytes(b"%d\n" % max(int(f.stem) for f in segments(tmp_path)))
    async with running(tmp_path):
        pass
    assert not (tmp_path / SUSPECT).exists(), "it was sound"
    flip(tmp_path, at)
    (tmp_path / SUSPECT).write_bytes(b"%d\n" % max(int(f.stem) for f in segments(tmp_path)))
    with pytest.raises(CorruptJournal):
        async with running(tmp_path):
            pass


@pytest.mark.parametrize("garbage", [b"", b"x\n", b"-5\n", b"999999999999\n", b"\xff\xfe"])
async def test_a_note_that_names_no_segment_does_not_count(tmp_path: Path, garbage: bytes) -> None:
    await filled(tmp_path)
    (tmp_path / SUSPECT).write_bytes(garbage)
    async with running(tmp_path):
        assert not (tmp_path / SUSPECT).exists()


def segments(path: Path) -> list[Path]:
    return [f for f in path.glob("*.journal") if f.stem[0].isdigit()]
