"""Report a torn end of one replica that another one knows to be committed. Pure.

By itself a fault above the durable end is a torn write, and what is behind it was never
acknowledged: a start truncates there. But a bit that flips in that part of a journal looks the
same, and only the other replicas show the difference. A start truncates all the same, so it is
reported as what it is, lost here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fmqcore.errors import Malformed
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.findings import Severity
from fmqspark.check.compare import Replica
from fmqspark.check.rows import DAMAGE, Covered, Found, State
from fmqspark.source.files import DataDirectory

_TORN: Final = "torn write above the durable end: "
_REMEDY: Final = (
    "keep the replica that has it: at its next start this broker truncates its journal there and "
    "copies what follows from its master; check its disk, unless it was a power cut"
)


def committed(checkpoint: bytes | None) -> int:
    """Return where the commit end is, as far as this checkpoint knows."""
    try:
        return decode_checkpoint(checkpoint).commit_end if checkpoint else 0
    except Malformed:
        return 0


def escalate_torn_tails(
    replicas: Sequence[Replica],
    views: Mapping[str, DataDirectory],
    findings: list[Found],
    coverage: list[Covered],
) -> None:
    """Make such a finding an error, and what is known to be committed there not void."""
    for replica in replicas:
        others = [other for other in replicas if other is not replica]
        knows = max(others, key=lambda other: other.commit_end, default=replica)
        if knows is replica or _is_cut(views[replica.name].checkpoint):
            continue
        for i, row in enumerate(coverage):
            void = row.replica == replica.name and row.state == State.VOID.value
            if void and row.begin < knows.commit_end:
                coverage[i : i + 1] = _parted(row, knows.commit_end)
                findings[:] = [_escalated(found, row, knows) for found in findings]
                break  # a journal has one end


def _is_cut(checkpoint: bytes | None) -> bool:
    """Return whether a truncation is under way: what it makes void is another history's."""
    try:
        return checkpoint is not None and decode_checkpoint(checkpoint).drop_from is not None
    except Malformed:
        return False


def _parted(row: Covered, end: int) -> list[Covered]:
    lost = row._replace(end=min(row.end, end), state=State.UNREAD.value, why=DAMAGE)
    return [lost] if lost.end == row.end else [lost, row._replace(begin=end)]


def _escalated(found: Found, row: Covered, knows: Replica) -> Found:
    here = (found.replica, found.file, found.begin) == (row.replica, row.file, row.begin)
    if not here or found.code[0] != "J" or found.severity != Severity.WARNING.value:
        return found
    sentence = (
        f"{found.sentence.removeprefix(_TORN)}: damage, or a torn write, above this replica's "
        f"durable end; but all below {knows.commit_end} is committed, as {knows.name} knows"
    )
    end = min(row.end, knows.commit_end)
    return found._replace(severity=Severity.ERROR.value, end=end, sentence=sentence, remedy=_REMEDY)
