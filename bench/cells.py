"""What is measured: one cell is one row of the table. Pure.

One-by-one sends with 128 outstanding through the ordinary client, to one group of a master and a
slave, each a process: {100 B, 1 KiB, 10 KiB} x {1, 16 topics} x three policies x {produce only,
produce and consume}.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any, Final

from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts

OUTSTANDING: Final = 128
SIZES: Final = (100, 1024, 10 * 1024)
TOPICS: Final = (1, 16)

POLICIES: Final = {
    ("fsync", "sync"): AckPolicy(Flush.FSYNC, 1000, SlaveCounts.DURABLE, HowMany.ONE),
    ("async", "sync"): AckPolicy(Flush.INTERVAL, 1000, SlaveCounts.RECEIVED, HowMany.ONE),
    ("async", "async"): AckPolicy(Flush.INTERVAL, 1000, SlaveCounts.RECEIVED, HowMany.NONE),
}
"""(flush, replication) before an acknowledgement → the group's policy."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of settings to measure."""

    topics: int
    size_bytes: int
    flush: str
    replication: str
    consume: bool

    @property
    def name(self) -> str:
        """As `--only` takes it, e.g. `fsync+sync/1024/1/produce`."""
        what = "both" if self.consume else "produce"
        return f"{self.flush}+{self.replication}/{self.size_bytes}/{self.topics}/{what}"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a cell came to."""

    messages_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU (user and system) of each process per message: steady where rates are not."""

    client_cpu_us: float
    master_cpu_us: float
    slave_cpu_us: float


@dataclass(frozen=True, slots=True)
class Raw:
    """What the machine itself does at that size, measured right before."""

    raw_fdatasync_per_s: float
    raw_stream_messages_per_s: float


def all_cells() -> list[Cell]:
    """Every cell, those of one policy together: they share a cluster."""
    return [
        Cell(topics, size, flush, replication, consume)
        for flush, replication in POLICIES
        for size in SIZES
        for topics in TOPICS
        for consume in (False, True)
    ]


def chosen(cells: Iterable[Cell], wanted: Sequence[str]) -> list[Cell]:
    """Those whose name begins with the parts of one of `wanted`; all if it is empty."""
    parts = [w.rstrip("/").split("/") for w in wanted]
    return [c for c in cells if not parts or any(c.name.split("/")[: len(p)] == p for p in parts)]


def run_of(latencies_s: list[float], elapsed_s: float) -> Run:
    """Sum up one run. Sorts `latencies_s`."""
    latencies_s.sort()
    count = len(latencies_s)

    def percentile(thousandths: int) -> float:
        return 1000 * latencies_s[min(count - 1, count * thousandths // 1000)]

    return Run(count / elapsed_s, percentile(500), percentile(990), percentile(999))


def median_run(runs: Sequence[Run]) -> Run:
    """The run whose rate is the median."""
    rate = median_low(run.messages_per_s for run in runs)
    return next(run for run in runs if run.messages_per_s == rate)


def median_cpu(runs: Sequence[Cpu]) -> Cpu:
    """Return each process's median share of a core."""
    return Cpu(
        median_low(run.client_cpu_us for run in runs),
        median_low(run.master_cpu_us for run in runs),
        median_low(run.slave_cpu_us for run in runs),
    )


def row(cell: Cell, run: Run, cpu: Cpu, raw: Raw) -> dict[str, Any]:
    """One row of `build/bench.json`."""
    values = asdict(cell) | asdict(run) | asdict(cpu) | asdict(raw)
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in values.items()}
