"""The rows of a check: what was found, and what was looked at. Pure; both travel as JSON."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from fmqcore.ids import Position
from fmqcore.journal.findings import Finding, Severity
from fmqcore.scan.digests import Digest


class Level(Enum):
    """How deep a check looks."""

    QUICK = "quick"  # every header, every index, the checkpoint
    STANDARD = "standard"  # and the control batches' payloads: snapshots, consumer progress
    DEEP = "deep"  # and every payload's checksum, and that nothing stands where nothing may


class State(Enum):
    """The state of a range of a replica's journal in this check."""

    CHECKED = "checked"  # everything that the level asks for
    DAMAGED = "damaged"  # looked at, and a finding says what is wrong there
    UNREAD = "unread"  # could not be read, or lies within damage: not OK
    MOVING = "moving"  # the end kept moving under a broker at work: not OK
    VOID = "void"  # torn or cut: never acknowledged as stored
    EMPTY = "empty"  # not written yet
    RETIRED = "retired"  # deleted by its broker while the check was under way
    NOT_COMPARED = "not compared"  # no other replica has it, or none could read it


NOT_OK = (State.UNREAD, State.MOVING)
"""States of ranges that could not be read: a check with them is not complete."""
DAMAGE: Final = "damage"
NO_FILE: Final = "the file is missing"
CUT_SHORT: Final = "the file is cut short"
_FOUND: Final = (DAMAGE, NO_FILE, CUT_SHORT)
"""Why something is unread, where a finding reports that."""


class Found(NamedTuple):
    """A finding on a replica."""

    replica: str
    code: str
    severity: str
    file: str
    begin: int | None
    end: int | None
    sentence: str
    remedy: str

    def __str__(self) -> str:
        where = "" if self.begin is None else f" at {self.begin}"
        where += f"–{self.end}" if self.end is not None and self.end != self.begin else ""
        return f"{self.severity}: {self.code} {self.replica}/{self.file}{where}: {self.sentence}"


class Covered(NamedTuple):
    """A range of a replica's journal, and what was done with it."""

    replica: str
    file: str
    begin: int
    end: int
    state: str
    why: str = ""

    @property
    def bytes(self) -> int:
        """The length of the range."""
        return self.end - self.begin

    @property
    def needs_own_line(self) -> bool:
        """Whether the range could not be read, and no finding reports that."""
        return self.state in [state.value for state in NOT_OK] and self.why not in _FOUND

    def __str__(self) -> str:
        where = f" at {self.begin}–{self.end}" if self.bytes else ""
        return f"{self.state}: {self.replica}/{self.file}{where}: {self.why}"


@dataclass(slots=True)
class SegmentResult:
    """The result of one task for one segment."""

    replica: str
    base: int
    size: int
    end: int  # one past the last good batch
    sealed: bool = False
    batches: int = 0
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0
    index: str = "-"
    bytes_read: int = 0
    retired: bool = False
    findings: list[Found] = field(default_factory=list)
    coverage: list[Covered] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "SegmentResult":
        """Return a result from JSON. Raises `TypeError`, `KeyError`, `ValueError` if malformed."""
        made = cls(**data)
        made.findings = [Found(*row) for row in data["findings"]]
        made.coverage = [Covered(*row) for row in data["coverage"]]
        made.digests = [
            Digest(Position(first), Position(end), digest) for first, end, digest in data["digests"]
        ]
        return made


def found_on(replica: str, finding: Finding) -> Found:
    """Return a finding as a row."""
    return Found(
        replica,
        finding.code.name,
        finding.severity.value,
        finding.file,
        finding.position,
        finding.end,
        finding.sentence,
        finding.remedy,
    )


def is_error(found: Found) -> bool:
    """Return whether a finding needs a person or a replica."""
    return found.severity == Severity.ERROR.value
