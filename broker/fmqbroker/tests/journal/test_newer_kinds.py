"""A journal and a master of a next version: kinds to skip are kept, others stop the reader."""

from pathlib import Path
from typing import cast

import pytest

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.tests.journal_kit import (
    TOPIC,
    data,
    epoch,
    everything,
    headers,
    running,
    segment_files,
)
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, UnknownKind
from fmqcore.errors import NewerJournal
from fmqcore.journal.damage_note import SUSPECT
from fmqcore.tests.journal.writer import SKIPPED, UNKNOWN


def planted(kind: int, payload: bytes = b"a next version's") -> BatchDraft:
    return BatchDraft(cast(BatchType, kind), payload, crc32c(payload))


async def fill(journal: Journal) -> None:
    """Append records and batches of a kind to skip over several segments."""
    journal.append(epoch(1))
    for number in range(120):
        journal.append(planted(SKIPPED, b"%d" % number * 50))
        journal.append(data(bytes(2000), queue=number % 3, producer_id=3, base_sequence=number))
    await journal.wait_durable(journal.end)


async def test_skipped_kind_survives_replication_and_starts(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        await fill(master)
        while slave.end < master.end:
            slave.append_replica(slave.end, await master.read(slave.end, 5000))
        assert await everything(slave) == await everything(master)
        assert slave.state == master.state
        await slave.wait_durable(slave.end)
        before, state = await everything(master), master.state
    assert segment_files(tmp_path / "m") == segment_files(tmp_path / "s")
    for index in (tmp_path / "s").glob("*.index"):
        index.unlink()
    async with running(tmp_path / "s") as again:
        assert again.state == state
        assert await everything(again) == before
        assert sum(h.type == SKIPPED for h in headers(before)) == 120
        for queue in range(3):  # through rebuilt indexes
            offset = again.begin_offset(TOPIC, queue)
            while found := await again.find(TOPIC, queue, offset, 100):
                assert found[0].base_offset == offset
                kinds = {(await again.read_batch(entry))[0].type for entry in found}
                assert kinds == {BatchType.DATA}
                offset = found[-1].end_offset
            assert offset == 40
        again.append(data(b"next"))


async def test_unknown_kind_reaches_no_replica(tmp_path: Path) -> None:
    async with running(tmp_path / "m") as master, running(tmp_path / "s") as slave:
        master.append(epoch(1))
        at = master.append(planted(UNKNOWN)).position
        with pytest.raises(UnknownKind, match=f"at position {at}: .*kind 9 .*upgrade this broker"):
            slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        assert slave.end == 0


async def test_unknown_kind_met_by_a_read_is_no_damage(tmp_path: Path) -> None:
    """As in a sealed segment after a downgrade: the next start must not call it damaged."""
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        at = journal.append(planted(UNKNOWN)).position
        for number in range(120):
            journal.append(data(bytes(2000), base_sequence=number))
        await journal.wait_durable(journal.end)
    async with running(tmp_path) as journal:  # a start reads the newest segment only
        with pytest.raises(NewerJournal, match="kind 9"):
            await journal.read_sound(at, 4096)
        assert journal.damage is None
        assert not (tmp_path / SUSPECT).exists()


@pytest.mark.parametrize("orderly", [True, False])
async def test_unknown_kind_stops_a_start_untouched(tmp_path: Path, *, orderly: bool) -> None:
    """Even above the durable end: it is no torn write, its checksum is right."""
    async with running(tmp_path, crash=not orderly) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        at = journal.append(planted(UNKNOWN)).position
        await journal.wait_durable(journal.end)
    before = segment_files(tmp_path)
    with pytest.raises(NewerJournal, match=rf"\.journal, position {at}: .*kind 9 .*upgrade"):
        async with running(tmp_path):
            raise AssertionError("it started")
    assert segment_files(tmp_path) == before


async def test_read_of_an_unknown_kind_names_file_and_remedy(tmp_path: Path) -> None:
    """In a sealed segment, which a start does not read."""
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        at = journal.append(planted(UNKNOWN)).position
        for _ in range(100):
            journal.append(data(bytes(2000)))
        await journal.wait_durable(journal.end)
    async with running(tmp_path) as again:
        with pytest.raises(NewerJournal, match=rf"0\.journal, position {at} .*kind 9 .*upgrade"):
            await again.read_sound(again.journal_start, 1 << 20)
