"""Check one segment of one replica: the task that every engine runs.

Everything about a segment is found where its bytes are; the result is small. A segment stands for
itself, because its SNAP holds the state of all before it; that it follows from the one before is
checked by that one's task, which reads the first batch behind its end, too.
"""

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchFault, BatchHeader, parse_header
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.findings import FAULT_CODES, Code, Finding, error
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.resume_file import RESUME
from fmqcore.journal.scan import Fault, advance, begin_next, payload_of
from fmqcore.journal.segments import index_name, segment_name
from fmqcore.journal.state import JournalState, disagreement
from fmqcore.scan.digests import BlockDigests
from fmqcore.verify.directory import SegmentReport, Verifier
from fmqcore.verify.index import IndexState
from fmqcore.verify.progress import OffsetHistory, check_offsets, check_side_journal
from fmqcore.verify.small_files import note_resume
from fmqcore.verify.store_times import falls
from fmqspark.check.coverage import Piece, cover
from fmqspark.check.finding_limit import few
from fmqspark.check.rows import Covered, Level, SegmentResult, State, found_on
from fmqspark.check.tolerant_reader import PatchyBytes, open_patchy
from fmqspark.source.files import Throttle, open_segment, read_small

_LOOKS: Final = 10
_RETRY_S: Final = 0.05
_STEP: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment to check; `listing` holds only the files that its verdict depends on."""

    replica: str
    path: str
    base: int
    size: int
    level: Level
    listing: tuple[tuple[str, int], ...]
    checkpoint: bytes | None
    live: bool
    newest: bool  # the journal ends in it
    bytes_per_s: float = 0

    @property
    def file(self) -> SegmentFile:
        """The segment's file."""
        return SegmentFile(Position(self.base), self.size)


def check_segment(task: SegmentTask) -> SegmentResult:
    """Check a segment; an I/O error is part of the result, not raised."""
    result = _checked(task)
    if result.end <= task.file.end or task.level is Level.DEEP:
        return result
    # Truncated within a batch of which only the header was read: read all, to report the place.
    again = _checked(replace(task, level=Level.DEEP))
    again.bytes_read += result.bytes_read
    return again


def _checked(task: SegmentTask) -> SegmentResult:
    file = task.file
    throttle = Throttle(task.bytes_per_s)
    result = SegmentResult(task.replica, task.base, task.size, task.base)
    sparse = task.level is not Level.DEEP
    try:
        with open_patchy(task.path, file.name, throttle, sparse=sparse) as data:
            try:
                _Check(task, result, data, throttle).run()
            finally:
                result.bytes_read += data.bytes_read
    except FileNotFoundError as failed:
        result.retired = task.live and not task.newest
        _not_read(result, file, State.RETIRED if result.retired else State.UNREAD, failed)
    except OSError as failed:
        _not_read(result, file, State.UNREAD, failed)
    return result


def _not_read(result: SegmentResult, file: SegmentFile, state: State, failed: OSError) -> None:
    why = failed.strerror or str(failed)
    result.coverage = [Covered(result.replica, file.name, file.base, file.end, state.value, why)]


class _Check:
    def __init__(
        self, task: SegmentTask, result: SegmentResult, data: PatchyBytes, throttle: Throttle
    ) -> None:
        self._task = task
        self._throttle = throttle
        self._result = result
        self._data = data
        self._looks = _LOOKS
        self._unread: list[Covered] = []  # files beside it
        self._file = task.file
        self._history = OffsetHistory(self._file.name)
        self._digests = BlockDigests()
        self._payloads = task.level is not Level.QUICK
        self._verifier = Verifier(
            task.listing,
            task.checkpoint,
            live=task.live,
            payloads=self._payloads,
            data_payloads=task.level is Level.DEEP,
            watch=self._history,
            seen=self._digests,
        )

    def run(self) -> None:
        task, verifier, result = self._task, self._verifier, self._result
        report = self._walked()
        doubts = _Doubts(self._data, report, verifier.cursor.position)
        report.findings = few(report.findings)
        findings = list(report.findings) + few(self._history.findings)
        if task.newest:
            whole = not report.findings and not self._data.why
            findings += self._at_the_end(known=not doubts.at_the_end) + self._resume(whole=whole)
        elif report.sealed:
            findings += self._next()
        result.findings = [found_on(task.replica, finding) for finding in few(findings)]
        result.end = verifier.cursor.position
        result.sealed = report.sealed
        result.batches, result.records = report.batches, report.records
        result.first_ms, result.last_ms = report.first_ms, report.last_ms
        result.index = report.index.value
        result.coverage = cover(task.replica, report, result.end, doubts.lost) + self._unread
        result.digests = self._digests.made

    def _walked(self) -> SegmentReport:
        """Check the segment beside its index file.

        The index is read in pieces: with small batches it is a third of the segment.
        """
        name = index_name(self._file.base)
        with ExitStack() as held:
            index = self._opened(name, held)
            report = self._verifier.segment(
                self._file, self._data, index, index_lost=bool(self._unread), again=self._again
            )
            if index is not None:
                self._is_read(name, index, report)
        return report

    def _is_read(self, name: str, index: PatchyBytes, report: SegmentReport) -> None:
        """Report the unreadable parts of the index file, without findings that follow from them.

        The whole index file is read, also where damage hid what it must hold and nothing read it.
        """
        for at in range(0, 0 if index.bytes_read else len(index), _STEP):
            index.read(_STEP, at)
        self._result.bytes_read += index.bytes_read
        if index.why:
            self._lost(name, index.why)
            report.findings = [found for found in report.findings if found.file != name]
            report.index = IndexState.NONE

    def _opened(self, name: str, held: ExitStack) -> PatchyBytes | None:
        """Open a file; None also if that fails, which is reported by itself and hinders nothing."""
        try:
            return held.enter_context(
                open_patchy(self._task.path, name, self._throttle, sparse=True)
            )
        except FileNotFoundError:
            return None
        except OSError as failed:
            self._lost(name, failed.strerror or str(failed))
            return None

    def _lost(self, name: str, why: str) -> None:
        self._unread.append(Covered(self._task.replica, name, 0, 0, State.UNREAD.value, why))

    def _small(self, name: str) -> bytes | None:
        """Read a small file; None also if that fails, which is reported by itself."""
        try:
            found = read_small(self._task.path, name)
        except OSError as failed:
            self._lost(name, failed.strerror or str(failed))
            return None
        self._result.bytes_read += len(found or b"")
        self._throttle.read(len(found or b""))
        return found

    def _again(self) -> bool:
        """Look again at a moving end; False after a few times."""
        if not self._looks:
            return False
        self._looks -= 1
        time.sleep(_RETRY_S)
        self._data.refresh()
        return True

    def _at_the_end(self, *, known: bool) -> list[Finding]:
        """Check checkpoint, consumer progress and side journal at the newest segment's end.

        `known`: whether it is the journal's end, or only that of what can be read.
        """
        verifier, before = self._verifier, len(self._verifier.findings)
        if known:
            verifier.finish()
        found = verifier.findings[before:]
        if not self._payloads:
            return found
        state = verifier.state
        if state is not None:
            found += check_offsets(state, self._file.name, verifier.cursor.position)
        side = self._small(SIDE_JOURNAL)
        if side is not None:
            found += check_side_journal(side, state if known and not self._task.live else None)
        return found

    def _resume(self, *, whole: bool) -> list[Finding]:
        """Compare the broker's note of what the newest segment adds up to with its bytes.

        Where the segment itself is damaged, that is reported, and not what it does to the note.
        """
        if self._file != self._verifier.segments[-1]:
            return []
        with ExitStack() as held:
            raw = self._opened(RESUME, held)
            if raw is None:
                return []
            newest = self._data if whole and self._task.level is Level.DEEP else None
            note = note_resume(raw, self._verifier.segments, newest, live=self._task.live)
        self._result.bytes_read += raw.bytes_read
        if raw.why:
            self._lost(RESUME, raw.why)
            return []
        return [note.finding] if note.finding is not None else []

    def _next(self) -> list[Finding]:
        """Check whether the next segment's first batch follows from this one."""
        cursor, state = self._verifier.cursor, self._verifier.state
        base = self._file.end
        name = segment_name(base)
        if all(n != name for n, _ in self._task.listing):
            return []
        begin_next(cursor)
        position = cursor.position
        findings: list[Finding] = []
        try:
            with open_segment(self._task.path, name, self._throttle, sparse=True) as data:
                found = advance(data, base, cursor, payloads=self._payloads)
                if isinstance(found, BatchHeader):
                    findings += falls(self._verifier.before_ms, found, name)
                    if self._payloads and state is not None:
                        snap = JournalState.from_snap(payload_of(found, data, base))
                        findings += _disagrees(state, snap, found, name)
        except (OSError, Malformed):
            return findings  # that segment's own task reports the rest
        finally:
            cursor.position = position
        if isinstance(found, Fault) and found.fault in _LINK:
            findings.append(error(FAULT_CODES[found.fault], name, base, found.sentence))
        return findings


class _Doubts:
    """Verifier results on bytes that the disk did not give: they are no findings.

    They are taken out of the report.
    """

    def __init__(self, data: PatchyBytes, report: SegmentReport, end: Position) -> None:
        self._data = data
        self._file = report.file
        self.lost: list[Piece] = []
        self.at_the_end = False
        """Whether what is behind the last good batch cannot be read."""
        if not data.why:
            return
        doubted: list[Finding] = []
        kept: list[Finding] = []
        for finding in report.findings:
            (doubted if self._is_of_lost(finding) else kept).append(finding)
        report.findings = kept
        begins = {finding.position for finding in doubted}
        self.at_the_end = not report.sealed and (
            end in begins or data.is_lost(end - self._file.base, end - self._file.base + HEADER_LEN)
        )
        places = [
            (self._file.base + begin, self._file.base + until) for begin, until in data.lost()
        ]
        places += [(f.position, f.end) for f in doubted if f.position is not None and f.end]
        places += [(end, self._file.end)] if self.at_the_end else []
        self.lost = [Piece(begin, until, State.UNREAD, data.why) for begin, until in places]

    def _is_of_lost(self, finding: Finding) -> bool:
        """Return whether a finding comes from lost bytes.

        A header's fault is in its bytes, a payload's in any of the batch; others cannot be.
        """
        if finding.file != self._file.name or finding.position is None:
            return False
        if finding.code not in (Code.J001, Code.J002):
            return False
        at = finding.position - self._file.base
        length = HEADER_LEN
        if finding.code is Code.J002:
            with suppress(BadBatch):  # it cannot be read again: then that is what is lost
                length = parse_header(self._data[at : at + HEADER_LEN]).total_len
        return self._data.is_lost(at, at + length)


_LINK: Final = (BatchFault.CHAIN, BatchFault.EPOCH, BatchFault.OFFSET)
"""Faults that only both segments together show; other faults are the next one's own."""


def _disagrees(
    state: JournalState, snap: JournalState, header: BatchHeader, name: str
) -> list[Finding]:
    why = disagreement(state, snap)
    if not why:
        return []
    sentence = f"SNAP is not what the journal before it adds up to: {why}"
    return [error(Code.M001, name, header.position, sentence, header.end)]
