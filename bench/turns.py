"""`python -m bench.turns`: the longest turn of the event loop in work on many progress entries.

Each case runs on parts as a broker uses them; a turn counts the CPU time of one callback, so a busy
machine changes little. The cases alternate, and the medians are reported. `--other TREE` measures
another checkout in turns with this one.
"""

import asyncio
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fmqadapters.disk.files import FileDisk
from fmqadapters.process.clock import SystemClock
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.session import Session
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.batch.control import encode_offsets, encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.ids import BrokerId, Epoch, Offset, TopicId
from fmqcore.journal.state import TOMBSTONE_MS

QUEUES: Final = 1000
GROUPS: Final = 20
TOPICS: Final = 10
"""A topic of a thousand queues with twenty groups has 20,000 entries; ten have 200,000."""
_RUNS: Final = 5
_PART: Final = 200
_ROLLS: Final = bytes(512 * 1024 - 1024)
"""What does not fit behind `_Rig.fill`."""


class _Longest:
    ms = 0.0


@contextmanager
def timed() -> Iterator[_Longest]:
    """Measure the turns that start meanwhile, in milliseconds of CPU time."""
    longest, run = _Longest(), asyncio.events.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        start = time.thread_time()
        run(handle)
        longest.ms = max(longest.ms, (time.thread_time() - start) * 1000)

    asyncio.events.Handle._run = measured  # type: ignore
    try:
        yield longest
    finally:
        asyncio.events.Handle._run = run  # type: ignore


class _Life:
    """The end of the process, which no case reaches."""

    stopping = asyncio.Event()

    def fatal(self, reason: str) -> Any:
        raise AssertionError(reason)


class _MovedClock(SystemClock):
    """The machine's clock, which a case moves ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def _keys() -> list[OffsetKey]:
    return [
        OffsetKey(f"group-{group:02}", TopicId(topic), queue)
        for topic in range(1, TOPICS + 1)
        for group in range(GROUPS)
        for queue in range(QUEUES)
    ]


class _Rig:
    """A master's journal with the entries in it, appended as a broker does."""

    def __init__(self, folder: str, segment_mib: int = 64) -> None:
        self.clock = _MovedClock()
        self._settings = BrokerSettings(
            cluster="c", group="g", broker=BrokerId("g-0"), data_dir=folder, zookeeper="",
            segment_bytes=segment_mib * 1024 * 1024,
        )  # fmt: skip

    async def open(self, resume_every_bytes: int = 1 << 60) -> None:
        disk = FileDisk(self._settings.data_dir)
        self.journal = await Journal.open(
            disk, self._settings, self.clock, _Life(), resume_every_bytes=resume_every_bytes
        )
        for topic in range(1, TOPICS + 1):
            self._append(BatchType.CONFIG, encode_topic(TopicId(topic), f"t{topic}", QUEUES))

    def put(self, entry: OffsetEntry) -> None:
        """Append this entry for every queue, topic and group."""
        for _ in self.putting(entry, _keys()):
            pass

    def putting(self, entry: OffsetEntry, keys: list[OffsetKey]) -> Iterator[None]:
        """Append this entry for these keys; yields after each batch."""
        for at in range(0, len(keys), _PART):
            part = dict.fromkeys(keys[at : at + _PART], entry)
            self._append(BatchType.OFFSETS, encode_offsets(part))
            yield

    def write_all_queues(self) -> None:
        """Append a record to every queue, in an order as producers make it."""
        queues = [(topic, queue) for topic in range(1, TOPICS + 1) for queue in range(QUEUES)]
        random.Random(1).shuffle(queues)
        for topic, queue in queues:
            at: dict[str, Any] = {"topic_id": TopicId(topic), "queue_id": queue}
            self._append(BatchType.DATA, bytes(100), record_count=1, **at)

    def fill(self) -> None:
        """Append DATA until the segment is full but for less than half a mebibyte."""
        size, payload = self._settings.segment_bytes, bytes(256 * 1024)
        while size - self.journal.end % size > len(_ROLLS):
            self._append(BatchType.DATA, payload, record_count=1, topic_id=TopicId(1))

    def roll(self) -> None:
        """Append what does not fit the segment."""
        self._append(BatchType.DATA, _ROLLS, record_count=1, topic_id=TopicId(1))

    def delete_topic(self) -> None:
        self._append(BatchType.CONFIG, encode_topic(TopicId(1), "t1", 0))

    def _append(self, kind: BatchType, payload: bytes, **fields: Any) -> None:
        self.journal.append(BatchDraft(kind, payload, crc32c(payload), **fields))


# ---- the cases: each returns the longest turn, in milliseconds
async def _on_a_journal(
    prepare: Callable[[_Rig], None], work: Callable[[_Rig], Awaitable[None]]
) -> float:
    with tempfile.TemporaryDirectory() as folder:
        rig = _Rig(folder)
        await rig.open()
        prepare(rig)
        running = asyncio.create_task(rig.journal.run())
        await rig.journal.wait_durable(rig.journal.end)
        gc.collect()
        with timed() as longest:
            await asyncio.create_task(_coroutine(work(rig)))
        running.cancel()
        await asyncio.wait([running])
        await rig.journal.close()
        return longest.ms


async def _coroutine(work: Awaitable[None]) -> None:
    await asyncio.sleep(0)
    await work


async def _roll(rig: _Rig) -> None:
    rig.roll()


async def _settled(rig: _Rig) -> None:
    rig.roll()
    await rig.journal.wait_durable(rig.journal.end)


async def rolled_after_changes() -> float:
    """A roll after which every entry has changed since the last SNAP."""

    def prepare(rig: _Rig) -> None:
        rig.put(OffsetEntry(1 << 32, Offset(0)))
        rig.fill()
        rig.roll()
        rig.put(OffsetEntry(2 << 32, Offset(0)))
        rig.fill()

    return await _on_a_journal(prepare, _roll)


async def rolled_after_turns() -> float:
    """Every queue is written to, every entry changes, in any order; then a roll: all in turns."""
    keys = _keys()
    random.Random(2).shuffle(keys)

    def prepare(rig: _Rig) -> None:
        rig.put(OffsetEntry(1 << 32, Offset(0)))
        rig.write_all_queues()
        rig.fill()
        rig.roll()
        rig.write_all_queues()

    async def change(rig: _Rig) -> None:
        for _ in rig.putting(OffsetEntry(2 << 32, Offset(9)), keys):
            await asyncio.sleep(0)
        rig.fill()
        await rig.journal.wait_durable(rig.journal.end)
        await asyncio.sleep(0)
        with timed() as longest:
            await asyncio.create_task(_coroutine(_settled(rig)))
        took.append(longest.ms)

    took: list[float] = []
    await _on_a_journal(prepare, change)
    return took[0]


async def rolled_with_old_tombstones() -> float:
    """A roll at which every entry is a tombstone of two days ago."""

    def prepare(rig: _Rig) -> None:
        rig.put(tombstone(1 << 32))
        rig.fill()
        rig.clock.ahead_ms = 2 * TOMBSTONE_MS

    return await _on_a_journal(prepare, _roll)


async def topic_deleted() -> float:
    """The CONFIG batch that deletes a topic of a thousand queues with twenty groups."""

    async def delete(rig: _Rig) -> None:
        rig.delete_topic()

    return await _on_a_journal(lambda rig: rig.put(OffsetEntry(1 << 32, Offset(0))), delete)


async def resume_file_written() -> float:
    """The keeper writes a resume file with all entries in it."""
    with tempfile.TemporaryDirectory() as folder:
        rig = _Rig(folder)
        await rig.open(resume_every_bytes=16 * 1024 * 1024)
        rig.put(OffsetEntry(1 << 32, Offset(0)))
        rig.fill()
        with timed() as longest:
            running = asyncio.create_task(rig.journal.run())
            async with asyncio.timeout(60):
                while not (Path(folder) / "resume").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        await rig.journal.close()
        return longest.ms


def _wide_group(sessions: int, in_flight: int) -> ConsumerGroup:
    progress = [QueueProgress(Offset(0)) for _ in range(QUEUES)]
    newest = lambda: Epoch(1)  # noqa: E731
    group = ConsumerGroup("g", "t", TopicId(1), progress, 1000, lambda *_: Offset(9), newest)
    for number in range(sessions):
        session = Session(f"s{number}", "bench", 60_000, number, lambda: None)
        session.reports_delivered = True
        group.join(session, number)
    for each in progress[:in_flight]:
        each.lease(Offset(0), Offset(5), 60_000)
    return group


async def _left(sessions: int) -> float:
    group = _wide_group(sessions, QUEUES)

    async def left() -> None:
        group.leave(next(iter(group.sessions.values())), 5)

    gc.collect()
    with timed() as longest:
        await asyncio.create_task(left())
    return longest.ms


async def session_left() -> float:
    """One of two sessions leaves a group of a thousand queues with messages in flight."""
    return await _left(2)


async def last_session_left() -> float:
    """The only session leaves a group of a thousand queues with messages in flight."""
    return await _left(1)


CASES: Final = {
    "roll, all changed": rolled_after_changes,
    "roll after turns": rolled_after_turns,
    "roll, old tombstones": rolled_with_old_tombstones,
    "topic deleted": topic_deleted,
    "resume file": resume_file_written,
    "session leaves": session_left,
    "last session leaves": last_session_left,
}


def main(
    other: Annotated[
        Path | None, typer.Option(help="directory of another checkout to compare with, in turns")
    ] = None,
    runs: Annotated[int, typer.Option(help="runs of each case")] = _RUNS,
    once: Annotated[bool, typer.Option("--once", help="run once, and print JSON")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="run only cases whose name begins so")
    ] = None,
) -> None:
    """Print the median of the longest turn of each case, in milliseconds of CPU time."""
    names = [name for name in CASES if not only or name.startswith(tuple(only))]
    if once:
        typer.echo(json.dumps({name: asyncio.run(CASES[name]()) for name in names}))
        return
    trees = [Path.cwd(), *([] if other is None else [other.resolve()])]
    found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    for _ in range(runs):
        for tree in trees:
            found[tree].append(_measured(tree, names))
    for name in names:
        medians = [statistics.median(row[name] for row in found[tree]) for tree in trees]
        typer.echo(f"{name:24}" + "".join(f"{ms:10.1f} ms" for ms in medians))


def _measured(tree: Path, names: list[str]) -> dict[str, float]:
    """Run this script on the packages of `tree`."""
    paths = [str(tree / part) for part in ("broker", "proto", "spark", "operator")]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "bench.turns", "--once"]
    command += [word for name in names for word in ("--only", name)]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    typer.run(main)
