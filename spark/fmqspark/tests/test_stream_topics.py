"""A stream continues when one of the topics is deleted: all records of the others come."""

from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument
from fmqspark.source.files import Throttle
from fmqspark.source.options import understand
from fmqspark.source.splits import SplitReader
from fmqspark.tests.kit import write
from fmqspark.tests.test_recreated_topic import JOURNAL
from fmqspark.tests.test_source import ALL, rows_of

pytestmark = pytest.mark.spark
BASES = sorted(JOURNAL.segments)


def stream(path: Path, topics: str) -> Any:
    from fmqspark.spark.stream import FmqStreamReader

    return FmqStreamReader(understand({"path": str(path), "topic": topics}), ALL)


def values(reader: Any, begin: int) -> list[bytes]:
    """Return the values of one micro-batch from there on."""
    parts = reader.partitions({"position": begin}, {"position": JOURNAL.end})
    splits = [split for part in parts for split in part.task]
    readers = [SplitReader(split, ALL, Throttle(0)) for split in splits]
    return [row[-1] for one in readers for slab in one for row in rows_of(slab, one.names)]


def test_deleted_topic_yields_no_more_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", JOURNAL)
    assert values(stream(a, "orders,brief"), 0) == [b"one", b"orders", b"brief", b"three"]
    assert capsys.readouterr().err == ""
    reader = stream(a, "orders,brief")
    for _ in range(2):
        assert values(reader, BASES[2]) == [b"three"]
    output = capsys.readouterr().err
    assert (output.count("\n"), "no topic 'brief' in this journal" in output) == (1, True)
    assert values(stream(a, "brief"), BASES[2]) == []


def test_topic_that_never_existed_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no topic 'nope' in this journal"):
        stream(write(tmp_path / "a", JOURNAL), "orders,nope").initialOffset()
