"""What a master does with an ordered batch: append, answer, refuse; and when it may ack. Pure.

Order of effects at the master: judge the batch against the chain as it was read, append, fsync,
replicate; once durable on all members judge the ack, and only then send it. Nothing of a segment is
appended after its SEAL.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from fmqcore.ids import BrokerId, GroupName, Offset
from fmqcore.zk.chain import Chain, Segment


class Verdict(Enum):
    """What is done with a received batch: append, acknowledge as duplicate, or refuse."""

    APPEND = "append"  # it is exactly the next one
    DUPLICATE = "duplicate"  # it is stored at `offset`: answer once it may be acknowledged
    GAP = "gap"  # records before it are missing here: the client sends again from `expected`
    MISALIGNED = "misaligned"  # a part is stored: the client must keep its batches
    FENCED = "fenced"  # a later sender is active: SenderFenced, final
    NOT_OPEN = "not open"  # the segment takes no more: the client waits for the next one
    STALE_CHAIN = "stale chain"  # it names what this master has not read yet: read, judge again
    LOST = "lost"  # the queue ends below the segment's start: close the segment
    SEALED = "sealed"  # open, and sealed here before ZooKeeper's data was lost: close it


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """Where a batch belongs: N records of one queue."""

    sender: str  # its id; a restored chain may give an epoch again, to another sender
    segment: int
    sender_epoch: int
    queue: int
    sequence: int  # the first record's
    count: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a batch. `reason` is for people; "" for APPEND and DUPLICATE."""

    verdict: Verdict
    offset: Offset = Offset(0)  # APPEND: where it goes; DUPLICATE: where it lies
    expected: int = 0  # GAP: the sequence that comes next
    reason: str = ""


def judge_batch(
    chain: Chain, group: GroupName, sealed: Collection[int], end: Offset, batch: OrderedBatch
) -> Judgement:
    """Return what the master of `group` does with a batch (K13: exactly the next one is appended).

    `chain` as this master read it in its present term; `end`: the queue's next offset in the
    master's journal, also after a restart that lost a tail; `sealed`: segments sealed here.
    """
    another = batch.sender_epoch == chain.sender.epoch and batch.sender != chain.sender.id
    if another or batch.sender_epoch < chain.sender.epoch:
        return Judgement(
            Verdict.FENCED,
            reason=f"sender {chain.sender.id} is active in {chain.topic} with epoch "
            f"{chain.sender.epoch}, {batch.sender} has {batch.sender_epoch}: ask for the "
            "role again",
        )
    if batch.sender_epoch > chain.sender.epoch or batch.segment >= chain.next_number:
        return Judgement(
            Verdict.STALE_CHAIN, reason=f"this master has not read segment {batch.segment} yet"
        )
    segment = chain.last
    if segment is None or batch.segment != segment.number or segment.group != group:
        return Judgement(Verdict.NOT_OPEN, reason=f"segment {batch.segment} takes no more records")
    if chain.closing is not None:
        reason = f"segment {batch.segment} is closing: {chain.closing}"
        return Judgement(Verdict.NOT_OPEN, reason=reason)
    if segment.number in sealed:
        reason = f"segment {batch.segment} was sealed in {group} before ZooKeeper's data was lost"
        return Judgement(Verdict.SEALED, reason=reason)
    return _place(segment, end, batch)


def _place(segment: Segment, end: Offset, batch: OrderedBatch) -> Judgement:
    """Compare the batch with the next sequence: first sequence + records in the segment."""
    start, first = segment.start[batch.queue], segment.first_sequence[batch.queue]
    if end < start:
        return Judgement(
            Verdict.LOST,
            reason=f"queue {batch.queue} ends at {end}, below the start {start} of segment "
            f"{segment.number}: {segment.group} has lost records",
        )
    expected = first + end - start
    if batch.sequence == expected:
        return Judgement(Verdict.APPEND, end)
    if batch.sequence > expected or batch.sequence < first:
        return Judgement(
            Verdict.GAP,
            expected=expected,
            reason=f"sequence {batch.sequence} of queue {batch.queue} came where {expected} "
            "is next",
        )
    if batch.sequence + batch.count > expected:
        return Judgement(
            Verdict.MISALIGNED,
            expected=expected,
            reason=f"sequences {batch.sequence} to {batch.sequence + batch.count - 1} are stored "
            f"up to {expected - 1} only: send a batch again with the same records",
        )
    return Judgement(Verdict.DUPLICATE, Offset(start + batch.sequence - first))


@dataclass(frozen=True, slots=True)
class AckEvidence:
    """What a master knows when an ordered batch is due."""

    durable_on: frozenset[BrokerId]  # members that hold the batch on their disks
    members: frozenset[BrokerId]  # all that are configured or may claim the reads, and the master
    appended_term: int  # in which the batch was appended, or recognised as a duplicate
    held_term: int  # the term that this master holds now; 0 = none
    lease_until_ms: int  # 0 = none; counted from the start of the last read
    chains_version: int  # of `groups/<g>/chains`, as the last read saw it
    chain_read_at_version: int  # of `groups/<g>/chains`, when the chain was read as it is cached


def least_members(chain: Chain) -> int:
    """Return how many members a group needs, so that a record is on two disks."""
    return 1 if chain.allow_single else 2


def may_acknowledge(
    chain: Chain, sealed: Collection[int], segment: int, evidence: AckEvidence, now_ms: int
) -> str | None:
    """Return None if a batch of `segment` may be acknowledged now, else the reason (K14).

    Grants of slaves do not count, and an in-sync set without a member does not excuse that member:
    whoever is cut off from ZooKeeper acknowledges no ordered batch, so a lease that is over fences.
    """
    if len(evidence.members) < least_members(chain):
        return "its group has one member: two disks are needed"
    lacking = evidence.members - evidence.durable_on
    if lacking:
        return f"it is not durable on {', '.join(sorted(lacking))}"
    if segment in sealed:
        return f"segment {segment} is sealed"
    if not evidence.held_term or evidence.held_term != evidence.appended_term:
        return f"the term {evidence.appended_term} in which it was appended is over"
    if evidence.chains_version != evidence.chain_read_at_version:
        return "a segment of this group was closed: the chain has to be read again"
    last = chain.last
    if last is None or last.number != segment or chain.closing is not None:
        return f"segment {segment} takes no more records"
    if now_ms >= evidence.lease_until_ms:
        return "the lease on the chain is over: ZooKeeper does not answer"
    return None
