"""A segment's file that vanishes while the directory of a running broker is checked."""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import LOCK
from fmqspark.tests.kit import check, codes, journal, rows

T = TypeVar("T")
R = TypeVar("R")
BASES = sorted(journal().segments)


class Meanwhile(LocalEngine):
    """Does something when the first results are there, and when all are."""

    def __init__(
        self, happens: Callable[[], object], at_last: Callable[[], object] = lambda: None
    ) -> None:
        self._happens = happens
        self._at_last = at_last

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        for number, done in enumerate(super().run(work, tasks)):
            yield done
            if number == 0:
                self._happens()
        self._at_last()


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    ("says", "taken"),
    [
        ({}, False),  # removed by the disk, or by a person
        ({"journal_start": BASES[6], "bases": tuple(BASES[6:])}, True),
        ({"bases": tuple(BASES[:5]), "durable_end": BASES[5], "commit_end": BASES[5]}, True),
        ({"drop_from": BASES[5]}, True),
    ],
)
def test_only_what_the_broker_took_is_retired(
    a: Path, b: Path, level: Level, says: dict[str, Any], taken: bool
) -> None:
    def happens() -> None:
        (b / CHECKPOINT).write_bytes(encode_checkpoint(journal().checkpoint(**says)))
        (b / segment_name(BASES[5])).unlink()

    with (b / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = check(b, a, level=level, engine=Meanwhile(happens))
    gone = [("b", BASES[5], BASES[6])]
    assert rows(outcome, "retired") == (gone if taken else [])
    assert rows(outcome, "unread") == ([] if taken else gone)
    assert codes(outcome) == ([] if taken else [("J005", "b", BASES[5])])
    assert outcome.exit_code == (0 if taken else 2)


@pytest.mark.parametrize("level", Level)
def test_file_that_reappeared_is_unread_and_not_missing(a: Path, b: Path, level: Level) -> None:
    """A replica that was recreated meanwhile; or an executor that does not see the disk."""
    file, aside = b / segment_name(BASES[5]), b / "aside"
    with (b / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine = Meanwhile(
            lambda: file.rename(aside), lambda: aside.exists() and aside.rename(file)
        )
        outcome = check(b, a, level=level, engine=engine)
    assert (codes(outcome), outcome.exit_code) == ([], 3)
    assert rows(outcome, "unread") == [("b", BASES[5], BASES[6])]
    assert [c.needs_own_line for c in outcome.coverage if c.state == "unread"] == [True]
