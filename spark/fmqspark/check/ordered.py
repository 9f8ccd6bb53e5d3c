"""Check an ordered topic over the members of several groups: shell of `fmqcore.ordered.judge`.

1. Look at each member by itself: which segments it has, and how far it is known to be committed.
2. Scan the headers of each segment file for batches of the topic, on any engine.
3. Judge what all members store by the chain.

The chain must be read before the directories: one that is newer names records that an older copy
lacks. What lies behind the opening of a segment that an older chain does not know is not judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fmqcore.batch.header import BatchType
from fmqcore.errors import FmqError, InvalidArgument, Malformed
from fmqcore.ids import Position, TopicId
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.findings import Severity
from fmqcore.journal.segments import CHECKPOINT, Segment
from fmqcore.ordered.judge import ChainFinding, judge_stored
from fmqcore.ordered.stored import StoredBatch, StoredMember, StoredQueue
from fmqcore.scan.headers import HeaderBlock, HeaderScan, ScanRange
from fmqcore.zk.chain import Chain
from fmqspark.check.job import CLEAN, INCOMPLETE, INCONSISTENT, VERDICTS, WARNINGS
from fmqspark.engines.engine import Engine
from fmqspark.source.access import open_bytes
from fmqspark.source.chain_openings import Openings
from fmqspark.source.files import Throttle, read_small
from fmqspark.source.members import MemberPath
from fmqspark.source.names import add_topic_names
from fmqspark.source.snaps import counted
from fmqspark.source.survey import Gap, NoSegmentFile, Survey, survey

_NO_FILE: Final = (
    "the segment file is missing: if another member of the group has it, move this whole data "
    "directory away and start the broker, which then copies the journal; otherwise restore the "
    "file from a copy"
)


@dataclass(frozen=True, slots=True)
class OrderedOptions:
    """What to check: a chain, and the members' directories."""

    chain: Chain
    members: tuple[MemberPath, ...]
    bytes_per_s: float = 0
    """Maximum bytes per second to read, all workers together; 0: no limit."""


@dataclass(slots=True)
class OrderedOutcome:
    """What a check found, and what it could not judge."""

    chain: Chain
    members: tuple[MemberPath, ...]
    findings: list[ChainFinding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    batches: int = 0
    records: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code: errors come first; what is not read is not OK."""
        if any(found.severity is Severity.ERROR for found in self.findings):
            return INCONSISTENT
        if self.unread:
            return INCOMPLETE
        return WARNINGS if self.findings else CLEAN

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `-o json`."""
        findings = [
            found._asdict()
            | {"code": found.code.name, "severity": found.severity.value, "what": found.code.value}
            for found in self.findings
        ]
        return {
            "verdict": VERDICTS[self.exit_code],
            "exit_code": self.exit_code,
            "topic": self.chain.topic,
            "segments": len(self.chain.segments),
            "members": [f"{member.group}={member.path}" for member in self.members],
            "batches": self.batches,
            "records": self.records,
            "findings": findings,
            "unread": self.unread,
        }


class ScanTask(NamedTuple):
    """One segment file of one member: its batches of the topic."""

    member: int  # which of the members
    path: str
    segment: Segment
    end: Position
    topic_id: TopicId
    next_segment: int  # the first one that the chain does not know
    commit_end: Position
    bytes_per_s: float


class ScanResult(NamedTuple):
    """The topic's batches in one segment file; `failed`: why the rest could not be read."""

    task: ScanTask
    queues: dict[int, StoredQueue]
    committed: dict[int, int]  # per queue the offset after the last committed batch
    newer: dict[int, int]  # per queue the first offset behind the opening of an unknown segment
    failed: str


def check_ordered(
    options: OrderedOptions,
    engine: Engine,
    report_progress: Callable[[int, int], None] = lambda *_: None,
) -> OrderedOutcome:
    """Run a check. Raises `InvalidArgument`, `EngineFailed`."""
    chain = options.chain
    outcome = OrderedOutcome(chain, options.members)
    stored = [StoredMember(_name(member), member.group) for member in options.members]
    tasks: list[ScanTask] = []
    for number, member in enumerate(options.members):
        try:
            found = survey([member.path], uncommitted=True, around=True)
            _require_topic(chain, member, found)
            rate = options.bytes_per_s / engine.workers
            tasks += _look(chain, number, member, stored[number], found, rate)
        except (FmqError, OSError) as error:
            if isinstance(error, InvalidArgument):
                raise
            stored[number].whole = False
            outcome.unread.append(f"{_name(member)}: {error}")
            continue
        for gap in found.gaps:
            stored[number].whole = False
            outcome.unread.append(f"{_name(member)} positions {gap.begin}–{gap.end}: {_why(gap)}")
    results = _scanned(engine, tasks, report_progress)
    for result in results:
        _add(stored[result.task.member], result, outcome)
    judged = judge_stored(chain, stored)
    outcome.findings = judged.findings
    outcome.unread += judged.unread
    return outcome


def _name(member: MemberPath) -> str:
    return f"{member.group}={member.path}"


def _why(gap: Gap) -> str:
    """Return why a member cannot give a range: of each member its own file is asked for."""
    if isinstance(gap.why, NoSegmentFile):
        return _NO_FILE
    return str(gap.why)


def _require_topic(chain: Chain, member: MemberPath, found: Survey) -> None:
    """Raise `InvalidArgument` if the journal has another topic under the chain's number."""
    add_topic_names(found)
    name = found.names.get(chain.topic_id, chain.topic)
    if name != chain.topic:
        raise InvalidArgument(
            f"{member.path}: topic number {chain.topic_id} is {name} there, and {chain.topic} in "
            "the chain: they are of different clusters"
        )


def _look(
    chain: Chain,
    number: int,
    member: MemberPath,
    stored: StoredMember,
    found: Survey,
    bytes_per_s: float,
) -> list[ScanTask]:
    """Note a member's offsets at both ends of the journal; return a task per segment file."""
    ends: dict[Any, int] = {}
    for view in found.segments:
        ends |= view.before if view.after is None else view.after
    ends |= counted(found.tail)
    begins: Mapping[Any, int] = found.segments[0].before if found.segments else {}
    topic = chain.topic_id
    stored.begins = {queue: at for (i, queue), at in begins.items() if i == topic}
    stored.ends = {queue: at for (i, queue), at in ends.items() if i == topic}
    committed = _commit_end(member.path)
    stored.committed = {} if committed < found.end else dict(stored.ends)
    return [
        ScanTask(
            *(number, member.path, v.segment, v.until, topic),
            *(chain.next_number, committed, bytes_per_s),
        )
        for v in found.segments
    ]


def _commit_end(path: str) -> Position:
    """Return what a member's checkpoint knows to be committed; 0 without a readable one."""
    try:
        return decode_checkpoint(read_small(path, CHECKPOINT) or b"").commit_end
    except (Malformed, OSError):
        return Position(0)


def _scanned(
    engine: Engine, tasks: Sequence[ScanTask], report_progress: Callable[[int, int], None]
) -> list[ScanResult]:
    results = []
    report_progress(0, len(tasks))
    for done, result in enumerate(engine.run(scan_topic, tasks), 1):
        results.append(result)
        report_progress(done, len(tasks))
    return sorted(results, key=lambda r: (r.task.member, r.task.segment.base))


def scan_topic(task: ScanTask) -> ScanResult:
    """Read one segment file's headers; an error is part of the result, not raised."""
    result = ScanResult(task, {}, {}, {}, "")
    try:
        with open_bytes(
            task.path, task.segment.base, Throttle(task.bytes_per_s), task.end, task.end
        ) as data:
            scan = HeaderScan(data.read, ScanRange(task.segment, task.segment.base, task.end))
            openings = Openings(data.read, task.segment.base, task.topic_id, task.next_segment)
            for block in scan:
                _take(result, block, openings.find(block))
            if result.queues and openings.begins_behind():
                result.newer.update({q: next(iter(b)).offset for q, b in result.queues.items()})
    except (FmqError, OSError) as error:
        return result._replace(failed=str(error))
    if scan.position >= task.end:
        return result
    return result._replace(failed=f"position {scan.position}: {scan.stop or 'nothing is there'}")


def _take(result: ScanResult, block: HeaderBlock, opened: Position | None) -> None:
    """Add the topic's batches of a block. `opened`: where an unknown segment was opened."""
    kinds, topics = block.column("type"), block.column("topic_id")
    fields = zip(
        *map(block.column, ("queue_id", "base_offset", "record_count", "producer_id")),
        *map(block.column, ("producer_epoch", "base_sequence", "payload_crc")),
        *map(block.column, ("position", "total_len")),
        strict=True,
    )
    for kind, topic, (queue, *row, position, length) in zip(kinds, topics, fields, strict=True):
        if kind == BatchType.DATA and topic == result.task.topic_id:
            batch = StoredBatch._make(row)
            result.queues.setdefault(queue, StoredQueue()).add(batch)
            if opened is not None and position > opened:
                result.newer.setdefault(queue, batch.offset)
            if position + length <= result.task.commit_end:
                result.committed[queue] = batch.end


def _add(stored: StoredMember, result: ScanResult, outcome: OrderedOutcome) -> None:
    """Add one segment file's batches to their member."""
    if result.failed:
        stored.whole = False
        outcome.unread.append(f"{stored.name}: {result.failed}")
    stored.committed = {**stored.committed, **result.committed}
    stored.newer = {**result.newer, **stored.newer}
    for queue, batches in result.queues.items():
        stored.queues.setdefault(queue, StoredQueue()).extend(batches)
        outcome.batches += len(batches)
        outcome.records += sum(batch.records for batch in batches)
