"""Tables on narrow terminals: numbers and names stay in one piece."""

from fmqcli.output.tables import table

COLUMNS = ("GROUP", "END", "LAG", "REASON")
WHY = "needs 1 slave in sync, and none is; bring it back"
ROWS = [("g1", "83,679,456", "27,691,288", WHY), ("g2", "1", "0", "")]


def test_a_wide_terminal_shows_a_row_in_a_line() -> None:
    for width in (None, 100):
        lines = table(COLUMNS, ROWS, width)
        assert len(lines) == 3
        assert lines[1].endswith(WHY)
        assert lines[2].split() == ["g2", "1", "0", "-"]


def test_a_narrow_one_folds_the_last_column_alone() -> None:
    lines = table(COLUMNS, ROWS, 62)
    assert max(map(len, lines)) <= 62
    assert all(number in lines[1] for number in ROWS[0][:3])
    assert " ".join(line[31:] for line in lines[1:3]).split() == WHY.split()


def test_a_very_narrow_one_puts_it_below() -> None:
    header, name, *lines = table(COLUMNS, ROWS, 40)
    assert (header.split(), name.strip()) == (["GROUP", "END", "LAG"], "REASON")
    assert lines[0].split() == ["g1", "83,679,456", "27,691,288"]
    assert " ".join(line.strip() for line in lines[1:-1]) == WHY
    assert lines[-1].split() == ["g2", "1", "0"]
