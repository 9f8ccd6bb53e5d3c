"""`spark.readStream.format("fmq")`: Spark's progress is a position of the journal.

One number orders all that a journal holds: a micro-batch is the batches that begin in [start, end),
the same ones whenever and from whichever replica they are read. With a sink that recognises its
micro-batches (files do) each record is in it exactly once.

Beside the position, an offset identifies its journal: by the newest segment below, with the header
CRC of the first batch there (in a journal's first segment: of the second batch, too), and for live
brokers by their cluster and group. The same number in another journal would skip records there
without an error. What else an offset holds is in `fmqspark.source.stream_offsets`.
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
from fmqcore.scan.selection import Range, Wanted
from fmqspark.source.options import Request
from fmqspark.source.stream_offsets import (
    JOURNAL,
    MARKS,
    POSITION,
    SELECTION,
    STARTING,
    Offset,
    batch_start,
    changed_options,
    ignored_start,
    selection_of,
    widened,
)
from fmqspark.source.survey import Survey
from fmqspark.source.unread_rows import unread_below
from fmqspark.spark.partitions import TaskPartition, partitions, print_notices, read

_TRIES: Final = 30
_RETRY_S: Final = 1.0


class FmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query."""

    def __init__(self, request: Request, columns: tuple[str, ...]) -> None:
        self._request = request
        self._columns = columns
        self._target: int | None = None
        self._selection = selection_of(request.topics, request.wanted)
        self._printed: list[str] = []
        self._reported = ""
        self._gone: list[str] = []  # topics that are in none of what is left to read

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        found = self._survey()
        self._request.wanted_in(found)  # an unknown topic is reported before any read
        option = self._request.starting
        ends = {"earliest": found.begin, "latest": found.end}
        position = int(ends[option]) if option in ends else int(option)
        return self._offset(position, found, {"option": option, "position": position})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the option `maxBytesPerTrigger` sets."""
        most = self._request.per_trigger
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit this run to what is there now."""
        self._target = self._survey().end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far the next micro-batch goes."""
        begin = start[POSITION]
        found = self._survey(begin, begin)
        self._require_same_journal(found, start)
        self._report(ignored_start(start, self._request.starting))
        end = int(found.end)
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxBytes):
            end = min(end, begin + limit.max_bytes)
        return self._offset(end, found, start.get(STARTING)) if end > begin else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[TaskPartition]:
        """Return the splits of a micro-batch."""
        (begin, note), until = batch_start(start, end), end[POSITION]
        self._report(note)
        if begin >= until:
            return []
        self._require_same_selection(end)
        found = self._survey(begin, until)
        for offset in (start, end):
            self._require_same_journal(found, offset)
        self._require_kept(begin, until, found)
        self._require_read(start, begin)
        wanted = self._wanted_in(found)
        wanted = replace(wanted, positions=wanted.positions.cut(Range(begin, until)))
        return partitions(self._request.cut(found, wanted))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See `DataSourceStreamReader`."""
        return read(partition, self._columns, self._request.fields)

    def _require_kept(self, begin: int, until: int, found: Survey) -> None:
        """Raise `CorruptJournal` if retention deleted what comes next, unless that is allowed."""
        if begin >= found.begin:
            return
        if self._request.fail_on_data_loss:
            raise CorruptJournal(
                f"the stream would continue at position {begin}, but retention has deleted the "
                f"journal below {found.begin}: set failOnDataLoss to false to continue from there"
            )
        self._report(
            f"positions {begin} to {min(until, found.begin)} are deleted (retention): the stream "
            "goes on without them (failOnDataLoss is false)"
        )

    def _require_same_selection(self, end: Offset) -> None:
        """Raise `InvalidArgument` if a micro-batch was planned with options that select otherwise.

        Its end is stored with those, so a later change would miss what it did not read.
        `failOnDataLoss` false allows it.
        """
        planned = end.get(SELECTION, self._selection)
        if changed := changed_options(planned, self._selection):
            message = (
                f"the micro-batch up to position {end[POSITION]} was planned with other options "
                f"({', '.join(changed)}) and is not committed yet"
            )
            if self._request.fail_on_data_loss:
                raise InvalidArgument(
                    f"{message}: set the options back until it is, or set failOnDataLoss to false "
                    "to read it with the new ones"
                )
            self._report(f"{message}; it is read with the new ones (failOnDataLoss is false)")

    def _require_read(self, start: Offset, begin: int) -> None:
        """Raise `InvalidArgument` if changed options select records behind the stream.

        They would never come. `failOnDataLoss` false allows it.
        """
        before = start.get(SELECTION, {})  # an earlier version stored none: nothing to compare
        wider = widened(before, self._selection)
        if not wider:
            return
        why = f"records below position {begin}, where this stream stands"
        try:
            if not unread_below(self._request, before, wider, begin):
                return
        except (FmqError, OSError) as error:
            why = f"records that cannot be looked for ({error}) below position {begin}"
        message = f"the changed options ({', '.join(wider)}) select {why}: they never come"
        if self._request.fail_on_data_loss:
            raise InvalidArgument(
                f"{message}; set the options back and read the rest with a stream that has a "
                "separate checkpointLocation, or set failOnDataLoss to false to go on without"
            )
        self._report(f"{message} (failOnDataLoss is false)")

    def _report(self, sentence: str) -> None:
        """Write a sentence to the driver's log, unless it is the one written last."""
        if sentence and sentence != self._reported:
            print_notices([sentence])
            self._reported = sentence

    def _wanted_in(self, found: Survey) -> Wanted:
        """Return what is wanted; a deleted topic does not end the others' stream.

        The topic was there when the query started; its records are behind, or named in what is to
        be read.
        """
        gone: list[str] = []
        wanted = self._request.wanted_in(found, gone)
        if gone != self._gone:  # once, not with each micro-batch
            first = found.segments[0].segment.base if found.segments else found.begin
            print_notices(
                f"no topic {name!r} in this journal from position {first} "
                "on: if it was deleted, all that it had is read; if it was never there, it is a "
                "mistake in the option topic"
                for name in gone
                if name not in self._gone
            )
            self._gone = gone
        return wanted

    def _survey(self, since: int = 0, reaching: int = 0) -> Survey:
        """Return the survey of the journal, which must reach at least `reaching`.

        The live broker that knew most may be gone; the others get to know it: a slave takes over,
        or the master comes back.
        """
        request = self._request
        tries = _TRIES if request.connect else 1
        for number in range(tries):
            if number:
                time.sleep(_RETRY_S)
            try:
                found = request.survey(since)
            except Unavailable:
                if number + 1 == tries:
                    raise
                continue
            if found.notices != self._printed:  # once, not with each micro-batch
                print_notices(found.notices)
                self._printed = found.notices
            if found.end >= reaching:
                return found
        raise self._ahead(reaching, found.end)

    def _offset(self, position: int, found: Survey, starting: Offset | None) -> Offset:
        """Return a position as progress, with its mark.

        What is not committed may be truncated, and has no mark.
        """
        offset: Offset = {POSITION: position}
        below = [view for view in found.segments if view.segment.base < position]
        if below and position <= found.end and not self._request.uncommitted:
            offset[MARKS] = [list(mark) for mark in below[-1].marks.items()]
        if found.journal:
            offset[JOURNAL] = found.journal
        if starting is not None:
            offset[STARTING] = starting
        return offset | {SELECTION: self._selection}

    def _require_same_journal(self, found: Survey, offset: Offset) -> None:
        """Raise `InvalidArgument` if an offset is progress in another journal.

        An offset of an earlier version has no mark; a segment that retention deleted proves
        nothing.
        """
        named = ", ".join(self._request.named)
        journal = offset.get(JOURNAL, found.journal)
        if found.journal and journal != found.journal:
            raise InvalidArgument(
                f"the stream's checkpoint belongs to journal {journal}, but {named} holds journal "
                f"{found.journal}: name the stream's journal, or another checkpointLocation"
            )
        marks: dict[int, int] = dict(offset.get(MARKS, ()))
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
            raise InvalidArgument(
                f"the stream's checkpoint belongs to another journal than that of {named} (the "
                f"segments at {base} differ): name the stream's journal, or another "
                "checkpointLocation"
            )

    def _ahead(self, asked: int, end: int) -> CorruptJournal:
        return CorruptJournal(
            f"the stream is at position {asked}, but {', '.join(self._request.named)} can be "
            f"read to {end} only: another journal, or a replica that is behind; name others, too"
        )
