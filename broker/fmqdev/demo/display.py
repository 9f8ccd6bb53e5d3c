"""The demo's output: a progress bar on a terminal, plain lines elsewhere; a final report.

Progress goes to standard error, the report to standard output.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fmqdev.demo.replica_comparison import Compared
from fmqdev.demo.verdict import CLUSTER, Finding, Outage, Traffic

_LINE_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What every demo ends with."""

    findings: list[Finding]
    seconds: float
    directory: Path

    @property
    def good(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Outcome):
    """The results of a run."""

    traffic: Traffic
    outages: list[Outage]
    pauses_ms: tuple[float, float] | None
    """The longest times between deliveries and between acks, from the kill on.

    None if the demo itself held the producer back (a short run).
    """
    journals: list[Compared]


class Show:
    """Progress output while the demo runs. Use it as a context manager."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._total = total
        self._started = time.monotonic()
        self._line_due = 0.0
        self._shown = (-1, -1)
        self._bars: Progress | None = None
        self._acked = self._consumed = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def step(self, text: str) -> None:
        """Report an event."""
        self._console.print(f"[{self.seconds:5.1f} s] {text}", markup=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show bars while messages flow, if this is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        ) as self._bars:
            for name in ("acknowledged", "consumed"):
                self._bars.add_task(f"{name:12}", total=self._total)
            yield
        self._bars = None

    def flow(self, acked: int, consumed: int) -> None:
        """Show how much has flowed; called often."""
        if self._bars is not None:
            for task, count in zip(self._bars.task_ids, (acked, consumed), strict=True):
                self._bars.update(task, completed=count)
        elif self.seconds >= self._line_due and self._shown != (acked, consumed):
            self._shown = (acked, consumed)
            self._line_due = self.seconds + _LINE_EVERY_S
            percent = 100 * acked // max(1, self._total)
            self.step(f"  {percent:3} %: {acked:,} acknowledged, {consumed:,} consumed")


def print_report(report: Report, console: Console | None = None, *, data_stay: bool = True) -> None:
    """Print the tables and the verdict; where the data are, if they stay."""
    out = console or Console(highlight=False, emoji=False)
    print_verdict(out, report, _messages(report), _times(report))
    if not data_stay:
        return
    out.print(f"Data: {report.directory}/*/data", markup=False, soft_wrap=True)
    verify = f"      fmq journal verify {report.directory}/g1-0/data"
    out.print(verify, markup=False, soft_wrap=True)


def print_verdict(out: Console, report: Outcome, *tables: Table) -> None:
    """Print a demo's tables, what its checks found, and the verdict."""
    for table in tables:
        out.print()
        out.print(table)
    out.print()
    for finding in report.findings:
        out.print(f"FOUND {finding.code}: {finding.text}", markup=False, soft_wrap=True)
    verdict = "VERDICT: all is well" if report.good else "VERDICT: something is off, see above"
    out.print(f"{verdict} ({report.seconds:.1f} s in all)", markup=False)
    out.print(f"Logs: {report.directory}/*/broker.log", markup=False, soft_wrap=True)


def _messages(report: Report) -> Table:
    traffic = report.traffic
    rows = [
        ("sent", f"{traffic.sent:,}"),
        ("acknowledged", f"{traffic.acked:,}"),
        ("without an answer", f"{traffic.unknown:,}"),
        ("consumed", f"{traffic.consumed:,}"),
        ("consumed more than once", f"{traffic.twice:,}"),
        ("queues, order kept in each", f"{traffic.queues}"),
    ]
    for compared in report.journals:
        same = "equal byte for byte" if compared.finding is None else "DIFFERENT"
        rows.append((f"journals of {compared.group}", f"{compared.bytes:,} bytes {same}"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("what")
    table.add_column("how many", justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _times(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, title="Longest time", title_justify="left")
    table.add_column("")
    for column in ("without reads", "without writes"):
        table.add_column(column, justify="right")
    for outage in report.outages:
        name = "whole cluster" if outage.group == CLUSTER else f"group {outage.group}"
        table.add_row(name, _ms(outage.reads_ms), _ms(outage.writes_ms))
    if report.pauses_ms is not None:
        table.add_row("as the clients saw it", *map(_ms, report.pauses_ms))
    return table


def _ms(value: float) -> str:
    return f"{value:,.0f} ms"
