"""Verify a whole data directory: every CRC, chain, continuity, SNAP, index, checkpoint. Pure.

The caller (`fmq journal verify`, the Spark check) reads the files and passes in their bytes,
segment by segment in ascending order. Bytes that could not be checked are reported too
(`unread_bytes`, `moving`): they are not OK. Nothing is truncated or repaired here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from fmqcore.batch.columns import BadColumns
from fmqcore.batch.columns import check as check_columns
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import HEADER_LEN, BatchFault, BatchHeader, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.findings import (
    AS_IT_WAS_SENT,
    FAULT_CODES,
    REFILL,
    UNREAD,
    Code,
    Finding,
    error,
    warning,
)
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.recovery import (
    Cut,
    Refuse,
    SegmentFile,
    check_length,
    judge,
    judge_sealed,
    survey,
)
from fmqcore.journal.scan import (
    Blank,
    Cursor,
    Fault,
    Readable,
    Scan,
    Sealed,
    Stop,
    advance,
    begin_next,
    first_nonzero,
    payload_of,
)
from fmqcore.journal.segments import Segment
from fmqcore.journal.state import JournalState, disagreement
from fmqcore.scan.skip_damage import resync
from fmqcore.verify.checkpoint import Claims, check_bases, check_stop
from fmqcore.verify.index import BuiltIndex, IndexState, check_index
from fmqcore.verify.store_times import falls

_PAYLOAD_FAULTS: Final = (BatchFault.PAYLOAD_CRC, BatchFault.CONTENT)
_PROGRESS_BYTES: Final = 4 * 1024 * 1024
_ZEROS: Final = "zeros where a batch must be"

Watch = Callable[[BatchHeader, Buffer, JournalState], None]
"""Called with a control batch before the state applies it. May raise `Malformed`."""


@dataclass(slots=True)
class SegmentReport:
    """The result for one segment."""

    file: SegmentFile
    used: int = 0  # bytes of good batches
    unread_bytes: int = 0  # within or behind damage: not checked
    skipped_bytes: int = 0  # of these, before the last good batch
    batches: int = 0
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0
    sealed: bool = False
    index: IndexState = IndexState.NONE
    moving: bool = False  # its end changed under our eyes, and stayed unreadable
    findings: list[Finding] = field(default_factory=list)


class Verifier:
    """Checks a directory: call `segment` for each of `segments`, then `finish`."""

    def __init__(
        self,
        listing: Iterable[tuple[str, int]],
        checkpoint: bytes | None,
        *,
        unread: str = "",
        live: bool = False,
        payloads: bool = True,
        data_payloads: bool = True,
        watch: Watch | None = None,
        seen: Callable[[BatchHeader], None] | None = None,
    ) -> None:
        """`unread`: why the checkpoint cannot be read. `live`: a broker is running, the end moves.

        `payloads=False`: headers and indexes only, quick; `data_payloads=False`: control batches'
        payloads, too. `watch` is called with every control batch and the state before the batch;
        `seen` with every header that counts.
        """
        self.findings: list[Finding] = []
        self._live = live
        self._payloads = payloads
        self._data_payloads = data_payloads
        self._watch = watch
        self._seen = seen
        self._checkpoint, damaged = _read_checkpoint(checkpoint)
        self._survey = survey(listing, self._checkpoint, damaged=damaged, unread=unread)
        self.segments = self._survey.segments
        self.findings += self._survey.findings
        self.findings += self._survey.missing
        self.findings += check_bases(self._checkpoint, self.segments)
        self._cursor = fresh_cursor(self._survey.journal_start)
        self._state: JournalState | None = None
        self.before_ms = 0  # when the batch before the cursor was stored; 0: not known

    def segment(
        self,
        file: SegmentFile,
        data: Readable,
        index_file: Readable | None,
        *,
        index_lost: bool = False,
        again: Callable[[], bool] = lambda: False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> SegmentReport:
        """Check one segment. `again` waits and returns whether to look at a moving end once more;
        `progress` is called with the bytes read since its last call. `index_lost`: the index file
        could not be read, so its absence is no finding.
        """
        report = SegmentReport(file)
        begin_next(self._cursor)
        if self._cursor.position != file.base or self._cursor.segment is not None:
            self._cursor, self._state = Cursor(file.base), None  # a gap or damage before
            self.before_ms = 0
        claims = Claims(self._checkpoint, file)
        walk = _Walk(self, report, data, claims, again, progress)
        stop = walk.run()
        report.sealed = isinstance(stop, Sealed)
        report.used = self._cursor.position - file.base - report.skipped_bytes
        report.unread_bytes = report.skipped_bytes
        if isinstance(stop, Fault):
            report.unread_bytes = file.size - report.used
        if not report.moving:
            self._judge(report, stop, data)
        report.findings += claims.findings(self._state)
        pending = index_lost or (self._live and file in self.segments[-2:])
        if not walk.resynced:  # else no record exists of what should be in it
            headers = Scan(
                data, file.base, Cursor(file.base), payloads=False, until=self._cursor.position
            )
            check_index(report, walk.index, index_file, headers, pending=pending)
        self.findings += report.findings
        return report

    @property
    def cursor(self) -> Cursor:
        """The position of the check: behind the last good batch."""
        return self._cursor

    @property
    def state(self) -> JournalState | None:
        """The journal's state there; None: unknown behind damage, or without payloads."""
        return self._state

    @property
    def durable_end(self) -> Position:
        """The end below which nothing may be missing."""
        return self._survey.durable_end

    def finish(self) -> None:
        """Compare the checkpoint with the journal's end."""
        if self.segments and not self._live:
            self.findings += check_stop(self._checkpoint, self._cursor.position)

    def _is_last(self, file: SegmentFile) -> bool:
        return file == self.segments[-1]

    def _judge(self, report: SegmentReport, stop: Stop, data: Readable) -> None:
        file = report.file
        if not self._is_last(file):
            refusal = judge_sealed(stop, file)
            if refusal:
                report.findings.append(refusal.finding)
            return
        clean = self._checkpoint is not None and self._checkpoint.clean
        at = stop.position - file.base
        dirty = not self._live and isinstance(stop, Blank) and first_nonzero(data, at) is not None
        verdict = judge(
            stop, file.name, durable_end=self._survey.durable_end, clean=clean, dirty=dirty
        )
        if isinstance(verdict, Cut | Refuse):
            report.findings.append(verdict.finding)
        if isinstance(verdict, Cut):
            report.unread_bytes = report.skipped_bytes  # void: never acknowledged as stored
        if isinstance(verdict, Refuse) and isinstance(stop, Blank):
            report.unread_bytes = file.size - report.used
        length = check_length(self._cursor.segment, file)
        if length:
            report.findings.append(length)


class _Walk:
    """Walks over one segment as the scan kernel does, but continues after damage."""

    def __init__(
        self,
        verifier: Verifier,
        report: SegmentReport,
        data: Readable,
        claims: Claims,
        again: Callable[[], bool],
        progress: Callable[[int], None],
    ) -> None:
        self.index = BuiltIndex(report.file.base)
        self.resynced = False
        self._verifier = verifier
        self._report = report
        self._data = data
        self._claims = claims
        self._again = again
        self._progress = progress

    def run(self) -> Stop:
        """Walk to the segment's end, its blank part, or a fault that hides what follows."""
        verifier, base = self._verifier, self._report.file.base
        cursor, last = verifier._cursor, verifier._is_last(self._report.file)
        until = verifier._survey.cut_at if last else None
        reported = base
        stop: Stop | None = None
        while stop is None:
            if until is not None and cursor.position >= until:
                stop = Blank(cursor.position)
                break
            found = advance(
                self._data,
                base,
                cursor,
                payloads=verifier._payloads,
                data_payloads=verifier._data_payloads,
                see=self._look_within,
            )
            if isinstance(found, BatchHeader):
                self._take(found)
                if found.type == BatchType.EOF:
                    stop = Sealed(cursor.position)
                    self._look_behind(found)
            elif isinstance(found, Fault):
                stop = self._fault(found, last)
            elif isinstance(found, Blank):
                stop = self._blank(found, last)
            else:
                stop = found
            if cursor.position - reported >= _PROGRESS_BYTES or stop is not None:
                self._progress(cursor.position - reported)
                reported = cursor.position
        return stop

    def _blank(self, blank: Blank, last: bool) -> Stop | None:
        """Zeros are the journal's end, or a hole in it. Return None to continue at the cursor."""
        if last and blank.position >= self._verifier.durable_end:
            return blank
        return self._go_on_behind(Fault(blank.position, BatchFault.MAGIC, _ZEROS))

    def _fault(self, fault: Fault, last: bool) -> Stop | None:
        """Report a fault, if it is one. Return None to continue at the cursor."""
        tail = last and fault.position >= self._verifier._survey.durable_end
        if tail and self._verifier._live and fault.fault is not BatchFault.KIND:
            if self._again():
                return None
            self._report.moving = True
            return Blank(fault.position)
        if tail:
            return fault
        if fault.fault not in _PAYLOAD_FAULTS:
            return self._go_on_behind(fault)
        header = advance(self._data, self._report.file.base, self._verifier._cursor, payloads=False)
        if isinstance(header, Fault):  # reported first, then its payload
            return self._go_on_behind(header)
        if not isinstance(header, BatchHeader):
            return fault
        self._add(Code.J002, header, fault.sentence)
        self._count(header)
        if header.type == BatchType.DATA and self._verifier._state is not None:
            apply_batch(self._verifier._state, header, b"")
        elif header.type != BatchType.DATA:
            self._verifier._state = None  # what it held is not known any more
        return None

    def _go_on_behind(self, fault: Fault) -> Stop | None:
        """Report a damaged header and go to the next batch; return `fault` if there is none."""
        report, verifier = self._report, self._verifier
        file = report.file
        skipped = resync(fault, self._data, Segment(file.base, file.end), verifier._cursor)
        if skipped is None:
            return fault
        sentence = fault.sentence
        if skipped:
            sentence += (
                f"; {skipped} bytes cannot be read, up to position {verifier._cursor.position}"
            )
        end = Position(fault.position + skipped) if skipped else None
        code = FAULT_CODES[fault.fault]
        report.findings.append(error(code, file.name, fault.position, sentence, end))
        report.skipped_bytes += skipped
        self.resynced, verifier._state, verifier.before_ms = True, None, 0
        return None

    def _look_behind(self, eof: BatchHeader) -> None:
        """Check that only zeros follow an EOF's header: nothing was ever written there."""
        base = self._report.file.base
        if not (self._verifier._payloads and self._verifier._data_payloads):
            return
        at = first_nonzero(self._data, eof.position - base + HEADER_LEN)
        if at is not None:
            place = Position(base + at)
            sentence = "behind the end of the segment there must be zeros"
            found = warning(Code.J005, self._report.file.name, place, sentence, UNREAD)
            self._report.findings.append(found)

    def _look_within(self, header: BatchHeader, payload: Buffer) -> None:
        """Check that the columns fit; the broker does not: it stores and delivers what was sent."""
        if header.type != BatchType.DATA:
            return
        try:
            check_columns(header.attrs, header.record_count, payload)
        except BadColumns as bad:
            sentence = f"under a right CRC its columns do not decode: {bad}"
            self._add(Code.J002, header, sentence, AS_IT_WAS_SENT)

    def _take(self, header: BatchHeader) -> None:
        self._count(header)
        if not self._verifier._payloads:
            return
        if header.type == BatchType.DATA:
            if self._verifier._state is not None:
                apply_batch(self._verifier._state, header, b"")
            return
        payload = payload_of(header, self._data, self._report.file.base)
        try:
            if self._verifier._watch is not None and self._verifier._state is not None:
                self._verifier._watch(header, payload, self._verifier._state)
            if header.type == BatchType.SNAP:
                self._take_snap(header, payload)
            elif self._verifier._state is not None:
                apply_batch(self._verifier._state, header, payload)
        except Malformed as bad:
            self._add(FAULT_CODES[BatchFault.CONTENT], header, str(bad))
            self._verifier._state = None

    def _take_snap(self, header: BatchHeader, payload: Buffer) -> None:
        snap, state = JournalState.from_snap(payload), self._verifier._state
        reason = disagreement(state, snap) if state is not None else ""
        if reason:
            sentence = f"SNAP is not what the journal before it adds up to: {reason}"
            self._add(Code.M001, header, sentence)
        snap.note_frame(header)
        self._verifier._state = snap

    def _count(self, header: BatchHeader) -> None:
        report = self._report
        report.batches += 1
        report.records += header.record_count if header.type == BatchType.DATA else 0
        report.first_ms = report.first_ms or header.store_ms
        report.last_ms = header.store_ms
        report.findings += falls(self._verifier.before_ms, header, report.file.name)
        self._verifier.before_ms = header.store_ms
        self.index.add(header)
        if self._claims.places:
            self._claims.see(header)
        if self._verifier._seen is not None:
            self._verifier._seen(header)

    def _add(self, code: Code, header: BatchHeader, sentence: str, remedy: str = REFILL) -> None:
        found = error(code, self._report.file.name, header.position, sentence, header.end)
        self._report.findings.append(found._replace(remedy=remedy))


def _read_checkpoint(raw: bytes | None) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint, or None and why it does not decode."""
    try:
        return (None if raw is None else decode_checkpoint(raw)), ""
    except Malformed as bad:
        return None, str(bad)


def fresh_cursor(journal_start: Position) -> Cursor:
    """Return the cursor for a whole journal: only at position 0 is the chain's start known."""
    return Cursor(journal_start, prev_header_crc=None if journal_start else 0)
