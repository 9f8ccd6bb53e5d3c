"""The files of a data directory that `fmq journal` could not read: which, and what that means."""

from fmqcli.common import talk
from fmqcore.journal.findings import Finding
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import CHECKPOINT
from fmqinspect.files import DataDirectory
from fmqinspect.vanished_files import judge_vanished


class UnreadFiles:
    """One line per unreadable file; findings for files that the broker still needs."""

    def __init__(self, opened: DataDirectory) -> None:
        self.unread = [f"{CHECKPOINT}: {opened.unread}"] if opened.unread else []
        self.findings: list[Finding] = []
        self.size = 0  # bytes of the segments
        self._opened = opened

    def note(self, file: SegmentFile, failed: OSError) -> str | Finding | None:
        """Take a segment that failed to be read: return its line or its finding.

        None: a running broker retired it meanwhile, which is printed.
        """
        found: str | Finding | None = failed.strerror or str(failed)
        if isinstance(failed, FileNotFoundError) and self._opened.live:
            found = judge_vanished(self._opened.path, file)
        if found is None:
            talk(f"{file.name} was retired by the broker meanwhile")
            return None
        self.size += file.size
        if isinstance(found, Finding):
            self.findings.append(found)
            return found
        self.unread.append(line := f"{file.name}: {found}")
        return line
