"""Check a directory's small files: the note of damage, and which group it belongs to.

The newest segment's task (`segment.py`) checks `resume`: it reads what that is compared with.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fmqcore.errors import Malformed
from fmqcore.journal.damage_note import SUSPECT
from fmqcore.journal.findings import Code, Finding, Severity
from fmqcore.journal.journal_identity import INCARNATIONS, decode_home
from fmqcore.journal.recovery import SegmentFile
from fmqcore.verify.small_files import Note, note_incarnations, note_suspect
from fmqspark.check.compare import Replica
from fmqspark.check.rows import (
    Covered,
    Found,
    Level,
    SegmentResult,
    State,
    found_on,
    is_error,
)
from fmqspark.source.files import DataDirectory

_ANOTHER: Final = (
    "leave out the directory that was named by mistake; if none was, stop the broker that refuses "
    f"to start, and remove the file {INCARNATIONS} there"
)


class Notes:
    """The notes of all directories of one check; `findings` and `coverage` are to be reported."""

    def __init__(self, level: Level) -> None:
        self.findings: list[Found] = []
        self.coverage: list[Covered] = []
        self._level = level
        self._homes: dict[str, str] = {}  # by replica

    def check_directory(
        self,
        name: str,
        view: DataDirectory,
        files: Sequence[SegmentFile],
        results: Sequence[SegmentResult],
    ) -> None:
        """Check the small files of one directory."""
        if (raw := self._read(name, view, SUSPECT)) is not None:
            self._report(name, note_suspect(raw, files, self._damaged(files, results)))
        if (raw := self._read(name, view, INCARNATIONS)) is not None:
            self._report(name, note_incarnations(raw))
            self._remember(name, raw)

    def compare(self) -> None:
        """Report the directories that are not of the group that most are of."""
        counted = Counter(self._homes.values()).most_common()
        if len(counted) < 2:
            return
        most = counted[0][0] if counted[0][1] > counted[1][1] else ""
        for name, home in self._homes.items():
            if home != most:
                others = most or ", ".join(sorted(set(self._homes.values()) - {home}))
                sentence = f"it is of group {home} (cluster/group), others here are of {others}"
                found = Finding(Code.M001, Severity.ERROR, INCARNATIONS, None, sentence, _ANOTHER)
                self.findings.append(found_on(name, found))

    def groups(self, replicas: Sequence[Replica]) -> list[list[Replica]]:
        """Return replicas that may be compared with each other: two groups are not two copies.

        A replica whose group is not known is compared with the group that most are of.
        """
        most = Counter(self._homes.values()).most_common(1)
        made: dict[str, list[Replica]] = {}
        for replica in replicas:
            home = self._homes.get(replica.name, most[0][0] if most else "")
            made.setdefault(home, []).append(replica)
        return list(made.values())

    def _read(self, name: str, view: DataDirectory, file: str) -> bytes | None:
        try:
            return view.read(file)
        except OSError as failed:
            why = failed.strerror or str(failed)
            self.coverage.append(Covered(name, file, 0, 0, State.UNREAD.value, why))
            return None

    def _report(self, name: str, note: Note) -> None:
        if note.finding is not None:
            self.findings.append(found_on(name, note.finding))

    def _remember(self, name: str, raw: bytes) -> None:
        try:
            home = decode_home(raw)
        except Malformed:
            return  # reported elsewhere
        if home:
            self._homes[name] = home

    def _damaged(
        self, files: Sequence[SegmentFile], results: Sequence[SegmentResult]
    ) -> frozenset[str] | None:
        """Return segments with errors; None below DEEP: only reading all can exclude errors."""
        if self._level is not Level.DEEP:
            return None
        whole = {r.base for r in results if r.digests and not any(map(is_error, r.findings))}
        return frozenset(file.name for file in files if file.base not in whole)
