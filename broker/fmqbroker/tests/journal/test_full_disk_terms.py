"""A full disk, and a term's opening batches: its EPOCH and the previous reader's record."""

from pathlib import Path

import pytest

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.tests.consume_harness import Rig
from fmqbroker.tests.consume_harness import running as running_rig
from fmqbroker.tests.journal.test_full_disk import KEPT, LARGE, SmallDisk, offsets, refused
from fmqbroker.tests.journal_kit import TOPIC, data, epoch, running, until
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import StorageFull
from fmqcore.ids import Offset

KEYS = 200
"""Progress of that many consumer groups exceeds the room a segment reserves for terms."""


def record(version: int) -> BatchDraft:
    entry = OffsetEntry(version, Offset(1))
    payload = encode_offsets({OffsetKey(f"group{n}", TOPIC, 0): entry for n in range(KEYS)})
    return BatchDraft(BatchType.OFFSETS, payload, crc32c(payload))


def rest(journal: Journal) -> int:
    """Return the room left in the newest segment."""
    return journal._head._segment_end - journal.end


async def taken_by_others(journal: Journal, disk: SmallDisk) -> None:
    await journal.wait_durable(journal.end)
    disk.total -= disk.left
    await journal._parts.store.space.check()


async def test_handed_over_record_fits_where_its_term_fits(tmp_path: Path) -> None:
    """An EPOCH may fit where the previous reader's record does not: then no broker would serve."""
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        journal.append(epoch(1))
        await until(lambda: journal._parts.store.space.reserved)
        await taken_by_others(journal, disk)
        refused(journal, map(offsets, range(1, 100_000)))
        journal.append(epoch(2))
        refused(journal, [offsets(1), record(1)])
        await journal.wait_durable(journal.append(record(1), for_term=True).end)
        assert not (tmp_path / "reserve").exists()
        refused(journal, [data(b"x")])


@pytest.mark.parametrize(("left", "rolls"), [(HEADER_LEN, True), (4096, False)])
async def test_epoch_on_a_full_disk_rolls_only_if_it_must(
    tmp_path: Path, left: int, rolls: bool
) -> None:
    """A further segment takes from the reserve, which the next term needs too."""
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        journal.append(epoch(1))
        await until(lambda: journal._parts.store.space.reserved)
        journal.append(data(bytes(rest(journal) - HEADER_LEN - left)))
        assert rest(journal) == left, "a batch may leave room for an EOF alone"
        before = segment_end = journal.end + left
        await taken_by_others(journal, disk)
        refused(journal, [data(b"x")])
        opened = journal.append(epoch(2))
        await journal.wait_durable(opened.end)
        assert (opened.position > before) is rolls
        assert (journal.end + rest(journal) > segment_end) is rolls
        assert journal.epoch == 2


async def test_a_record_is_installed_with_the_reserve(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 2 * LARGE)
    rig = Rig(tmp_path, min_free_bytes=KEPT)
    rig.disk = disk
    async with running_rig(rig):
        rig.offsets.retire()
        await until(lambda: rig.journal._parts.store.space.reserved)
        await taken_by_others(rig.journal, disk)
        refused(rig.journal, map(offsets, range(1, 100_000)))
        rig.journal.append(epoch(2))
        await rig.offsets.install(record(1 << 40).payload)
        assert len(rig.journal.state.offsets) == KEYS + 1
        assert rig.journal.durable_end == rig.journal.end


async def test_writer_does_not_hang_on_record_without_room_or_reserve(
    tmp_path: Path,
) -> None:
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        while rest(journal) > 2500:
            journal.append(data(bytes(1000)))
        await taken_by_others(journal, disk)
        journal._parts.store.space.note_full("no room")
        journal.append(epoch(2))
        refused(journal, [record(1)])
        with pytest.raises(StorageFull):
            journal.append(record(1), for_term=True)
        await journal.wait_durable(journal.append(offsets(2), for_term=True).end)
        assert not journal.stuck
        disk.total += LARGE
        await journal._parts.store.space.check()
        await journal.wait_durable(journal.append(record(1), for_term=True).end)
