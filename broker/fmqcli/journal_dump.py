"""The walk behind `fmq journal dump`: one row per batch, filtered, also behind damage."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from fmqcli.journal_unread import UnreadFiles
from fmqcli.output import journal as show
from fmqcore.batch.columns import BadColumns
from fmqcore.batch.control import decode_topic
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchFault, BatchHeader, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Position, TopicId
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.findings import FAULT_CODES, Code, error
from fmqcore.journal.recovery import Cut, Refuse, SegmentFile, judge, judge_sealed, survey
from fmqcore.journal.scan import Cursor, Fault, Scan, Stop, begin_next
from fmqcore.journal.segments import Segment
from fmqcore.journal.state import JournalState
from fmqcore.scan.skip_damage import resync
from fmqinspect.files import DataDirectory, SegmentBytes

_INCOMPLETE: Final = 3
_BY_WEIGHT: Final = (0, 1, _INCOMPLETE, 2)
"""Exit codes by weight: what is wrong outweighs what is missing."""


class Filter(NamedTuple):
    """What to show."""

    topic: str  # name or number; "" = all
    queue: int | None
    start: Position
    limit: int  # 0 = all


class Dump:
    """Iterate `rows`; afterwards `stopped` has the reason of an early end ("" = none)."""

    def __init__(self, opened: DataDirectory, wanted: Filter, *, values: bool) -> None:
        self.stopped = ""
        self.exit_code = 0
        self._opened = opened
        self._wanted = wanted
        self._values = values
        self._topics: dict[TopicId, str] = {}
        self._files = UnreadFiles(opened)
        for line in self._files.unread:
            self._stop(_INCOMPLETE, f"not read: {line}")
        self._checkpoint = _checkpoint(opened)
        self._survey = survey(opened.listing, self._checkpoint)

    def rows(self) -> Iterator[show.Row]:
        """Yield one row per wanted batch."""
        if self._survey.refusal:
            self._stop(2, str(self._survey.refusal))
        cursor, shown = Cursor(self._survey.journal_start), 0
        for file in self._survey.segments:
            if file.end <= self._wanted.start:
                continue
            begin_next(cursor)
            if cursor.position != file.base or cursor.segment is not None:
                cursor = Cursor(file.base)
            try:
                with self._opened.segment(file.name) as data:
                    for row in self._segment(file, data, cursor):
                        yield row
                        shown += 1
                        if shown == self._wanted.limit:
                            return
            except OSError as failed:
                self._note_unread(file, failed)
        if not shown and not self._files.size:
            self._name_an_unknown_topic()

    def _note_unread(self, file: SegmentFile, failed: OSError) -> None:
        """Report a segment that cannot be read; the rows before and behind it are shown."""
        found = self._files.note(file, failed)
        if isinstance(found, str):
            self._stop(_INCOMPLETE, f"not read: {found}")
        elif found is not None:
            self._stop(2, str(found))

    def _segment(self, file: SegmentFile, data: SegmentBytes, cursor: Cursor) -> Iterator[show.Row]:
        while True:
            scan = Scan(data, file.base, cursor)
            for header in scan:
                row = self._row(header, scan.payload(header))
                if row is not None:
                    yield row
            if not (isinstance(scan.stop, Fault) and self._go_on(scan.stop, file, data, cursor)):
                break
        if scan.stop is not None:
            self._judge(scan.stop, file)

    def _go_on(self, fault: Fault, file: SegmentFile, data: SegmentBytes, cursor: Cursor) -> bool:
        """Skip damage that is not the end, up to where the next batch starts for sure."""
        last = file == self._survey.segments[-1]
        if last and fault.position >= self._survey.durable_end:
            return False
        skipped = resync(fault, data, Segment(file.base, file.end), cursor)
        if skipped is None:
            return False
        sentence = f"{fault.sentence}; {skipped} bytes are not shown, up to {cursor.position}"
        self._stop(2, str(error(FAULT_CODES[fault.fault], file.name, fault.position, sentence)))
        return True

    def _row(self, header: BatchHeader, payload: Buffer) -> show.Row | None:
        self._learn(header, payload)
        wanted = self._wanted
        if header.position < wanted.start:
            return None
        topic = self._topics.get(header.topic_id, f"#{header.topic_id}")
        if wanted.topic and (
            header.type != BatchType.DATA or wanted.topic not in (topic, str(header.topic_id))
        ):
            return None
        if wanted.queue is not None and (
            header.type != BatchType.DATA or wanted.queue != header.queue_id
        ):
            return None
        row = show.batch_row(header, topic)
        try:
            if header.type != BatchType.DATA:
                row["content"] = show.control_content(header, payload)
            elif self._values:
                row["values"] = show.record_rows(header, payload)
        except (Malformed, BadColumns) as bad:
            row["content"] = {"undecodable": str(bad)}
        return row

    def _name_an_unknown_topic(self) -> None:
        """Report it if the journal knows no topic of the wanted name or number."""
        wanted, known = self._wanted.topic, sorted(self._topics.values())
        if wanted and wanted not in known and wanted not in map(str, self._topics):
            topics = ", ".join(known) or "none"
            self._stop(1, f"no topic {wanted!r} in this journal; its topics: {topics}")

    def _learn(self, header: BatchHeader, payload: Buffer) -> None:
        """Learn topic names from the journal."""
        try:
            if header.type == BatchType.SNAP:
                topics = JournalState.from_snap(payload).topics
                self._topics |= {topic_id: name for topic_id, (name, _) in topics.items()}
            elif header.type == BatchType.CONFIG:
                setting = decode_topic(payload)
                self._topics[setting.topic_id] = setting.name
        except Malformed:
            pass  # reported in the batch's row

    def _judge(self, stop: Stop, file: SegmentFile) -> None:
        """Report a segment that does not end as it should."""
        if file == self._survey.segments[-1]:
            if self._opened.live:
                if isinstance(stop, Fault) and stop.fault is BatchFault.KIND:
                    self._stop(2, str(error(Code.J006, file.name, stop.position, stop.sentence)))
                elif isinstance(stop, Fault):
                    self._stop(0, f"the end moves: not read from position {stop.position} on")
                return
            verdict = judge(
                stop,
                file.name,
                durable_end=self._survey.durable_end,
                clean=self._checkpoint is not None and self._checkpoint.clean,
            )
            if isinstance(verdict, Cut | Refuse):
                self._stop(2 if isinstance(verdict, Refuse) else 1, str(verdict.finding))
            return
        refusal = judge_sealed(stop, file)
        if refusal:
            self._stop(2, str(refusal.finding))

    def _stop(self, code: int, reason: str) -> None:
        self.exit_code = max(self.exit_code, code, key=_BY_WEIGHT.index)
        self.stopped += f"{reason}\n"


def _checkpoint(opened: DataDirectory) -> Checkpoint | None:
    raw = opened.checkpoint
    if raw is None:
        return None
    try:
        return decode_checkpoint(raw)
    except Malformed:
        return None  # `verify` reports it
