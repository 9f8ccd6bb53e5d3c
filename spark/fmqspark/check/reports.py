"""Write a check's `summary.json`, `findings.parquet`, `coverage.parquet` and `report.html`.

Each is made beside its place, synced, and renamed: it is there whole or as it was. `summary.json`
is the last: a program that waits for it finds the others. The writer holds the folder's progress,
so no other check writes there.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from fmqspark.check.job import Outcome
from fmqspark.check.page import page
from fmqspark.check.tables import write_coverage, write_findings
from fmqspark.source.files import sync_folder

SUMMARY = "summary.json"


def write_reports(folder: Path, outcome: Outcome) -> None:
    """Write all four. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)  # an earlier check's is not of these findings
    sync_folder(folder)
    summary = outcome.summary()
    html = page(summary, outcome.findings, outcome.coverage, outcome.segments)
    summary_text = json.dumps(summary, indent=1) + "\n"
    _put(folder / "findings.parquet", lambda shadow: write_findings(shadow, outcome.findings))
    _put(folder / "coverage.parquet", lambda shadow: write_coverage(shadow, outcome.coverage))
    _put(folder / "report.html", lambda shadow: shadow.write_text(html, encoding="utf-8"))
    _put(folder / SUMMARY, lambda shadow: shadow.write_text(summary_text, encoding="utf-8"))
    sync_folder(folder)


def _put(path: Path, write: Callable[[Path], object]) -> None:
    shadow = path.with_name(path.name + ".tmp")
    write(shadow)
    with shadow.open("rb") as file:
        os.fsync(file.fileno())
    shadow.replace(path)
