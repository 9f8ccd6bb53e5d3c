"""Panels as a picture: names of series, gaps, and the file itself."""

from math import isnan
from pathlib import Path

from e2e.dashboards.chart import BOARDS, Panel, eager_rules, panels, rules
from e2e.dashboards.drawing import draw, named, with_gaps

PANEL = Panel("FMQ", "Behind", "bytes", "{{slave}}", "max(x)")


def test_series_are_named_by_the_panels_legend() -> None:
    assert named("{{topic}} {{ group }}", {"topic": "t", "group": "g"}) == "t g"
    assert named("{{topic}}", {}) == ""


def test_missing_samples_then_a_gap_in_the_line() -> None:
    times, values = with_gaps([(0.0, 1.0), (1.0, 1.0), (4.0, 2.0), (5.0, 2.0)])
    assert times == [0.0, 1.0, 2.0, 4.0, 5.0]
    assert [v for v in values if not isnan(v)] == [1.0, 1.0, 2.0, 2.0]
    assert isnan(values[2])
    assert with_gaps([(3.0, 1.0)]) == ([3.0], [1.0])
    assert with_gaps([]) == ([], [])


def test_a_picture(tmp_path: Path) -> None:
    lines = [("g1-1", *with_gaps([(0.0, 1.0), (1.0, 4096.0), (5.0, 0.5)]))]
    file = tmp_path / "new" / "picture.png"
    draw("FMQ", [(PANEL, lines), (PANEL, []), (PANEL, lines)], [(1.0, "kill -9")], file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_no_variable_is_left_in_a_query() -> None:
    for board in BOARDS:
        for panel in panels(board, "7s"):
            assert "$" not in panel.query, panel
    assert any("[7s]" in panel.query for panel in panels("overview", "7s"))


def test_eager_rules_are_the_charts_but_for_their_patience(tmp_path: Path) -> None:
    text = eager_rules(tmp_path / "rules.yaml", 5).read_text()
    assert {name for name, _ in rules()} == {
        line.split()[-1] for line in text.splitlines() if "alert:" in line
    }
    assert {line.split()[-1] for line in text.splitlines() if " for:" in line} == {"5s"}
