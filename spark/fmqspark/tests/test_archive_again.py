"""A run into a folder that an archive is in already: what it is told, and what it finds there."""

import json
from pathlib import Path

import pytest

from fmqspark.archive import ledger
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, small, truth

pytestmark = pytest.mark.spark


def test_a_topic_that_is_named_twice_is_one(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    bills = [row for row in truth(small()) if row[0] == "bills"]
    archive(out, a, topics=("bills", "bills"))
    for topics in (("bills",), ("bills", "bills", "bills")):
        assert archive(out, a, topics=topics).exit_code == 0
        assert everything(out) == bills


def test_one_that_was_noted_twice_by_an_earlier_version_is_one(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a, topics=("orders", "bills"))
    path = out / ledger.FOLDER / "journal.ledger"
    first, rest = path.read_text().split("\n", 1)
    told = json.loads(first) | {"topics": ["bills", "bills", "orders"]}
    path.write_text(f"{json.dumps(told)}\n{rest}")
    assert archive(out, a, topics=("bills", "orders")).exit_code == 0
    assert everything(out) == truth(small())
