"""Shared by the journal tests: a real directory, a stopped clock, a `fatal` that raises."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from fmqadapters.disk.files import FileDisk
from fmqadapters.process.clock import SystemClock
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.batch.columns import encode
from fmqcore.batch.control import encode_epoch
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchHeader, BatchType, parse_header
from fmqcore.ids import BrokerId, Epoch, Position, TopicId
from fmqcore.journal.derived import DerivedIndex
from fmqport.disk import Disk

SEGMENT = 64 * 1024
TOPIC = TopicId(7)


class Died(BaseException):
    """`Lifecycle.fatal` was called."""


class Life:
    """A lifecycle that raises and counts."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reasons: list[str] = []

    def fatal(self, reason: str) -> NoReturn:
        self.reasons.append(reason)
        raise Died(reason)


class Clock(SystemClock):
    """A wall clock that stands still unless moved."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_750_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def settings(path: Path, **changes: Any) -> BrokerSettings:
    values: dict[str, Any] = {
        "cluster": "c",
        "group": "g1",
        "broker": "g1-0",
        "data_dir": str(path),
        "zookeeper": "-",
        "segment_bytes": SEGMENT,
        "tail_cache_bytes": 1 << 20,
        "checkpoint_interval_ms": 10,
        "min_free_bytes": 0,
    }
    return BrokerSettings(**{**values, **changes})


@asynccontextmanager
async def running(
    path: Path,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    life: Life | None = None,
    crash: bool = False,
    indexes: Sequence[DerivedIndex[Any]] = (),
    **changes: Any,
) -> AsyncIterator[Journal]:
    """Run an open journal; close it at the end, or leave it as a crash would."""
    disk = disk or FileDisk(str(path))
    journal = await Journal.open(
        disk, settings(path, **changes), clock or Clock(), life or Life(), indexes=indexes
    )
    task = asyncio.create_task(journal.run())
    try:
        yield journal
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not crash:
            await journal.close()
        await disk.close()


def data(payload: bytes, queue: int = 0, count: int = 1, **more: Any) -> BatchDraft:
    return BatchDraft(BatchType.DATA, payload, crc32c(payload), TOPIC, queue, count, **more)


def records(*values: bytes, **more: Any) -> BatchDraft:
    """Return a batch like `data`, with a payload as a producer encodes it."""
    attrs, payload = encode(values)
    return data(payload, count=len(values), attrs=attrs, **more)


def epoch(number: int) -> BatchDraft:
    payload = encode_epoch(Epoch(number), BrokerId("g1-0"))
    return BatchDraft(BatchType.EPOCH, payload, crc32c(payload))


def fill(journal: Journal, count: int, size: int = 1000, queues: int = 3) -> list[Position]:
    """Append `count` batches and return the end of each."""
    return [
        journal.append(data((b"%d " % i * size)[:size], queue=i % queues)).end for i in range(count)
    ]


async def everything(journal: Journal, start: int | None = None, step: int = 1 << 20) -> bytes:
    """Return all stored bytes from `start` on, as `read` returns them."""
    at = journal.journal_start if start is None else start
    parts = []
    while at < journal.end:
        part = await journal.read(Position(at), step)
        assert part
        parts.append(part)
        at = headers(part)[-1].end
    assert at == journal.end
    return b"".join(parts)


def headers(data: bytes) -> list[BatchHeader]:
    """Parse whole batches."""
    found, at = [], 0
    while at < len(data):
        found.append(parse_header(data, at))
        at += found[-1].stored_len
    return found


def segment_files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(path.glob("*.journal"))}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own timeout bounds the wait."""
    while not condition():
        await asyncio.sleep(0.002)
