"""A master's way of ordered batches: judge, append, acknowledge (K13, K14).

Order of effects: the batch is judged by the chain as it was read in this term, and appended in the
same turn of the loop; it becomes durable on all members; then `may_acknowledge` is asked, and only
then the ack is sent. A batch that names what this master has not read waits for one synced read,
and all behind it in its session wait with it: order stays.

`fmqcore.ordered.sending` decides, and knows a repeat by its sequence: an ordered batch has no entry
in the journal's producer table. For tools its header names sender and sequence
(`fmqcore.ordered.headers`).
`session_batches.py` has the line of one session. Appends DATA, and a topic's CONFIG: the first
record of a segment comes after a copy of the chain (`fmqcore.ordered.copies`). Closes a segment
whose records are lost here, or that was sealed here before.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.ordered.chain_lease import ChainLease
from fmqbroker.ordered.member_ends import MemberEnds
from fmqbroker.ordered.seal import Seals
from fmqbroker.ordered.term import Term
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal
from fmqcore import errors
from fmqcore.batch.header import BatchType
from fmqcore.ids import Epoch, GroupName, Offset, Position, TopicId
from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.headers import header_sender
from fmqcore.ordered.sending import (
    AckEvidence,
    Judgement,
    OrderedBatch,
    Verdict,
    judge_batch,
    may_acknowledge,
)
from fmqcore.ordered.transitions import close
from fmqport.clock import Clock

_log = structlog.get_logger()

_READ_S: Final = 2.0
"""Longest wait for a read of the chain before the sender is asked to send again."""


class Draft(NamedTuple):
    """An ordered batch whose content was checked."""

    topic_id: TopicId
    place: OrderedBatch
    payload: bytes
    payload_crc: int
    attrs: int
    tag_mask: int


class Stored(NamedTuple):
    """A batch in the journal that may not be acknowledged yet."""

    topic_id: TopicId
    segment: int
    offset: Offset
    end: Position
    store_ms: int
    term: Epoch  # in which it was appended, or recognised as a duplicate


class Gap(errors.OutOfSequence):
    """Records before the batch are missing: `expected` is the sequence that comes next."""

    def __init__(self, message: str, expected: int) -> None:
        super().__init__(message)
        self.expected = expected


_ERRORS: Final[Mapping[Verdict, type[errors.FmqError]]] = {
    Verdict.MISALIGNED: errors.Malformed,
    Verdict.FENCED: errors.SenderFenced,
    Verdict.NOT_OPEN: errors.SegmentClosed,
    Verdict.LOST: errors.SegmentClosed,
    Verdict.SEALED: errors.SegmentClosed,
    Verdict.STALE_CHAIN: errors.Overloaded,  # read, and still not there: a server is behind
}


class OrderedAppend:
    """What all sessions of ordered producers share."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        group: GroupName,
        term: Term,
        cache: ChainCache,
        lease: ChainLease,
        seals: Seals,
        ends: MemberEnds,
        commit: CommitFrontier,
        copies: ChainCopies,
    ) -> None:
        self.journal = journal
        self.commit = commit
        self.clock = clock
        self.term = term
        self.cache = cache
        self.lease = lease
        self.seals = seals
        self.ends = ends
        self._copies = copies
        self._group = group
        self._persist_to = Position(0)
        self._persist = Signal()
        self._read_in: dict[TopicId, Epoch] = {}  # the newest term in which the chain was read
        self._refused: set[TopicId] = set()  # for want of room, and none was appended since
        self._room_changed: Callable[[TopicId], None] = lambda _: None

    def on_room_changed(self, callback: Callable[[TopicId], None]) -> None:
        """Call `callback` at each batch refused for want of room, and at the next one taken.

        No node in ZooKeeper shows that.
        """
        self._room_changed = callback

    # ---- in
    async def take(self, draft: Draft, require: Callable[[TopicId], int]) -> Stored:
        """Append a batch, or find it stored already; raise the typed error of a refused one.

        `require` raises unless batches are taken now, notes the topic in the journal and returns
        its number of queues; it is called in the turn of the loop that appends.
        """
        judgement = self._judge(draft, require)
        if judgement is None or judgement.verdict is Verdict.STALE_CHAIN:
            await self._read_chain(draft.topic_id)
            judgement = self._judge(draft, require)
        if judgement is None:  # another term since
            raise errors.Overloaded("the chain was not read in this term yet: send again")
        match judgement.verdict:
            case Verdict.APPEND:
                return self._wanted(self._append_noting_room(draft))  # no await since: K13
            case Verdict.DUPLICATE:
                return self._wanted(await self._find(draft, judgement.offset))
            case Verdict.GAP:
                raise Gap(judgement.reason, judgement.expected)
            case Verdict.LOST | Verdict.SEALED:
                await self._close(draft, judgement.reason)
        raise _ERRORS[judgement.verdict](judgement.reason)

    async def run(self) -> None:
        """Have what waits for an ack fsynced, whatever the group's policy says."""
        while True:
            end = min(self._persist_to, self.journal.end)
            if end <= self.journal.durable_end:
                await self._persist.wait()
                continue
            with contextlib.suppress(errors.DeliveryUnknown):  # truncated: it gets no ack
                await self.journal.wait_durable(end)

    def _wanted(self, stored: Stored) -> Stored:
        if stored.end > self._persist_to:
            self._persist_to = stored.end
            self._persist.notify()
        return stored

    def _judge(self, draft: Draft, require: Callable[[TopicId], int]) -> Judgement | None:
        """Judge now; None: the chain was not read in this term yet."""
        queues = require(draft.topic_id)
        term = self.term.held
        chain = self.cache.of(draft.topic_id)
        if not term or chain is None or self._read_in.get(draft.topic_id) != term:
            return None
        if (reason := self._copies.behind(chain)) is not None:
            raise errors.Overloaded(reason)
        queue = draft.place.queue
        if queue >= min(queues, chain.queues):
            raise errors.UnknownQueue(f"queue {queue}: {chain.topic} has {chain.queues}, from 0")
        end = self.journal.next_offset(draft.topic_id, queue)
        closed = self.seals.closed_of(draft.topic_id)
        return judge_batch(chain, self._group, closed, end, draft.place)

    async def _read_chain(self, topic_id: TopicId) -> None:
        """Read the chain as it is now. Raises `Overloaded` without an answer."""
        term, name = self.term.held, self._name_of(topic_id)
        if not term:
            raise errors.NoPermission("this broker is not the master now: ask for the routes again")
        await self._copies.compare()
        try:
            async with asyncio.timeout(_READ_S):
                read = await self.cache.read(name)
        except (errors.Unavailable, TimeoutError):
            raise errors.Overloaded(
                f"the chain of {name} cannot be read: ZooKeeper does not answer; send again"
            ) from None
        if read.value.topic_id == topic_id:
            self._read_in[topic_id] = term

    def _name_of(self, topic_id: TopicId) -> str:
        setting = self.journal.state.topics.get(topic_id)
        if setting is None:  # `require` notes it, so it was deleted just now
            raise errors.UnknownTopic(f"no topic with id {topic_id}: it may have been deleted")
        return setting[0]

    def _append_noting_room(self, draft: Draft) -> Stored:
        topic = draft.topic_id
        try:
            stored = self._append(draft)
        except errors.StorageFull:
            self._refused.add(topic)
            self._room_changed(topic)
            raise
        if topic in self._refused:
            self._refused.discard(topic)
            self._room_changed(topic)
        return stored

    def _append(self, draft: Draft) -> Stored:
        place = draft.place
        self._copies.note(draft.topic_id, place.segment)
        appended = self.journal.append(
            BatchDraft(
                BatchType.DATA,
                draft.payload,
                draft.payload_crc,
                draft.topic_id,
                place.queue,
                place.count,
                draft.attrs,
                *header_sender(place.sender_epoch, place.sequence),
                draft.tag_mask,
            )
        )
        return Stored(
            draft.topic_id,
            place.segment,
            appended.base_offset,
            appended.end,
            appended.store_ms,
            self.term.newest,
        )

    async def _find(self, draft: Draft, offset: Offset) -> Stored:
        """Return the stored batch that holds a duplicate's records."""
        term, end = self.term.newest, self.journal.end
        topic_id, place = draft.topic_id, draft.place
        found = await self.journal.find(topic_id, place.queue, offset, 1)
        store_ms = found[0].store_ms if found else 0
        return Stored(topic_id, place.segment, offset, end, store_ms, term)

    async def _close(self, draft: Draft, reason: str) -> None:
        """Close the segment: this group can neither go on in it nor acknowledge (K6)."""
        stored = self.cache.stored_of(draft.topic_id)
        last = None if stored is None else stored.value.last
        if stored is None or last is None or last.number != draft.place.segment:
            return
        _log.error(
            "chain_segment_unusable", topic=stored.value.topic, segment=last.number, reason=reason
        )
        closed = close(stored.value, reason, CloseReason.JOURNAL)
        if not await self.cache.edit(stored, closed):
            _log.warning("chain_not_closed", topic=stored.value.topic, segment=last.number)

    # ---- out
    def is_durable(self, stored: Stored) -> bool:
        """Return whether the batch lies on the disks of all configured members now."""
        end = self.ends.present_end()
        return end is not None and stored.end <= end

    def obstacle(self, stored: Stored) -> str | None:
        """Return why the batch may not be acknowledged now; None if it may."""
        chain = self.cache.of(stored.topic_id)
        if chain is None:
            return "the topic was deleted"
        lease = self.lease.of(chain)
        evidence = AckEvidence(
            durable_on=self.ends.durable_on(stored.end),
            members=self.ends.members,
            appended_term=stored.term,
            held_term=self.term.held,
            lease_until_ms=lease.until_ms,
            chains_version=lease.chains_version,
            chain_read_at_version=lease.read_at_version,
        )
        closed = self.seals.closed_of(stored.topic_id)
        now_ms = self.clock.monotonic_ms()
        return may_acknowledge(chain, closed, stored.segment, evidence, now_ms)

    def failure(self, stored: Stored) -> errors.FmqError | None:
        """Return why the batch will never be acknowledged here; None while it may be."""
        newest = self.term.newest
        if stored.term != newest:
            return errors.DeliveryUnknown(
                f"appended in epoch {stored.term}, but the broker is in epoch {newest}"
            )
        chain, segment = self.cache.of(stored.topic_id), stored.segment
        if chain is None:
            return errors.DeliveryUnknown("the topic was deleted")
        last = chain.last
        over = last is None or last.number > segment or chain.closing is not None
        if over or segment in self.seals.closed_of(stored.topic_id):
            reason = chain.closing or "another one is open, or it is sealed"
            return errors.SegmentClosed(f"segment {segment} takes no more records: {reason}")
        return None
