"""`python -m bench.scan`: what a scan of a journal costs, beside `cat` of the same files.

Rates are of CPU time as well as of the clock: on a busy machine only the former holds still. The
runs alternate, so that both see the same machine; the medians are reported.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, batch_len, encode_header, padding
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.segments import Segment, eof_batch, fits, segment_name, snap_batch
from fmqcore.journal.state import JournalState
from fmqcore.scan.headers import ScanRange, scan_headers
from fmqspark.check.job import Options, run_check
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import Throttle, open_segment

SEGMENT = 128 * 1024 * 1024
_QUEUES = 8


class _Writer:
    """Full segments of equal batches, as a broker stores them."""

    def __init__(self, folder: Path, record_bytes: int, records: int) -> None:
        self._folder = folder
        self._records = records
        self._attrs, self._payload = encode([os.urandom(record_bytes)] * records)
        self._state = JournalState()
        self._crc = 0
        self._ms = 1_700_000_000_000

    def segment(self, number: int) -> None:
        """Write one segment's file."""
        base, parts = Position(number * SEGMENT), []
        raw, crc = snap_batch(
            base=base,
            segment_bytes=SEGMENT,
            epoch=Epoch(0),
            prev_header_crc=self._crc,
            payload=self._state.to_snap(self._ms),
            store_ms=self._ms,
        )
        parts.append(raw)
        at, end, payload_crc = base + len(raw), base + SEGMENT, crc32c(self._payload)
        length, pad, queue = batch_len(len(self._payload)), padding(len(self._payload)), 0
        while fits(at, length, end) and at + length <= end:
            key = (TopicId(7), queue)
            offset = self._state.next_offsets.get(key, Offset(0))
            header, crc = encode_header(
                type=BatchType.DATA,
                position=Position(at),
                epoch=Epoch(0),
                prev_header_crc=crc,
                payload_len=len(self._payload),
                payload_crc=payload_crc,
                store_ms=self._ms,
                attrs=self._attrs,
                queue_id=queue,
                topic_id=TopicId(7),
                record_count=self._records,
                base_offset=offset,
            )
            self._state.next_offsets[key] = Offset(offset + self._records)
            parts += [header, self._payload, pad]
            at, queue = at + length, (queue + 1) % _QUEUES
        raw, self._crc = eof_batch(
            position=Position(at),
            segment_end=Position(end),
            epoch=Epoch(0),
            prev_header_crc=crc,
            store_ms=self._ms,
        )
        data = b"".join([*parts, raw])
        (self._folder / segment_name(base)).write_bytes(data + bytes(SEGMENT - len(data)))


def main(
    segments: Annotated[int, typer.Option(min=1, help="number of segments, of 128 MiB each")] = 4,
    record_bytes: Annotated[int, typer.Option(min=1, help="bytes of one record")] = 10 * 1024,
    records: Annotated[int, typer.Option(min=1, help="records of one batch")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="runs of each part; the median is reported")] = 7,
) -> None:
    """Measure headers-only scan, deep check, and `cat` of the same files from the page cache."""
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scan-", dir="build") as name:
        folder = Path(name)
        writer = _Writer(folder, record_bytes, records)
        for number in range(segments):
            writer.segment(number)
        files = sorted(folder.glob("*.journal"))
        works: dict[str, Callable[[], None]] = {
            "cat": lambda: _cat(files),
            "headers": lambda: _headers(files),
            "check quick": lambda: _check(folder, Level.QUICK),
            "check deep": lambda: _check(folder, Level.DEEP),
        }
        times_s: dict[str, list[tuple[float, float]]] = {what: [] for what in works}
        for _ in range(runs):
            for what, work in works.items():
                times_s[what].append(_timed(work))
    total_mb = segments * SEGMENT / 1e6
    rows = {
        what: {
            "mb_per_cpu_s": round(total_mb / median(cpu for cpu, _ in times)),
            "mb_per_s": round(total_mb / median(wall for _, wall in times)),
        }
        for what, times in times_s.items()
    }
    ratio = rows["headers"]["mb_per_cpu_s"] / rows["cat"]["mb_per_cpu_s"]
    typer.echo(json.dumps({**rows, "headers_of_cat_cpu": round(ratio, 2)}, indent=1))


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds, of children too, and seconds."""
    started, cpu = time.perf_counter(), _cpu_s()
    work()
    return _cpu_s() - cpu, time.perf_counter() - started


def _cpu_s() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cat(files: list[Path]) -> None:
    subprocess.run(["cat", *map(str, files)], stdout=subprocess.DEVNULL, check=True)


def _headers(files: list[Path]) -> None:
    for file in files:
        with open_segment(str(file.parent), file.name, Throttle(0), sparse=True) as data:
            base = Position(int(file.stem))
            end = Position(base + len(data))
            block, scan = scan_headers(data.pread, ScanRange(Segment(base, end), base, end))
            assert scan.position == end, scan.stop
            assert len(block.column("position")) == len(block)


def _check(folder: Path, level: Level) -> None:
    outcome = run_check(Options((folder,), level), LocalEngine())
    assert not [found for found in outcome.findings if found.code[0] == "J"], outcome.findings


if __name__ == "__main__":
    typer.run(main)
