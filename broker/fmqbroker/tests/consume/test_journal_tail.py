"""Progress that a reader recovers from a damaged or incomplete end of the journal."""

from pathlib import Path

import pytest

from fmqbroker.consume.offsets.journal_tail import offsets_above
from fmqbroker.consume.offsets.side_journal import SideJournal
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.consume_harness import Rig, at, key, running
from fmqbroker.tests.journal_kit import SEGMENT, epoch, fill
from fmqbroker.tests.journal_kit import running as running_journal
from fmqcore.batch.control import decode_offsets
from fmqcore.batch.header import HEADER_LEN
from fmqcore.ids import Position
from fmqcore.zk.group_state import Mode
from fmqport.disk import DiskFailed, DiskFile, DiskFull


async def two_entries(rig: Rig, *, cached: bool = True) -> Position:
    """Store 5 for queue 0, then 9 for queue 1; return where the second batch starts."""
    await rig.offsets.put(at(rig, 5))
    second = rig.journal.end
    await rig.offsets.put(at(rig, 9, queue=1))
    await rig.journal.wait_durable(rig.journal.end)
    if not cached:
        tail = rig.journal._parts.tail
        tail.seal()
        tail._cache_bytes = 0
        tail.evict(rig.journal.written_end)
        assert tail.start == tail.end
    return second


def flip(path: Path, at_byte: int) -> None:
    """Flip one bit of the first segment's file."""
    with (path / "00000000000000000000.journal").open("r+b") as file:
        file.seek(at_byte)
        byte = file.read(1)[0]
        file.seek(at_byte)
        file.write(bytes([byte ^ 16]))


@pytest.mark.parametrize("where", ["header", "payload"])
async def test_flipped_bit_is_not_read_as_progress(tmp_path: Path, where: str) -> None:
    async with running(Rig(tmp_path)) as rig:
        second = await two_entries(rig, cached=False)
        body = (await rig.journal.read(second, 4096))[HEADER_LEN:]
        floor = body.index((9).to_bytes(8, "little"))
        flip(tmp_path, second + (48 if where == "header" else HEADER_LEN + floor + 1))
        assert await offsets_above(rig.journal, second) == {}


@pytest.mark.parametrize("cached", [True, False])
async def test_position_without_a_batch_gives_no_progress(tmp_path: Path, cached: bool) -> None:
    async with running(Rig(tmp_path)) as rig:
        second = await two_entries(rig, cached=cached)
        rig.offsets.retire()
        rig.group.become(Mode.HANDOVER, 3)
        await rig.offsets.become_taker("", Position(second + 8))
        await rig.offsets.freeze()


async def test_unreadable_journal_tail_does_not_prompt_another_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Rig(tmp_path)) as rig:
        second = await two_entries(rig)
        rig.offsets.retire()
        rig.group.become(Mode.SLAVE_CONSUME, 2)
        with monkeypatch.context() as patched:

            async def fail(position: Position, max_bytes: int) -> bytes:
                raise DiskFailed("input/output error")

            patched.setattr(rig.journal, "read", fail)
            await rig.offsets.become_taker("", second)
        await rig.offsets.freeze()


async def test_claim_on_a_full_disk_keeps_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no side journal; its session ends before it checkpoints, and it claims again."""
    async with running(Rig(tmp_path, takeover_checkpoint_ms=60_000)) as rig:
        second = await two_entries(rig)
        rig.offsets.retire()
        rig.group.become(Mode.SLAVE_CONSUME, 2)
        with monkeypatch.context() as patched:

            async def full(name: str, data: bytes) -> DiskFile:
                raise DiskFull("no space left")

            patched.setattr(rig.disk, "replace_file", full)
            await rig.offsets.become_taker("", second)
        assert await SideJournal.epoch_left(rig.side) is None
        rig.offsets.retire()
        rig.group.become(Mode.SLAVE_CONSUME, 3, opened=1)
        await rig.offsets.become_taker("", rig.journal.end)  # by now it has delivered everything
        kept = decode_offsets(await rig.offsets.freeze())
        assert {k: e.floor for k, e in kept.items()} == {key(1): 9}


async def test_no_more_than_two_segments_are_read_while_readers_wait(tmp_path: Path) -> None:
    """A directory with an unreadable checkpoint knows no commit end."""
    read: list[int] = []
    async with running_journal(tmp_path) as journal:
        journal.append(epoch(1))
        fill(journal, 300)
        await journal.wait_durable(journal.end)
        assert journal.end > 4 * SEGMENT
        await offsets_above(_Seen(journal, read), Position(0))
        assert min(read) == journal.recent_start
        assert 0 < journal.end - journal.recent_start <= 2 * SEGMENT


class _Seen(Journal):
    def __init__(self, journal: Journal, seen: list[int]) -> None:
        self.__dict__.update(journal.__dict__)
        self._seen = seen

    async def read(self, position: Position, max_bytes: int) -> bytes:
        self._seen.append(position)
        return await super().read(position, max_bytes)
