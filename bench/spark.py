"""`make bench-spark`: what reading a journal costs, beside the same bytes or rows in other ways.

All figures of one run are taken in turns on the same machine, so their ratios hold where the rates
do not. `scan`: headers and deep check beside `cat` (as `python -m bench.scan`, 10 KiB records).
`rows`: the flights, counted and a column summed, by `spark.read.format("fmq")`, from JSON lines and
from Parquet. `cores`: the same query on one core and on two. `memory`: the driver's peak while it
checks a journal. `small`: that of one process which checks a segment of the smallest batches, level
by level. Writes `build/bench-spark.json`.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer

from bench.journal import SEGMENT, JournalFile
from fmqcore.batch.columns import encode
from fmqcore.batch.header import batch_len
from fmqcore.scan.selection import Wanted
from fmqdev.demo.flights import ALL, flights
from fmqspark.check.rows import Level
from fmqspark.engines.engine import Engine
from fmqspark.engines.engines import open_engine
from fmqspark.source.files import Throttle
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.source.survey import survey

_SCHEMA = "row INT, year INT, month INT, day INT, carrier STRING, distance DOUBLE"
_FIELD = "fmq, a field of the messages (json)"
_MESSAGES = "fmq, a field of the messages (from_json)"
_SOURCE = "fmq, a column of the source"
_RECORDS = 500
_OUT = Path("build/bench-spark.json")
_PARTS = ("scan", "rows", "cores", "memory", "small")


def main(
    rows: Annotated[
        int, typer.Option(min=1000, help="number of flights; the data set is repeated")
    ] = 3 * ALL,
    gib: Annotated[
        float, typer.Option(min=0.25, help="GiB of the journal for the memory figure")
    ] = 2.0,
    segment_mib: Annotated[
        int, typer.Option(min=1, help="MiB of the segment with small batches")
    ] = 256,
    runs: Annotated[int, typer.Option(min=1, help="runs of each part; the median is reported")] = 5,
    only: Annotated[
        list[str] | None, typer.Option(help=f"run only these parts, of {', '.join(_PARTS)}")
    ] = None,
    out: Annotated[Path, typer.Option(help="file for the figures")] = _OUT,
) -> None:
    """Measure reading."""
    wanted = only or list(_PARTS)
    if unknown := set(wanted) - set(_PARTS):
        raise typer.BadParameter(f"no part {', '.join(sorted(unknown))}: {', '.join(_PARTS)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="spark-", dir=out.parent) as name:
        folder = Path(name)
        if "scan" in wanted:
            command = [sys.executable, "-m", "bench.scan", "--runs", str(runs)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found["scan"] = json.loads(output)
        if "rows" in wanted or "cores" in wanted:
            _write_flights(folder, rows)
        if "rows" in wanted:
            found["rows"] = _rows(folder, runs)
        if "cores" in wanted:
            found["cores"] = _cores(folder, runs)
        if "memory" in wanted:
            found["memory"] = _memory(folder, gib)
        if "small" in wanted:
            found["small"] = _small(folder, segment_mib)
    found["load_after"] = os.getloadavg()[0]
    out.write_text(json.dumps(found, indent=1) + "\n")
    typer.echo(json.dumps(found, indent=1))


def _write_flights(folder: Path, rows: int) -> None:
    """The same rows as a journal (batches of 500) and as JSON lines."""
    journal = JournalFile(folder / "journal")
    with (folder / "flights.jsonl").open("wb") as lines:
        batch: list[bytes] = []
        for value in _values(rows):
            lines.write(value + b"\n")
            batch.append(value)
            if len(batch) == _RECORDS:
                journal.add(*encode(batch), len(batch))
                batch = []
        if batch:
            journal.add(*encode(batch), len(batch))
    journal.close()


def _values(rows: int) -> Iterator[bytes]:
    left = rows
    while left > 0:
        for flight in flights(min(left, ALL)):
            yield flight.value
        left -= ALL


def _rows(folder: Path, runs: int) -> dict[str, Any]:
    """Count and sum, in turns, by one session on two cores."""
    from pyspark.sql import functions as F

    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    with open_session(2) as spark:
        register(spark)
        lines, parquet = str(folder / "flights.jsonl"), str(folder / "parquet")
        spark.read.schema(_SCHEMA).json(lines).write.mode("overwrite").parquet(parquet)

        def total(frame: Any, column: str = "distance") -> tuple[int, float]:
            row = frame.agg(F.count("*"), F.sum(column)).collect()[0]
            return int(row[0]), float(row[1])

        works: dict[str, Callable[[], tuple[int, float]]] = {
            _FIELD: lambda: total(_fmq(spark, folder, "distance", "distance DOUBLE")),
            _MESSAGES: lambda: total(_parsed(_fmq(spark, folder, "value"))),
            _SOURCE: lambda: total(_fmq(spark, folder, "offset"), "offset"),
            "fmq, length of the messages": lambda: total(
                _fmq(spark, folder, "value").select(F.length("value").alias("n")), "n"
            ),
            "json lines": lambda: total(spark.read.schema(_SCHEMA).json(lines)),
            "parquet": lambda: total(spark.read.parquet(parquet)),
        }
        answers = {what: work() for what, work in works.items()}
        assert len({answers[what] for what in ("json lines", "parquet", _FIELD, _MESSAGES)}) == 1
        for work in works.values():
            work()  # once more: Java's compiler has seen it twice
        times_s = _in_turns(works, runs)
    return {"rows": answers["json lines"][0]} | {
        f"{what}_s": {
            name: round(median(t[i] for t in times), 3) for name, times in times_s.items()
        }
        for i, what in enumerate(("wall", "cpu"))
    }


def _fmq(spark: Any, folder: Path, columns: str, json: str = "") -> Any:
    frame = spark.read.format("fmq").option("columns", columns)
    frame = frame.option("json", json) if json else frame
    return frame.load(str(folder / "journal"))


def _parsed(frame: Any) -> Any:
    from pyspark.sql import functions as F

    parsed = F.from_json(F.col("value").cast("string"), "distance DOUBLE")
    return frame.select(parsed.getField("distance").alias("distance"))


def _cores(folder: Path, runs: int) -> dict[str, Any]:
    """All columns of all records, by the pool's kernel alone, on one process and on two.

    `one_over_two` is by the clock, `one_over_busier` what it would be if both had a core for
    themselves: all the CPU seconds of the one over those of the busier of the two.
    """
    found = survey([str(folder / "journal")])
    splits = plan(found, Wanted())
    busier: dict[str, list[float]] = {"one": [], "two": []}

    def work(engine: Engine, what: str) -> None:
        per_worker: dict[int, float] = defaultdict(float)
        for worker, cpu_s in engine.run(read_split, splits):
            per_worker[worker] += cpu_s
        busier[what].append(max(per_worker.values()))

    with open_engine("pool", 1) as one, open_engine("pool", 2) as two:
        works = {"one": partial(work, one, "one"), "two": partial(work, two, "two")}
        for warm in works.values():
            warm()
        busier = {"one": [], "two": []}
        times_s = _in_turns(works, runs)
    wall, cpu = (
        {what: median(t[i] for t in times) for what, times in times_s.items()} for i in (0, 1)
    )
    return {
        "splits": len(splits),
        "wall_s": {what: round(s, 3) for what, s in wall.items()},
        "cpu_s": {what: round(s, 3) for what, s in cpu.items()},
        "one_over_two": round(wall["one"] / wall["two"], 2),
        "one_over_busier": round(median(busier["one"]) / median(busier["two"]), 2),
        "mb_per_cpu_s": round(found.end / 1e6 / cpu["one"]),
    }


def read_split(split: Any) -> tuple[int, float]:
    """Read a split into Arrow, as an executor does; who did it, in how many CPU seconds."""
    from fmqspark.source.arrow import TYPES, record_batch, stored

    started, columns = time.process_time(), tuple(TYPES)
    reader = SplitReader(split, stored(columns), Throttle(0))
    for slab in reader:
        record_batch(slab, columns, reader.names)
    return os.getpid(), time.process_time() - started


_DRIVER = """
import re, sys
from pathlib import Path
from fmqspark.check.job import Options, run_check
from fmqspark.check.rows import Level
from fmqspark.engines.engine import Engine
from fmqspark.engines.engines import open_engine
if __name__ == "__main__":
    with open_engine(sys.argv[2], 2) as engine:
        outcome = run_check(Options((Path(sys.argv[1]),), Level(sys.argv[3])), engine)
    assert outcome.exit_code == 0
    # Not getrusage: what the process was before it became this program would count.
    own = re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1]
    print(int(own) // 1024, outcome.summary()["bytes_read"], outcome.took_s)
"""


def _memory(folder: Path, gib: float) -> dict[str, Any]:
    """A deep check of a journal of small batches (1 KiB: most headers a byte)."""
    journal = JournalFile(folder / "large")
    attrs, payload = encode([os.urandom(1024)])
    for _ in range(max(1, round(gib * 1024**3 / SEGMENT)) * (SEGMENT // 1136 - 8)):
        journal.add(attrs, payload, 1)
    journal.close()
    peak, read, took = _driven(folder / "large", "pool", Level.DEEP)
    files = sum(path.stat().st_size for path in (folder / "large").glob("*.journal"))
    return {
        "journal_mib": files // 1024**2,
        "driver_peak_mib": int(peak),
        "seconds": round(float(took), 1),
        "deep_mb_per_s_on_two": round(int(read) / 1e6 / float(took)),
        "children_peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }


def _small(folder: Path, mib: int) -> dict[str, Any]:
    """Batches of 120 bytes: a full segment with its index, and the newest one."""
    path, segment = folder / "small", mib * 1024**2
    journal = JournalFile(path, segment)
    attrs, payload = encode([b"0123456789"])
    batches = segment // batch_len(len(payload)) + 1000
    for _ in range(batches):
        journal.add(attrs, payload, 1)
    journal.close()
    peaks = {level.value: int(_driven(path, "local", level)[0]) for level in Level}
    return {"segment_mib": mib, "batches": batches, "peak_mib": peaks}


def _driven(path: Path, engine: str, level: Level) -> list[str]:
    """Check it in a new process; return its peak in MiB, the bytes read, the seconds."""
    script = path.parent / "driver.py"
    script.write_text(_DRIVER)
    command = [sys.executable, str(script), str(path), engine, level.value]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _in_turns(
    works: Mapping[str, Callable[[], Any]], runs: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds, and CPU seconds of all processes: on a busy machine only those hold still."""
    times_s: dict[str, list[tuple[float, float]]] = {what: [] for what in works}
    for _ in range(runs):
        for what, work in works.items():
            started, cpu = time.perf_counter(), _cpu_s()
            work()
            times_s[what].append((time.perf_counter() - started, _cpu_s() - cpu))
    return times_s


def _cpu_s() -> float:
    """Of this process and all below it, those that have ended, too."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


if __name__ == "__main__":
    typer.run(main)
