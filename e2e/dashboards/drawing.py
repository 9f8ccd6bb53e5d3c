"""Draw a dashboard's panels as a picture, from the queries that Grafana would run.

Grafana is not asked: the picture shows what Prometheus answers to the same queries, two panels in a
row, a line for each series, with the legend of the panel.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from e2e.dashboards.chart import Panel
from e2e.dashboards.prometheus import Prometheus

Series = tuple[str, list[float], list[float]]
"""Legend, seconds, values."""
_ACROSS: Final = 2
_UNITS: Final = {"bytes": "B", "Bps": "B/s", "s": "s"}


def series(prometheus: Prometheus, panel: Panel, from_s: float, to_s: float) -> list[Series]:
    """Return what a panel shows between two times (unix seconds); times count from `from_s`."""
    step_s = max(1.0, (to_s - from_s) / 300)
    out = []
    for result in prometheus.over_time(panel.query, from_s, to_s, step_s):
        times, values = with_gaps([(float(at) - from_s, float(v)) for at, v in result["values"]])
        out.append((named(panel.legend, result["metric"]), times, values))
    return out


def with_gaps(samples: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return times and values; where samples are missing there is no line (not a number)."""
    steps = [later[0] - sooner[0] for sooner, later in pairwise(samples)]
    times, values, usual_s = [], [], min(steps, default=0.0)
    for at, (time_s, value) in enumerate(samples):
        times.append(time_s)
        values.append(value)
        if at < len(steps) and steps[at] > 1.5 * usual_s:
            times.append(time_s + usual_s)
            values.append(nan)
    return times, values


def named(legend: str, labels: Mapping[str, Any]) -> str:
    """Return the legend with its labels filled in."""
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: str(labels.get(found[1], "")), legend)


def draw(
    title: str,
    shown: Sequence[tuple[Panel, Sequence[Series]]],
    marks: Sequence[tuple[float, str]],
    file: Path,
) -> None:
    """Write the picture (PNG). `marks`: moments in seconds, and what happened then."""
    rows = -(-len(shown) // _ACROSS)
    figure = Figure(figsize=(14, 3.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    figure.supxlabel("seconds", fontsize=9)
    for at, (panel, lines) in enumerate(shown):
        axes = figure.add_subplot(rows, _ACROSS, at + 1)
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.yaxis.set_major_formatter(EngFormatter(_UNITS.get(panel.unit, "")))
        if all(value.is_integer() for *_, values in lines for value in values if not isnan(value)):
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        for name, times, values in lines:
            axes.plot(times, values, label=name or panel.title, drawstyle="steps-post")
        for moment, what in marks:
            axes.axvline(moment, color="grey", linestyle=":", linewidth=1)
            axes.annotate(what, (moment, 1.0), (2, -8), xycoords=("data", "axes fraction"),
                          textcoords="offset points", fontsize=7, color="grey")  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.grid(alpha=0.3)
        if lines:
            axes.legend(loc="lower left", fontsize=7, ncols=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=90)
