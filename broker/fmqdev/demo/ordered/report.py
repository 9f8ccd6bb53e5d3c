"""Print the report of a copy."""

from rich.console import Console
from rich.table import Table

from fmqdev.demo.display import print_verdict
from fmqdev.demo.ordered.run import OrderedReport


def print_ordered_report(report: OrderedReport, console: Console | None = None) -> None:
    """Print the tables and the verdict."""
    out = console or Console(highlight=False, emoji=False)
    print_verdict(out, report, _copy(report), _pauses(report))
    out.print(f"Tables: {report.directory}/source.db, target.db", markup=False, soft_wrap=True)


def _copy(report: OrderedReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("what")
    table.add_column("how many", justify="right")
    off = {finding.code for finding in report.findings}
    equal = "DIFFERENT" if "DIFFERENT" in off else "equal row by row"
    for row in (
        ("changes copied in order", f"{report.total:,}"),
        ("delivered more than once", f"{report.again:,}"),
        ("segments of the chain", f"{report.segments}"),
        ("rows of source and target", f"{report.rows} {equal}"),
        ("acknowledged on one disk only", "SOME" if "ONE_DISK" in off else "0"),
    ):
        table.add_row(*row)
    return table


def _pauses(report: OrderedReport) -> Table:
    table = Table(box=None, pad_edge=False, title="Longest pause", title_justify="left")
    table.add_column("killed")
    for column in ("of sends", "of reads"):
        table.add_column(column, justify="right")
    for kill in report.kills:
        killed = f"{kill.broker}, {kill.role}"
        table.add_row(killed, _ms(kill.sends_pause_ms), _ms(kill.reads_pause_ms))
    return table


def _ms(value: float) -> str:
    return f"{value:,.0f} ms"
