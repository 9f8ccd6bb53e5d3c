"""`spark.readStream.format("fmq")`: Spark's progress is a position of the journal.

One number orders all that a journal holds: a micro-batch is the batches that begin in [start, end),
the same ones whenever and from whichever replica they are read. With a sink that knows its
micro-batches (files do) each record is in it exactly once.

Beside it stands of which journal it is: the newest segment below, by the header CRC of its first
batch (of a journal's first segment: of its second batch, too). The same number of another journal
would skip its records, and nobody would be told.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from fmqcore.errors import CorruptJournal, FmqError, InvalidArgument, Unavailable
from fmqcore.scan.select import Range, Wanted
from fmqspark.source.options import Request
from fmqspark.source.survey import Survey
from fmqspark.spark.source import TaskPartition, partitions, read, tell

_POSITION: Final = "position"
_MARKS: Final = "marks"
_TRIES: Final = 30
_APART_S: Final = 1.0


class FmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query."""

    def __init__(self, request: Request, columns: tuple[str, ...]) -> None:
        self._request = request
        self._columns = columns
        self._target: int | None = None
        self._told: list[str] = []
        self._gone: list[str] = []  # topics that are in none of what is left to read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        found = self._survey()
        self._request.wanted_in(found)  # an unknown topic is told before anything is read
        starting = self._request.starting
        if starting == "earliest":
            return {_POSITION: found.begin}
        return self._marked(found.end if starting == "latest" else int(starting), found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the option `maxBytesPerTrigger` says."""
        most = self._request.per_trigger
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that this run reads."""
        self._target = self._survey().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
        begin = start[_POSITION]
        found = self._survey(begin, begin)
        self._require_mine(found, start)
        end = int(found.end)
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxBytes):
            end = min(end, begin + limit.max_bytes)
        return self._marked(end, found) if end > begin else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskPartition]:
        """The splits of a micro-batch."""
        begin, until = start[_POSITION], end[_POSITION]
        if begin >= until:
            return []
        found = self._survey(begin, until)
        for told in (start, end):
            self._require_mine(found, told)
        if begin < found.begin and self._request.fail_on_data_loss:
            raise CorruptJournal(
                f"the stream goes on at position {begin}, but what lies below {found.begin} is "
                "deleted (retention): set failOnDataLoss to false to go on from there"
            )
        wanted = self._wanted_in(found)
        wanted = replace(wanted, positions=wanted.positions.cut(Range(begin, until)))
        return partitions(self._request.cut(found, wanted))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See `DataSourceStreamReader`."""
        return read(partition, self._columns, self._request.fields)

    def _wanted_in(self, found: Survey) -> Wanted:
        """A topic that was deleted has no more records; that does not end the others' stream.

        It was there when the query began; what it had is behind, or named in what is to be read.
        """
        gone: list[str] = []
        wanted = self._request.wanted_in(found, gone)
        if gone != self._gone:  # once, not with each micro-batch
            tell(
                f"no topic {name!r} in this journal from position {found.segments[0].segment.base} "
                "on: if it was deleted, all that it had is read; if it was never there, it is a "
                "mistake in the option topic"
                for name in gone
                if name not in self._gone
            )
            self._gone = gone
        return wanted

    def _survey(self, since: int = 0, reaching: int = 0) -> Survey:
        """What there is, which must go on to `reaching`.

        Of live brokers the one that knew most may be gone, and what is left gets to know it: a
        slave takes over, or the master comes back.
        """
        request = self._request
        tries = _TRIES if request.connect else 1
        for number in range(tries):
            if number:
                time.sleep(_APART_S)
            try:
                found = request.survey(since)
            except Unavailable:
                if number + 1 == tries:
                    raise
                continue
            if found.told != self._told:  # once, not with each micro-batch
                tell(found.told)
                self._told = found.told
            if found.end >= reaching:
                return found
        raise self._ahead(reaching, found.end)

    def _marked(self, position: int, found: Survey) -> dict[str, Any]:
        """As progress, with its mark. What is not committed may be cut, and has none."""
        below = [view for view in found.segments if view.segment.base < position]
        if not below or position > found.end or self._request.uncommitted:
            return {_POSITION: position}
        return {_POSITION: position, _MARKS: [list(mark) for mark in below[-1].marks.items()]}

    def _require_mine(self, found: Survey, told: dict[str, Any]) -> None:
        """Raises `InvalidArgument` if that is progress in another journal.

        Of earlier versions it has no mark; a segment that retention deleted says nothing.
        """
        marks: dict[int, int] = dict(told.get(_MARKS, ()))
        base = min(marks, default=-1)
        if base < found.begin or not found.segments:
            return
        if base < found.segments[0].segment.base:
            try:  # the stream stands where that segment ends, so it was not looked at
                found = self._request.survey(base)
            except (FmqError, OSError):
                return  # what is damaged there is not read again
        known = {int(view.segment.base): view.marks for view in found.segments}
        there = known.get(base, {base: -1})  # else a segment of another place is where it was
        if any(marks.get(at, crc) != crc for at, crc in there.items()):
            named = ", ".join(self._request.named)
            raise InvalidArgument(
                f"the stream's progress is of another journal than that of {named}: its segment at "
                f"{base} began otherwise; name its own, or another checkpointLocation"
            )

    def _ahead(self, asked: int, end: int) -> CorruptJournal:
        return CorruptJournal(
            f"the stream is at position {asked}, but {', '.join(self._request.named)} can be "
            f"read to {end} only: another journal, or a replica that is behind; name others, too"
        )
