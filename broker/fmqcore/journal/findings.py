"""Findings about a data directory: code, severity, place, reason and remedy. Pure.

Recovery, `fmq journal verify` and `fmq job check` use the same table (only the last has R and O).
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from fmqcore.batch.header import BatchFault
from fmqcore.errors import CorruptJournal, NewerJournal
from fmqcore.ids import Position


class Code(Enum):
    """The kind of damage; the first letter names the damaged part."""

    J001 = "a batch header"
    J002 = "a payload"
    J003 = "position, chain, epoch or store time"
    J004 = "offset continuity"
    J005 = "a segment: missing, cut, or not framed by SNAP and EOF"
    J006 = "a batch of a kind that this version does not know and must not skip"
    I001 = "index file missing"
    I002 = "index file unreadable"
    I003 = "index lacks batches of the journal"
    I004 = "index names batches that the journal does not have"
    I005 = "index entry differs from the journal"
    R001 = "replicas differ: other content in the same place and epoch"
    R002 = "replicas differ: their histories part"
    R003 = "a replica lacks what others know to be committed"
    R004 = "replicas have nothing in common to compare"
    O001 = "consumer progress beyond the queue's end"
    O002 = "consumer progress in a queue that is not there"
    O003 = "two versions of consumer progress contradict each other"
    O004 = "the side journal of a takeover"
    M001 = "a small file: missing, unreadable, or not what the journal says"
    M002 = "a file that belongs to nothing"


class Severity(Enum):
    """A warning heals at the next start; an error needs a person or a replica."""

    WARNING = "warning"
    ERROR = "error"


MISSING: Final = "the file is missing"
"""The start of a sentence about a missing file."""
REFILL: Final = (
    "do not edit the file; if another broker of the group holds this data, move the whole data "
    "directory away and start again: the broker fills itself from it; otherwise restore the file "
    "from a copy"
)
"""The remedy for damage below the durable end."""
UPGRADE: Final = "nothing is damaged and nothing was changed: upgrade, then start again"
"""The remedy for a batch that only a newer version reads."""
UNREAD: Final = (
    "nothing is lost, no reader uses these bytes; but something has changed the disk: look at it"
)
AS_IT_WAS_SENT: Final = (
    "nothing that a restart or a replica heals: its producer sent these bytes, and each replica "
    "that holds this batch holds them; mend that producer, and move the consumer groups behind its "
    "offsets (`fmq group seek`)"
)
"""The remedy for a batch that no disk damaged."""
CUT_AT_START: Final = "nothing: the broker cuts it at its next start"
LOOK_AT_THE_DISK: Final = (
    "look at the machine, its disk, and whose the file is: a broker does not start without it"
)
REMADE_AT_START: Final = "nothing: the broker makes it again at its next start"

FAULT_CODES: Final = {
    BatchFault.SHORT: Code.J001,
    BatchFault.MAGIC: Code.J001,
    BatchFault.VERSION: Code.J001,
    BatchFault.HEADER_CRC: Code.J001,
    BatchFault.LENGTH: Code.J001,
    BatchFault.TYPE: Code.J005,
    BatchFault.POSITION: Code.J003,
    BatchFault.CHAIN: Code.J003,
    BatchFault.PAYLOAD_CRC: Code.J002,
    BatchFault.OFFSET: Code.J004,
    BatchFault.EPOCH: Code.J003,
    BatchFault.CONTENT: Code.J002,
    BatchFault.KIND: Code.J006,
}
"""The code for each fault of a scan."""


class Finding(NamedTuple):
    """One thing that is wrong in a data directory."""

    code: Code
    severity: Severity
    file: str
    position: Position | None  # in the journal; None: the file as a whole
    sentence: str
    remedy: str
    end: Position | None = None  # one past the damage, if that is known

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file}, position {self.position}"
        return f"{self.code.name} {where}: {self.sentence}; remedy: {self.remedy}"


def error(
    code: Code, file: str, position: Position | None, sentence: str, end: Position | None = None
) -> Finding:
    """Return a finding for damage, or for a newer version's batch, that no restart heals."""
    remedy = UPGRADE if code is Code.J006 else REFILL
    return Finding(code, Severity.ERROR, file, position, sentence, remedy, end)


def refusal(path: str, finding: Finding) -> CorruptJournal:
    """Return the error of a start that `finding` prevents; `path`: the data directory."""
    kind = NewerJournal if finding.code is Code.J006 else CorruptJournal
    return kind(f"{path}: {finding}")


def with_what_is_there(finding: Finding, what: str) -> Finding:
    """Report that `what` ("a pipe") stands in a missing file's place; "": no change."""
    if not what:
        return finding
    sentence = finding.sentence.replace(MISSING, f"{what} stands in the file's place", 1)
    return finding._replace(sentence=sentence)


def warning(
    code: Code, file: str, position: Position | None, sentence: str, remedy: str
) -> Finding:
    """Return a finding for something that heals by itself."""
    return Finding(code, Severity.WARNING, file, position, sentence, remedy)


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity; None without findings."""
    severities = {finding.severity for finding in findings}
    return next((s for s in (Severity.ERROR, Severity.WARNING) if s in severities), None)
