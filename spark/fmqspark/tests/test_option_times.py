"""Times before all journals: as a start they mean the beginning, as an end they are refused; and
numbers longer than Python reads.
"""

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.scan.selection import Range
from fmqspark.source.options import understand


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"toTime": "1969-12-31"}, "toTime '1969-12-31' is before 1970"),
        ({"fromTime": "1950-01-01", "toTime": "1960-01-01"}, "toTime '1960-01-01' is before 1970"),
        ({"toTime": "-5"}, "toTime '-5' must be a time like"),
        ({"fromTime": ""}, "fromTime '' must be a time like"),
        (
            {"fromTime": "2026-02-01", "toTime": "2026-01-01"},
            "fromTime 2026-02-01 is above toTime 2026-01-01",
        ),
        ({"fromTime": "9" * 5000}, "or milliseconds since 1970"),
        ({"toOffset": "9" * 5000}, "must be a whole number, 0 or more"),
        ({"splitBytes": "9" * 5000}, "must be a number of bytes, like 64m"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        understand({"path": "/x", **options})


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-01", "0"])
def test_start_before_all_journals_means_from_the_start(text: str) -> None:
    assert understand({"path": "/x", "fromTime": text}).wanted.store_ms == Range()


@pytest.mark.parametrize("text", ["0", "0m", "4k", "65535"])
def test_splits_that_are_too_small_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"splitBytes '{text}' must be at least 64k"):
        understand({"path": "/data", "splitBytes": text})
    assert understand({"path": "/data", "splitBytes": "64k"}).split_bytes == 65536
