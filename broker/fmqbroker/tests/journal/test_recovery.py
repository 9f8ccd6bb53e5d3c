"""Opening after a stop, a crash at every step, a torn tail, damage, a second broker."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.journal.journal import Journal
from fmqbroker.tests import fault_disk
from fmqbroker.tests.fault_disk import FaultDisk, Loss, image
from fmqbroker.tests.journal.test_full_disk import NoCheckpoint
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    TOPIC,
    Clock,
    Life,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    segment_files,
    settings,
    until,
)
from fmqcore.batch.header import HEADER_LEN, BatchType
from fmqcore.errors import CorruptJournal, DirectoryLocked
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqport.disk import DiskFull


async def content(path: Path) -> tuple[Position, bytes]:
    """Open the journal at `path`, append one batch, close; return its end and content."""
    async with running(path) as journal:
        assert journal.durable_end == journal.written_end == journal.end
        end, stored = journal.end, await everything(journal)
        assert all(a.end == b.position for a, b in pairwise(headers(stored)))
        journal.append(data(b"goes on"))
        await journal.wait_durable(journal.end)
        assert (await everything(journal))[: len(stored)] == stored
    return end, stored


@pytest.mark.parametrize("loss", list(Loss))
async def test_a_crash_at_every_step_loses_nothing_durable(tmp_path: Path, loss: Loss) -> None:
    disk, claims = FaultDisk(tmp_path / "first"), list[int]()
    async with running(tmp_path, disk=disk) as journal:
        disk.done = lambda: claims.append(journal.durable_end)
        claims += [0] * len(disk.steps)
        journal.append(epoch(1))
        for number in range(36):
            fill(journal, 1 + number % 7, size=100 + 331 * (number % 9))
            if number == 20:
                journal.set_flush(sync=False, interval_ms=0)
            await (journal.wait_durable(journal.end) if number % 3 else journal.flushed.wait())
            journal.note_commit_end(journal.durable_end)
        await journal.wait_durable(journal.end)
        whole, journal_start = await everything(journal), journal.journal_start
    claims.append(journal.durable_end)
    assert journal_start == 0
    for count in range(1, len(disk.steps) + 1):
        path = tmp_path / f"crash-{count}"
        image(disk.steps[:count], loss, path)
        end, stored = await content(path)
        assert end >= claims[count], (count, disk.steps[count - 1].kind)
        assert whole.startswith(stored)
        shutil.rmtree(path)


async def test_a_torn_tail_at_every_byte(tmp_path: Path) -> None:
    origin, ends = tmp_path / "origin", list[int]()
    async with running(origin, crash=True) as journal:
        journal.append(epoch(1))
        ends += [journal.end, *fill(journal, 2, size=20)]
        await journal.wait_durable(journal.end)
    (name,) = segment_files(origin)
    raw = (origin / name).read_bytes()
    (origin / "checkpoint").unlink()  # else it may know of a durable end above the truncation
    for cut in range(ends[0], ends[-1]):
        for after in (b"", b"\xff" * 64)[: 1 if cut % 8 else 2]:  # garbage: at some of them
            path = tmp_path / "torn"
            shutil.copytree(origin, path)
            torn = raw[:cut] + after + bytes(len(raw) - cut - len(after))
            (path / name).write_bytes(torn)
            end, _ = await content(path)
            assert end == max(e for e in ends if torn[:e] == raw[:e]), cut
            shutil.rmtree(path)


async def sealed(path: Path) -> tuple[list[str], dict[str, bytes]]:
    async with running(path) as journal:
        journal.append(epoch(1))
        fill(journal, 200)
        await journal.wait_durable(journal.end)
    files = segment_files(path)
    assert len(files) > 3
    return sorted(files), files


def files_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name != "lock"}


async def refused(path: Path, *words: str) -> str:
    before = files_of(path)
    disk = FileDisk(str(path))
    with pytest.raises(CorruptJournal) as caught:
        await Journal.open(disk, settings(path), Clock(), Life())
    await disk.close()
    message = str(caught.value)
    for word in (f"{path}: ", "remedy", *words):
        assert word in message
    # Nothing was changed, and the directory is free again.
    assert files_of(path) == before
    disk = FileDisk(str(path))
    await disk.lock("next")
    await disk.close()
    return message


async def test_damage_below_the_durable_end_is_refused(tmp_path: Path) -> None:
    names, files = await sealed(tmp_path)
    raw = bytearray(files[names[-1]])
    raw[3 * HEADER_LEN] ^= 1
    (tmp_path / names[-1]).write_bytes(raw)
    await refused(tmp_path, names[-1], "position")


async def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    names, _ = await sealed(tmp_path)
    (tmp_path / names[1]).unlink()
    await refused(tmp_path, names[1], "missing")


async def test_the_newest_segment_missing_is_refused(tmp_path: Path) -> None:
    names, _ = await sealed(tmp_path)
    (tmp_path / names[-1]).unlink()
    await refused(tmp_path, "missing")


async def test_a_wiped_newest_segment_is_refused(tmp_path: Path) -> None:
    names, _ = await sealed(tmp_path)
    (tmp_path / names[-1]).write_bytes(bytes(SEGMENT))
    await refused(tmp_path, names[-1])


async def test_an_unreadable_checkpoint_is_no_loss(tmp_path: Path) -> None:
    _, files = await sealed(tmp_path)
    (tmp_path / "checkpoint").write_bytes(b"\xff" * 40)
    _, stored = await content(tmp_path)
    assert stored.startswith(files[sorted(files)[0]][:1000])


async def test_two_brokers_on_one_directory(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        second = FileDisk(str(tmp_path))
        with pytest.raises(DirectoryLocked, match="broker g1-0 of group g1"):
            await Journal.open(second, settings(tmp_path), Clock(), Life())
        await second.close()
        await journal.wait_durable(journal.end)


async def test_a_stop_and_a_start_keep_everything(tmp_path: Path) -> None:
    await sealed(tmp_path)
    before = segment_files(tmp_path)
    async with running(tmp_path) as journal:
        assert journal.clean
        assert journal.next_offset(TOPIC, 0) == 67
    assert segment_files(tmp_path) == before
    async with running(tmp_path, crash=True) as journal:
        assert journal.clean
    async with running(tmp_path) as journal:
        assert not journal.clean


async def test_an_orderly_stop_brings_nothing_back(tmp_path: Path) -> None:
    """Losses of an unclean stop last until the journal is whole, over all incarnations."""
    async with running(tmp_path) as journal:
        assert journal.doubts.lacks, "what an empty directory held before is unknown"
        journal.doubts.made_whole()
    async with running(tmp_path, crash=True) as journal:
        assert not journal.doubts.lacks
    for _ in range(2):
        async with running(tmp_path) as journal:
            assert journal.doubts.lacks
    async with running(tmp_path) as journal:
        assert (journal.clean, journal.doubts.lacks) == (True, True)
        journal.doubts.made_whole()
        assert not journal.doubts.lacks
    async with running(tmp_path) as journal:
        assert (journal.clean, journal.doubts.lacks) == (True, False)


async def torn(path: Path) -> Position:
    """Make a whole journal with an unreadable end; return that position."""
    await sealed(path)
    async with running(path) as journal:
        journal.doubts.made_whole()
    async with running(path, crash=True) as journal:
        assert not journal.doubts.tail_lost
        known = (path / "checkpoint").read_bytes()
        end = journal.append(data(b"torn")).end
        await journal.wait_durable(end)
        file = path / sorted(segment_files(path))[-1]
        at = end - int(file.stem)
    (path / "checkpoint").write_bytes(known)
    raw = bytearray(file.read_bytes())
    raw[at - 8 : at] = b"\xff" * 8
    file.write_bytes(raw)
    return end


async def test_tail_is_truncated_only_after_a_durable_note(tmp_path: Path) -> None:
    """Without room for the note the tail stays, and so do the flags."""
    await torn(tmp_path)
    with pytest.raises(DiskFull):
        async with running(tmp_path, disk=NoCheckpoint(tmp_path, 9)):
            pass
    async with running(tmp_path) as journal:  # room was made
        assert journal.doubts.tail_lost


async def test_directory_without_checkpoint_may_have_lost_everything(tmp_path: Path) -> None:
    """It is empty, or lacks its checkpoint: which bytes were fsynced is unknown."""
    async with running(tmp_path) as journal:
        assert journal.doubts.tail_lost
        journal.doubts.made_whole()
    async with running(tmp_path, crash=True) as journal:
        assert not journal.doubts.tail_lost
    (tmp_path / "checkpoint").unlink()
    async with running(tmp_path) as journal:
        assert journal.doubts.tail_lost


@pytest.mark.parametrize("crash", [True, False])
async def test_truncated_tail_is_flagged_until_made_whole(tmp_path: Path, crash: bool) -> None:
    end = await torn(tmp_path)
    async with running(tmp_path, crash=crash) as journal:
        assert journal.doubts.tail_lost
        assert journal.end < end
    async with running(tmp_path) as journal:
        assert (journal.clean, journal.doubts.lacks, journal.doubts.tail_lost) == (
            not crash,
            True,
            True,
        )
        journal.doubts.made_whole()
        assert not journal.doubts.tail_lost
    async with running(tmp_path) as journal:
        assert not journal.doubts.tail_lost


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.TORN])
async def test_lost_commit_end_does_not_cover_later_history(tmp_path: Path, loss: Loss) -> None:
    """R4: after a power cut another history continues there, with nothing committed yet."""
    disk = FaultDisk(tmp_path / "first")
    async with running(tmp_path / "first", disk=disk) as journal:
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(epoch(1))
        fill(journal, 20)
        await until(lambda: journal.written_end == journal.end)
        journal.note_commit_end(journal.end)
        await journal._parts.checkpoints.write()
        known = journal.end
        image(disk.steps, loss, tmp_path / "after")
    async with running(tmp_path / "after", crash=True) as journal:
        end = journal.end
        assert end < known
        assert journal.known_commit_end == end
        fill(journal, 30)
        await journal.wait_durable(journal.end)
        assert journal.end > known
        noted = decode_checkpoint((tmp_path / "after" / CHECKPOINT).read_bytes())
        assert noted.commit_end == end, "before anything was appended"
    async with running(tmp_path / "after") as journal:
        assert journal.known_commit_end == end


async def test_known_commit_end_survives(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        journal.note_commit_end(journal.end)
        journal.note_commit_end(Position(5))
        end = journal.end
    async with running(tmp_path) as journal:
        assert journal.known_commit_end == end


async def test_page_cache_bytes_are_rewritten_and_synced_at_start(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, crash=True) as journal:
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(epoch(1))
        await journal.flushed.wait()
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        assert journal.durable_end == journal.end > 0
        (name,) = segment_files(tmp_path)
        assert [step[:2] for step in disk.steps[:3]] == [
            ("write", name),  # D3: a failed fsync may have left it clean and not written
            ("sync", name),
            ("replace", "checkpoint"),
        ]
        assert (disk.steps[0].at, disk.steps[0].length) == (0, journal.end)


def noted(path: Path) -> Checkpoint:
    return decode_checkpoint((path / CHECKPOINT).read_bytes())


async def test_loss_flags_persist_until_the_journal_is_whole(tmp_path: Path) -> None:
    """Over any number of starts: `unproven`, and the policy that acknowledged (ADR 0037)."""
    async with running(tmp_path, crash=True) as journal:
        journal.append(epoch(1))
        journal.doubts.note_policy(77)
        await until(lambda: noted(tmp_path).acked_under == 77)
    for clean in (False, True, True):
        async with running(tmp_path, crash=not clean) as journal:
            assert (journal.doubts.unproven, journal.doubts.acked_under) == (True, 77)
    async with running(tmp_path, crash=True) as journal:
        journal.doubts.made_whole()
        await until(lambda: not noted(tmp_path).unproven)
    async with running(tmp_path) as journal:
        assert (journal.doubts.unproven, journal.doubts.acked_under) == (False, 0)


async def test_checkpoint_names_only_durable_bytes(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path))
    journal = await Journal.open(disk, settings(tmp_path), Clock(), Life())
    journal.append(epoch(1))
    fill(journal, 200)  # several segments, in memory only: no flush
    await journal.retire(journal.end, 0)
    await journal._parts.checkpoints.write()
    await disk.close()
    assert await content(tmp_path) == (0, b"")


async def test_checkpoint_does_not_count_unsynced_bytes(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        journal.set_flush(sync=False, interval_ms=0)
        fill(journal, 3)
        journal.append(epoch(2))
        await until(lambda: journal.written_end == journal.end)
        assert journal.durable_end < journal.written_end
        await journal._parts.checkpoints.write()
        found = decode_checkpoint((tmp_path / CHECKPOINT).read_bytes())
        assert found.durable_end == journal.durable_end
        # After a power cut `fmq journal verify` would call a sound journal damaged.
        assert [term for term, _ in found.epochs] == [1]


@pytest.mark.parametrize(("sealed", "torn"), [(True, 0), (False, 0), (False, 50), (False, 2000)])
async def test_a_file_that_lost_the_zeros_at_its_end_gets_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool, torn: int
) -> None:
    """A copy may omit them. Such a file was read for ever at a start, or refused at a later one."""
    async with running(tmp_path / "first") as journal:
        journal.append(epoch(1))
        fill(journal, 40, size=3001)
        found = headers(await everything(journal))
        last = next(each for each in found if each.type == BatchType.EOF) if sealed else found[5]
        await journal.wait_durable(journal.end)
    name = segment_name(Position(0))
    whole = (tmp_path / "first" / name).read_bytes()
    second = tmp_path / "second"
    second.mkdir()
    (second / name).write_bytes(whole[: last.position + last.stored_len + torn])
    read, reads = fault_disk._FaultFile.read, 0

    async def bounded(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 100, "it reads and reads"
        return await read(self, at, length)

    monkeypatch.setattr(fault_disk._FaultFile, "read", bounded)
    async with running(second, disk=FaultDisk(second)) as journal:
        assert journal.end == last.end
        fill(journal, 40, size=3001)
        await journal.wait_durable(journal.end)
        stored_bytes = await everything(journal)
    async with running(second) as journal:
        assert await everything(journal) == stored_bytes
