"""Compare consumer progress with its queues: codes O001 to O004. Pure."""

from collections.abc import Mapping

from fmqcore.batch.control import decode_offsets
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.side_journal import NAME, decode
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.findings import Code, Finding, Severity, error, warning
from fmqcore.journal.state import JournalState

_SEEK = "seek the consumer group to an offset that exists: fmq group seek GROUP TOPIC --to latest"
_DELETE = "nothing, if no consumer reads it; else delete the consumer group: fmq group delete GROUP"
_TAKEOVER = (
    "nothing is lost: the group's state in ZooKeeper holds a copy; start the broker, or remove the "
    "file if this broker is no slave that serves the reads"
)


class OffsetHistory:
    """Watches OFFSETS batches and reports those that contradict an earlier one."""

    def __init__(self, file: str) -> None:
        self.findings: list[Finding] = []
        self._file = file

    def __call__(self, header: BatchHeader, payload: Buffer, state: JournalState) -> None:
        """See `verify.Watch`."""
        if header.type != BatchType.OFFSETS:
            return
        for key, entry in sorted(decode_offsets(payload).items()):
            before = state.offsets.get(key)
            if before is None or before.version != entry.version or before == entry:
                continue
            sentence = (
                f"{_whose(key)}: version {entry.version} has {_described(entry)}, and "
                f"{_described(before)} in an earlier entry"
            )
            found = error(Code.O003, self._file, header.position, sentence, header.end)
            self.findings.append(found._replace(severity=Severity.WARNING, remedy=_SEEK))


def check_offsets(state: JournalState, file: str, end: Position) -> list[Finding]:
    """Compare the progress at the journal's end with the queues at that point.

    The journal learns of a topic with its first message here. A consumer may have come before: its
    progress has nothing done, and is no finding.
    """
    found = []
    for key, entry in sorted(state.offsets.items()):
        if entry.deleted:
            continue
        topic = state.topics.get(key.topic_id)
        if topic is None and not entry.floor and not entry.ranges:
            continue
        if topic is None or key.queue_id >= topic[1]:
            sentence = f"{_whose(key)} is kept, but there is no such queue"
            found.append(warning(Code.O002, file, end, sentence, _DELETE))
            continue
        next_offset = state.next_offsets.get((key.topic_id, key.queue_id), 0)
        reaches = entry.ranges[-1][1] if entry.ranges else entry.floor
        if reaches > next_offset:
            sentence = (
                f"{_whose(key)} says that all is done up to offset {reaches}, "
                f"but the queue ends at {next_offset}"
            )
            found.append(Finding(Code.O001, Severity.ERROR, file, end, sentence, _SEEK))
    return found


def check_side_journal(raw: bytes, state: JournalState | None) -> list[Finding]:
    """Compare `takeover.journal` with the journal's queues."""
    try:
        side = decode(raw)
        tables = [decode_offsets(payload) for payload in side.payloads]
    except Malformed as bad:
        return [warning(Code.O004, NAME, None, str(bad), _TAKEOVER)]
    found = []
    if side.torn:
        sentence = f"{side.torn} bytes behind its last good frame"
        found.append(warning(Code.O004, NAME, None, sentence, _TAKEOVER))
    merged: dict[OffsetKey, OffsetEntry] = {}
    for table in tables:
        merged.update(table)
    if state is not None:
        found += _beyond(merged, state)
    return found


def _beyond(table: Mapping[OffsetKey, OffsetEntry], state: JournalState) -> list[Finding]:
    found = []
    for key, entry in sorted(table.items()):
        reaches = entry.ranges[-1][1] if entry.ranges else entry.floor
        next_offset = state.next_offsets.get((key.topic_id, key.queue_id), 0)
        if not entry.deleted and reaches > next_offset:
            sentence = f"{_whose(key)} reaches {reaches}, but the queue ends at {next_offset}"
            found.append(Finding(Code.O004, Severity.ERROR, NAME, None, sentence, _SEEK))
    return found


def _whose(key: OffsetKey) -> str:
    return f"progress of group {key.group} in topic {key.topic_id} queue {key.queue_id}"


def _described(entry: OffsetEntry) -> str:
    return "deleted" if entry.deleted else f"floor {entry.floor}, {len(entry.ranges)} ranges"
