"""Write what a check gave: `summary.json`, `findings.parquet`, `coverage.parquet`, `report.html`.

Each is made beside its place and renamed; `summary.json` is the last: whoever waits for it finds
the others.
"""

import json
from pathlib import Path

from fmqspark.check.job import Outcome
from fmqspark.check.page import page
from fmqspark.check.tables import write_coverage, write_findings


def write_reports(folder: Path, outcome: Outcome) -> None:
    """Write all four. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_findings(folder / "findings.parquet", outcome.findings)
    write_coverage(folder / "coverage.parquet", outcome.coverage)
    summary = outcome.summary()
    html = page(summary, outcome.findings, outcome.coverage, outcome.segments)
    _replace(folder / "report.html", html)
    _replace(folder / "summary.json", json.dumps(summary, indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    shadow = path.with_name(path.name + ".tmp")
    shadow.write_text(text, encoding="utf-8")
    shadow.replace(path)
