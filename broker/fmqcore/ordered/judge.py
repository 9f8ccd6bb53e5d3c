"""Judge what the members of several groups store of an ordered topic by its chain. Pure.

Each member is judged by itself against the chain (`_Walk`), each group's members against each
other, and each segment against all members of the group. One fault is one finding, whichever
members have it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from fmqcore.journal.findings import Severity
from fmqcore.ordered.headers import header_sender, sequence_of
from fmqcore.ordered.invariants import broken_invariants
from fmqcore.ordered.stored import StoredBatch, StoredMember, StoredQueue
from fmqcore.zk.chain import Chain, Segment


class ChainCode(Enum):
    """The kind of a finding. The table with remedies is in `docs/reference/check-codes.md`."""

    O101 = "sequences are missing in the order"
    O102 = "a record comes twice in the order"
    O103 = "records are out of order"
    O104 = "acknowledged sequences are in no segment"
    O105 = "no member reaches the end of a segment"
    O106 = "records of an ordered queue are in no segment and no orphans"
    O107 = "offset and sequence, or the sender, do not belong together (K13)"
    O108 = "members of a group differ within a segment"
    O109 = "the chain breaks an invariant"


KEEP: Final = (
    "keep all data directories and the chain (fmq ordered status -o json), and report it; "
    "consumers must not rely on the order of this topic"
)
FIND: Final = (
    "name the directories of all members, also of those that are down; if a member's disk is lost, "
    "fmq ordered release --accept-loss ends the segment where its members end"
)
REFILL: Final = (
    "keep both directories; find the one that is wrong with fmq job check DIR..., move it away and "
    "let the broker copy the other"
)


class ChainFinding(NamedTuple):
    """One fault. Offsets [first, end) are of the queue in the segment's group."""

    code: ChainCode
    severity: Severity
    segment: int | None
    queue: int | None
    first: int | None
    end: int | None
    members: tuple[str, ...]
    sentence: str
    remedy: str = KEEP

    def __str__(self) -> str:
        place = "the chain" if self.segment is None else f"segment {self.segment}"
        place += "" if self.queue is None else f" queue {self.queue}"
        place += "" if self.first is None else f" offsets {self.first}–{self.end}"
        on = f" on {', '.join(self.members)}" if self.members else ""
        return f"{self.severity.value}: {self.code.name} {place}{on}: {self.sentence}"


class Judgement(NamedTuple):
    """Findings, in the order of the chain, and what could not be judged, each with the reason."""

    findings: list[ChainFinding]
    unread: list[str]


def judge_stored(chain: Chain, members: Sequence[StoredMember]) -> Judgement:
    """Compare a chain with what members store, below `StoredMember.newer` of each."""
    found = list(_chain_findings(chain))
    unread: list[str] = []
    for member in members:
        if member.newer:
            unread.append(_newer(chain, member))
        found += _Walk(chain, member).findings()
    for segment in chain.segments:
        own = [m for m in members if m.group == segment.group]
        if not own:
            unread.append(
                f"segment {segment.number}: no directory of group {segment.group} is named"
            )
            continue
        for queue in range(chain.queues):
            of_queue = _Stored(chain, segment, queue, own)
            found += of_queue.findings(unread)
            found += of_queue.differences()
    return Judgement(_merged(found), unread)


def _newer(chain: Chain, member: StoredMember) -> str:
    places = [f"queue {queue} from offset {at} on" for queue, at in sorted(member.newer.items())]
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return (
        f"{member.name} {', '.join(places[:3])}{more}: newer than the chain, which ends with "
        f"segment {chain.next_number - 1}; write it again, and check again"
    )


# ---- the chain by itself
_CODE_OF: Final = {"K4": ChainCode.O103, "K5": ChainCode.O101, "K6": ChainCode.O102}


def _chain_findings(chain: Chain) -> Iterator[ChainFinding]:
    for broken in broken_invariants(chain):
        code = _CODE_OF.get(broken.split(":")[0], ChainCode.O109)
        yield ChainFinding(code, Severity.ERROR, None, None, None, None, (), broken)
    for before, after in pairwise(chain.segments):
        lasts = before.last_sequence
        if not before.loss or lasts is None or after.sender_epoch != before.sender_epoch:
            continue
        for queue, (last, first) in enumerate(zip(lasts, after.first_sequence, strict=True)):
            if first > last + 1:
                yield ChainFinding(
                    ChainCode.O101,
                    Severity.WARNING,
                    *(before.number, queue, None, None, ()),
                    f"sequences {last + 1} to {first - 1} are missing: a person accepted their "
                    "loss",
                    "nothing: fmq ordered release --accept-loss was a decision",
                )


# ---- one member against the chain
@dataclass(slots=True)
class _Run:
    """Where a walk is in one segment's part of a queue."""

    segment: Segment
    end: int = -1  # offset and sequence after the batch before; -1 = it is not known
    next_sequence: int = 0
    shift: int = 0  # its sequence minus the expected one
    seen: list[tuple[int, int]] = field(default_factory=list)  # sequences so far, [first, end)


class _Walk:
    """Compares the batches of one member with the chain, in the order of their offsets."""

    def __init__(self, chain: Chain, member: StoredMember) -> None:
        self._chain = chain
        self._member = member
        self._own = [s for s in chain.segments if s.group == member.group]
        epochs = {s.sender_epoch for s in chain.segments} | {chain.sender.epoch}
        # The header has the low bits of an epoch: of those that are alike, the lowest counts.
        self._epochs = {header_sender(e, 0)[:2]: e for e in sorted(epochs, reverse=True)}
        self._found: list[ChainFinding] = []

    def findings(self) -> list[ChainFinding]:
        """Return what is wrong on this member."""
        for queue, batches in sorted(self._member.queues.items()):
            self._queue(queue, batches)
        return self._found

    def _queue(self, queue: int, batches: StoredQueue) -> None:
        """Judge a queue's batches up to those of segments that the chain does not know."""
        if queue >= self._chain.queues:
            for batch in batches:
                self._stray(None, queue, batch, f"the chain has {self._chain.queues} queues")
            return
        starts = [s.start[queue] for s in self._own]
        index, run = -1, None
        newer = self._member.newer.get(queue)
        for batch in batches:
            if newer is not None and batch.offset >= newer:
                return
            while index + 1 < len(starts) and starts[index + 1] <= batch.offset:
                index += 1
                run = _Run(self._own[index])
            if run is None:
                if not self._chain.floor.number:  # else they may be of dropped segments
                    self._stray(None, queue, batch, "it lies before the group's first segment")
            else:
                self._judge(run, queue, batch)

    def _judge(self, run: _Run, queue: int, batch: StoredBatch) -> None:
        segment = run.segment
        expected = segment.first_sequence[queue] + batch.offset - segment.start[queue]
        fields = header_sender(segment.sender_epoch, expected)
        sender = (batch.producer_id, batch.producer_epoch)
        sequence = sequence_of(batch.base_sequence, expected)
        orphan = segment.end is not None and batch.offset >= segment.end[queue]
        if sender == fields[:2] and sequence == expected:
            pass
        elif orphan:
            self._stray(
                segment, queue, batch, f"segment {segment.number} does not go on with these records"
            )
        elif sender != fields[:2]:
            self._add(ChainCode.O107, segment, queue, batch, self._other_sender(segment, batch))
        elif run.end != batch.offset or sequence - expected != run.shift:
            self._add(*_shifted(run, queue, batch, sequence, expected))
        else:
            self._extend(batch)
        run.end, run.shift = batch.end, sequence - expected
        run.next_sequence = sequence + batch.records
        _note(run.seen, sequence, run.next_sequence)

    def _other_sender(self, segment: Segment, batch: StoredBatch) -> str:
        epoch = self._epochs.get((batch.producer_id, batch.producer_epoch))
        wrote = "no sender of this chain" if epoch is None else f"sender epoch {epoch}"
        return (
            f"{wrote} wrote it, segment {segment.number} is of sender epoch {segment.sender_epoch}"
        )

    def _stray(self, segment: Segment | None, queue: int, batch: StoredBatch, reason: str) -> None:
        self._add(ChainCode.O106, segment, queue, batch, f"no segment holds it: {reason}")

    def _add(
        self, code: ChainCode, segment: Segment | None, queue: int, batch: StoredBatch, reason: str
    ) -> None:
        number = None if segment is None else segment.number
        found = ChainFinding(
            *(code, Severity.ERROR, number, queue, batch.offset, batch.end),
            *((self._member.name,), reason),
        )
        last = self._found[-1] if self._found else None
        follows = last is not None and last._replace(first=0, end=0) == found._replace(
            first=0, end=0
        )
        if last is not None and follows and last.end == batch.offset:
            self._found[-1] = last._replace(end=batch.end)
        else:
            self._found.append(found)

    def _extend(self, batch: StoredBatch) -> None:
        """Extend the last finding by a batch with the same fault."""
        if self._found and self._found[-1].end == batch.offset:
            self._found[-1] = self._found[-1]._replace(end=batch.end)


def _shifted(
    run: _Run, queue: int, batch: StoredBatch, sequence: int, expected: int
) -> tuple[ChainCode, Segment, int, StoredBatch, str]:
    """Return the finding for a batch of another sequence than its offset has by the chain."""
    last, at = sequence + batch.records - 1, (run.segment, queue, batch)
    if run.end != batch.offset or sequence == run.next_sequence:
        reason = f"it holds sequences {sequence} to {last}, by its offset {expected} comes first"
        return (ChainCode.O107, *at, reason)
    if sequence > run.next_sequence:
        reason = f"sequence {sequence} follows {run.next_sequence - 1}"
        return (ChainCode.O101, *at, reason)
    if any(first <= sequence and last < end for first, end in run.seen):
        reason = f"sequences {sequence} to {last} come again after {run.next_sequence - 1}"
        return (ChainCode.O102, *at, reason)
    reason = f"sequences {sequence} to {last} come after {run.next_sequence - 1}"
    return (ChainCode.O103, *at, reason)


def _note(seen: list[tuple[int, int]], first: int, end: int) -> None:
    if seen and seen[-1][1] == first:
        seen[-1] = (seen[-1][0], end)
    else:
        seen.append((first, end))


# ---- one queue of a segment on all members of the group
class _Stored:
    """One segment's part of a queue, on the members of the group that are given."""

    def __init__(
        self, chain: Chain, segment: Segment, queue: int, members: Sequence[StoredMember]
    ) -> None:
        self._chain = chain
        self._segment = segment
        self._queue = queue
        self._members = members
        self._start = segment.start[queue]
        self._end = None if segment.end is None else segment.end[queue]
        self._reach = max(self._start, *(m.ends.get(queue, 0) for m in members))
        self._begin = max(self._start, min(m.begins.get(queue, 0) for m in members))

    def findings(self, unread: list[str]) -> Iterator[ChainFinding]:
        """Return what lacks on all members; `unread` gets what a damaged member may still have."""
        missing = list(self._missing())
        if not missing:
            return
        if not all(m.whole for m in self._members):
            unread += [
                f"segment {self._segment.number} queue {self._queue} offsets {f.first}–{f.end}: "
                "on no member that can be read"
                for f in missing
            ]
            return
        yield from missing

    def _missing(self) -> Iterator[ChainFinding]:
        segment, queue = self._segment, self._queue
        first = segment.first_sequence[queue]
        if self._end is not None and self._reach < self._end:
            yield self._finding(
                ChainCode.O105,
                *(self._reach, self._end),
                f"it ends at {self._end}, its members at {self._reach}: sequences "
                f"{first + self._reach - self._start} to {first + self._end - self._start - 1} "
                "are lost",
            )
        acked = self._acknowledged()
        if acked is not None and self._reach < acked:
            yield self._finding(
                ChainCode.O104,
                *(self._reach, acked),
                f"its end is not known, and the sender went on with sequence "
                f"{first + acked - self._start}: what comes before is acknowledged, but its "
                f"members end at {self._reach} (sequence {first + self._reach - self._start - 1})",
            )
        for begin, end in self._holes():
            yield self._finding(
                ChainCode.O101,
                *(begin, end),
                f"sequences {first + begin - self._start} to {first + end - self._start - 1} are "
                "in no batch of any member",
            )

    def _acknowledged(self) -> int | None:
        """Return the offset below which the next segment shows all as acknowledged, or None.

        The next segment starts with the sender's lowest sequence without an acknowledgement.
        """
        after = self._chain.segment(self._segment.number + 1)
        if self._end is not None or after is None:
            return None
        if after.sender_epoch != self._segment.sender_epoch:
            return None
        sequences = after.first_sequence[self._queue] - self._segment.first_sequence[self._queue]
        return self._start + sequences

    def _holes(self) -> Iterator[tuple[int, int]]:
        end = self._reach if self._end is None else min(self._end, self._reach)
        spans = sorted(
            (batch.offset, batch.end)
            for member in self._members
            for batch in member.queues.get(self._queue, StoredQueue()).overlapping(self._begin, end)
        )
        at = self._begin
        for first, last in spans:
            if first > at:
                yield at, min(first, end)
            at = max(at, last)
        if at < end:
            yield at, end

    def differences(self) -> Iterator[ChainFinding]:
        """Return the first batch in which a member differs from the first one that is named."""
        first = self._members[0]
        for other in self._members[1:]:
            end = self._end
            if end is None:  # above it a term's tail may be gone again
                end = min(m.committed.get(self._queue, 0) for m in (first, other))
            begin = max(self._start, *(m.begins.get(self._queue, 0) for m in (first, other)))
            theirs, own = (
                {b.offset: b for b in m.queues.get(self._queue, StoredQueue()).within(begin, end)}
                for m in (first, other)
            )
            reach = min(end, first.ends.get(self._queue, 0), other.ends.get(self._queue, 0))
            at = _first_difference(theirs, own, reach, whole=first.whole and other.whole)
            if at is not None:
                sentence = f"{other.name} has another batch there than {first.name}"
                yield self._finding(
                    ChainCode.O108, at.offset, at.end, sentence, (first.name, other.name), REFILL
                )

    def _finding(
        self,
        code: ChainCode,
        first: int,
        end: int,
        sentence: str,
        members: tuple[str, ...] = (),
        remedy: str = FIND,
    ) -> ChainFinding:
        return ChainFinding(
            *(code, Severity.ERROR, self._segment.number, self._queue, first, end),
            *(members, sentence, remedy),
        )


def _first_difference(
    theirs: Mapping[int, StoredBatch], own: Mapping[int, StoredBatch], reach: int, *, whole: bool
) -> StoredBatch | None:
    """Return the first batch below `reach` that only one has; not `whole`: that both have."""
    for offset in sorted(theirs.keys() | own.keys()):
        one, other = theirs.get(offset), own.get(offset)
        batch = one or other
        if offset >= reach or batch is None or one == other:
            continue
        if whole or (one is not None and other is not None):
            return batch
    return None


def _merged(found: Sequence[ChainFinding]) -> list[ChainFinding]:
    """Return one finding for the same fault on several members, in the order of the chain."""
    members: dict[ChainFinding, list[str]] = {}
    for finding in found:
        members.setdefault(finding._replace(members=()), []).extend(finding.members)
    merged = [f._replace(members=tuple(dict.fromkeys(names))) for f, names in members.items()]
    return sorted(merged, key=lambda f: (f.segment or 0, f.queue or 0, f.first or 0, f.code.name))
