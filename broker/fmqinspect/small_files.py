"""The small files `resume`, `suspect` and `incarnations` of a data directory.

For `fmq journal`. `fmqcore.verify.small_files` checks their content; this module reads them and
reports what cannot be read.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from fmqcore.journal.damage_note import SUSPECT
from fmqcore.journal.findings import Finding, Severity
from fmqcore.journal.journal_identity import INCARNATIONS
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.resume_file import RESUME
from fmqcore.verify.directory import SegmentReport
from fmqcore.verify.small_files import Note, note_incarnations, note_resume, note_suspect
from fmqinspect.files import DataDirectory


class Notes:
    """After `read`, `found` has a note for each of these files that exists."""

    def __init__(self, opened: DataDirectory, segments: Sequence[SegmentFile]) -> None:
        self.found: list[Note] = []
        self._opened = opened
        self._segments = segments

    @property
    def findings(self) -> list[Finding]:
        """The findings of all notes."""
        return [note.finding for note in self.found if note.finding is not None]

    def read(self, reports: Sequence[SegmentReport] | None) -> list[str]:
        """Read the files; return what cannot be read. `reports`: None if no segment was read."""
        unreadable = []
        known = (
            (RESUME, self._resume),
            (SUSPECT, self._suspect),
            (INCARNATIONS, lambda raw, _: note_incarnations(raw)),
        )
        for name, read in known:
            try:
                raw = self._opened.small(name)
                if raw is not None:
                    self.found.append(read(raw, reports))
            except OSError as error:
                unreadable.append(f"{name}: {error.strerror or error}")
        return unreadable

    def _resume(self, raw: bytes, reports: Sequence[SegmentReport] | None) -> Note:
        live = self._opened.live
        with ExitStack() as files:
            data = None
            if reports is not None and self._segments:
                data = files.enter_context(self._opened.segment(self._segments[-1].name))
            return note_resume(raw, self._segments, data, live=live)

    def _suspect(self, raw: bytes, reports: Sequence[SegmentReport] | None) -> Note:
        if reports is None:
            return note_suspect(raw, self._segments, None)
        whole = {report.file.name for report in reports if not _damaged(report)}
        damaged = frozenset(file.name for file in self._segments) - whole
        return note_suspect(raw, self._segments, damaged)


def _damaged(report: SegmentReport) -> bool:
    return any(f.severity is Severity.ERROR and f.code.name[0] == "J" for f in report.findings)
