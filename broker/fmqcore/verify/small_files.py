"""Check the content of the small files `resume`, `suspect` and `incarnations`. Pure.

The first two are notes of a broker to its own next start (ADR 0015, 0030): losing them loses
nothing. But a start trusts a valid resume file, so its content is compared with the journal.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.damage_note import SUSPECT, decode_suspect
from fmqcore.journal.findings import Code, Finding, Severity, warning
from fmqcore.journal.index import IndexFile
from fmqcore.journal.journal_identity import INCARNATIONS, decode_home, homes_of, is_home
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.resume_file import RESUME, Resume, open_resume
from fmqcore.journal.scan import Behind, Cursor, Readable, Scan, crc_of
from fmqcore.journal.segments import segment_name
from fmqcore.journal.state import JournalState
from fmqcore.verify.index import BuiltIndex

_PASSED_OVER: Final = "nothing: the next start passes it over and scans the newest segment in full"
_FORGOTTEN: Final = "nothing: the next start removes it"
_REPLACED: Final = (
    "nothing: the next start replaces it; but something has changed the disk: look at it"
)
_REFUSED: Final = (
    f"a broker does not start with it, as the directory seems to be another group's: if it is not, "
    f"stop the broker and remove the file {INCARNATIONS}"
)
_WRONG: Final = (
    "stop the broker and remove the file resume: the next start scans the newest segment instead"
)


class Note(NamedTuple):
    """The result for one of the files."""

    file: str
    segment: str | None  # the segment that it names
    position: Position | None  # up to there
    fits: bool | None  # None: not looked at, or not visible
    says: str  # one sentence
    finding: Finding | None = None


def note_resume(
    raw: Readable, segments: Sequence[SegmentFile], newest: Readable | None, *, live: bool
) -> Note:
    """Check the resume file. `newest`: the newest segment's bytes; None: do not compare with it."""
    try:
        resume, at = open_resume(raw)
    except Malformed as bad:
        return _resume_void(None, str(bad))
    name, last = segment_name(resume.base), segments[-1] if segments else None
    if last is not None and resume.base < last.base:
        says = f"names {name}, which is not the newest segment: the next start does without it"
        return Note(RESUME, name, resume.position, None, says)
    if last is None or resume.base > last.base or resume.position > last.end:
        if live:  # written since the directory was listed
            says = f"names {name} up to {resume.position}, newer than what was read"
            return Note(RESUME, name, resume.position, None, says)
        return _resume_void(resume, f"the journal has no position {resume.position} in {name}")
    if newest is None:
        says = f"names {name} up to position {resume.position} (verify looks whether it fits)"
        return Note(RESUME, name, resume.position, None, says)
    return _held_against(resume, Behind(raw, at), last, newest)


def note_suspect(
    raw: bytes, segments: Sequence[SegmentFile], damaged: frozenset[str] | None
) -> Note:
    """Check the note. `damaged`: segments in which errors were found; None: not checked."""
    try:
        base = decode_suspect(raw)
    except Malformed as bad:
        return Note(SUSPECT, None, None, False, str(bad), _void(SUSPECT, str(bad), _FORGOTTEN))
    if all(file.base != base for file in segments):
        says = f"the segment at {base}, in which a read found damage, is not there"
        return Note(SUSPECT, None, None, False, says, _void(SUSPECT, says, _FORGOTTEN))
    name = segment_name(base)
    says = f"a read found damage in {name}: the next start reads it in full"
    if damaged is None:
        return Note(SUSPECT, name, None, None, says)
    if name in damaged:
        return Note(SUSPECT, name, None, True, f"{says}, and refuses")
    whole = f"a read found damage in {name}, and now it is whole"
    remedy = (
        "nothing: the next start reads it in full and removes the note; but look at the machine's "
        "memory and disk"
    )
    return Note(SUSPECT, name, None, False, whole, _void(SUSPECT, whole, remedy))


def note_incarnations(raw: bytes) -> Note:
    """Check which group the directory belongs to."""
    try:
        home = decode_home(raw)
    except Malformed as bad:
        homes = homes_of(raw)
        sentence = f"it is not what a broker writes: {bad}"
        found = warning(Code.M001, INCARNATIONS, None, sentence, _REPLACED)
        if homes and not is_home(homes[0]):
            found = Finding(Code.M001, Severity.ERROR, INCARNATIONS, None, sentence, _REFUSED)
        return Note(INCARNATIONS, None, None, False, sentence, found)
    of = f"of group {home} (cluster/group)" if home else "it does not say of which group"
    return Note(INCARNATIONS, None, None, None, of)


def _held_against(resume: Resume, entries: Readable, file: SegmentFile, data: Readable) -> Note:
    """A file counts if the checksum of the bytes below it is right; then the rest must be, too."""
    if crc_of(data, 0, resume.position - resume.base) != resume.raw_crc:
        reason = f"its checksum does not match {file.name} below {resume.position}"
        return _resume_void(resume, reason)
    wrong = _disagreement(resume, entries, data)
    if wrong:
        sentence = f"it counts, but {wrong} not what {file.name} adds up to"
        found = Finding(Code.M001, Severity.ERROR, RESUME, resume.position, sentence, _WRONG)
        return Note(RESUME, file.name, resume.position, False, sentence, found)
    says = f"fits {file.name} up to position {resume.position}: the next start goes on from there"
    return Note(RESUME, file.name, resume.position, True, says)


def _disagreement(resume: Resume, entries: Readable, data: Readable) -> str:
    """Return the wrong item, with its verb; "" if all is right, or if damage prevents checking."""
    cursor, state, index = Cursor(resume.base), JournalState(), BuiltIndex(resume.base)
    last_ms = 0
    scan = Scan(data, resume.base, cursor, until=resume.position)
    try:
        for header in scan:
            apply_batch(state, header, scan.payload(header))
            index.add(header)
            last_ms = header.store_ms
    except Malformed:
        return ""  # reported where the segment is read
    if cursor.position != resume.position:
        return "its position is" if cursor.position > resume.position else ""
    try:
        snap = JournalState.from_snap(resume.snap)
    except Malformed:
        return "its state is"
    held = (
        ("the segment's end is", cursor.segment and cursor.segment.end, resume.end),
        ("the epoch is", cursor.epoch, resume.epoch),
        ("the last batch's checksum is", cursor.prev_header_crc, resume.last_header_crc),
        # After a truncation, or when room ran out, store times continue later than the batch's.
        ("the time of the last batch is", True, resume.last_ms >= last_ms),
        ("its state is", state, snap),
        ("its index is", True, _is_index(entries, index)),
    )
    return next((what for what, there, stored in held if there != stored), "")


def _is_index(entries: Readable, index: BuiltIndex) -> bool:
    try:
        return index.is_in(IndexFile(entries))
    except Malformed:
        return False


def _resume_void(resume: Resume | None, reason: str) -> Note:
    name = None if resume is None else segment_name(resume.base)
    position = None if resume is None else resume.position
    return Note(RESUME, name, position, False, reason, _void(RESUME, reason, _PASSED_OVER))


def _void(file: str, sentence: str, remedy: str) -> Finding:
    return warning(Code.M001, file, None, sentence, remedy)
