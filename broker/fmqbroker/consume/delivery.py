"""Choose and read the deliveries of one message to a session: lease, read, send as stored.

Order of effects: a range is in flight before its bytes are read, and its bytes are read before
they are sent; a range that cannot be sent any more (the queue moved, the session ended) is given
back. Batches that lie near each other in the journal are read at once, whatever their queues, so a
consumer far behind costs few disk reads; memory is bounded by one message. A batch is sent as it
is stored and never parsed; no work is done per record.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from fmqbroker.consume.chain_reads import ChainWindows
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.session import Session
from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Found, Journal
from fmqbroker.runtime.slices import Slices
from fmqcore.consume.in_flight import Lease
from fmqcore.consume.ranges import Range
from fmqcore.errors import NotFound
from fmqcore.ids import Offset, Position
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

MESSAGE_BYTES: Final = 1024 * 1024
"""Batch bytes in one message: enough to make a message's cost small, few to hold in memory."""
UNTOUCHED: Final = 10
"""Ack timeouts that a record may wait in the buffer of a consumer that acks other records."""
_SPAN_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of one read. A batch may be larger than a message, but never than this."""
_GAP_BYTES: Final = 128 * 1024
"""Maximum gap of other queues' bytes between two batches that one read covers."""
_MOST_ENTRIES: Final = 256
"""Index entries that are read, and leased, in one turn."""
_MOST_PICKS: Final = 400
"""Deliveries after which nothing more is added to a message: it is read and made in one turn."""
_QUEUE_STEPS: Final = 3
"""Steps (`runtime.slices`) that choosing from one queue takes."""
_ENTRIES_A_STEP: Final = 2
"""Entries of the index that one such step reads and leases."""

_log = structlog.get_logger()


class Pick(NamedTuple):
    """A planned delivery: a leased range of one stored batch."""

    queue: int
    generation: int
    lease: Lease
    position: Position
    total_len: int
    again: bool  # it may have been sent before, whether or not a program got it
    segment: int  # of an ordered topic's chain; 0 = ordinary


class Puller:
    """Fills messages to sessions with deliveries."""

    def __init__(self, journal: Journal, visible: Visible, clock: Clock) -> None:
        self._journal = journal
        self._visible = visible
        self._clock = clock
        self._batch_len: dict[tuple[int, int], int] = {}  # (topic, queue): of the last one seen

    async def pull(
        self, group: ConsumerGroup, session: Session, reply: client_pb2.ConsumeReply
    ) -> int:
        """Add deliveries up to the session's credit and one message; return their bytes."""
        picks = await self._pick(group, session, min(session.credit_bytes, MESSAGE_BYTES))
        if not picks:
            return 0
        await Slices().step(len(picks))
        batches = await self._read(picks)
        sent, before = 0, None
        for pick in picks:
            first, end, deliveries = pick.lease
            batch = batches.get(pick.position)
            if batch is None or group.delivering(session, pick.queue) != pick.generation:
                now_ms = self._clock.monotonic_ms()
                group.give_back(pick.queue, pick.generation, first, end, now_ms)
                session.credit_records += end - first
                continue
            if session.accepts_omitted_batch and pick.position == before:
                batch = b""
            reply.deliveries.add(
                queue_id=pick.queue,
                generation=pick.generation,
                first_offset=first,
                end_offset=end,
                delivery_count=deliveries,
                redelivered=pick.again,
                batch=batch,
                chain_segment=pick.segment,
            )
            sent, before = sent + len(batch), pick.position
        session.credit_bytes -= sent
        return sent

    # ---- choosing
    async def _pick(self, group: ConsumerGroup, session: Session, budget: int) -> list[Pick]:
        """Lease an equal share from each ready queue in turn, so that none starves."""
        picks: list[Pick] = []
        waits: dict[int, None] = {}
        share = budget // max(len(session.ready), 1)
        slices = Slices()
        for queue in list(session.ready):
            if budget <= 0 or len(picks) >= _MOST_PICKS:
                break
            await slices.step(_QUEUE_STEPS)  # the queue may go to another session meanwhile
            session.ready.pop(queue, None)  # to the end of the line
            done = len(picks)
            taken = await self._pick_queue(group, session, queue, share, budget, done, slices)
            picks += taken
            budget -= _size(taken, session.accepts_omitted_batch)
            if not taken and queue in session.ready:
                waits[queue] = None  # its batch did not fit: it is the first of the next message
        session.ready = {q: None for q in waits if q in session.ready} | session.ready
        return picks

    async def _pick_queue(
        self,
        group: ConsumerGroup,
        session: Session,
        queue: int,
        share: int,
        budget: int,
        done: int,
        slices: Slices,
    ) -> list[Pick]:
        """Lease up to `share` bytes; at least one batch if it is within `budget`, or the first.

        `done`: picks of other queues for the same message.
        """
        picks: list[Pick] = []
        alone, room = not done, _MOST_PICKS - done
        generation = group.delivering(session, queue)
        size = 0
        before: Sequence[Found] = ()  # the batch of the last pick, if it need not be sent again
        while generation:
            if session.reports_delivered and session.credit_records <= 0:
                break  # it stays in line
            want = self._next_range(group, session, queue)
            if want is None:
                return picks
            if before and _contains(before[0], want):  # a further piece of that batch: at no cost
                picks += self._lease(group, session, queue, generation, want, before)
                continue
            if (size >= share and size) or len(picks) >= room:
                break
            limit = min(self._entry_limit(group, queue, share - size), room - len(picks))
            found = await self._journal.find(group.topic_id, queue, want[0], limit)
            await slices.step(1 + len(found) // _ENTRIES_A_STEP)  # many small pieces: many looks
            if group.delivering(session, queue) != generation:
                return picks
            if found and found[0].base_offset > want[0]:
                begin = self._journal.begin_offset(group.topic_id, queue)
                assert begin > want[0], "R7: the index has no hole but at its beginning"
                continue  # retention, meanwhile
            chosen = _fitting(found, want, share - size, budget - size, not picks, alone)
            picks += self._lease(group, session, queue, generation, want, chosen)
            size += sum(batch.total_len for batch in chosen)
            alone = alone and not chosen
            before = chosen[-1:] if session.accepts_omitted_batch else ()
            full = len(chosen) < len(found) and found[len(chosen)].base_offset < want[1]
            if full or not chosen:
                break
        if generation:
            session.ready[queue] = None
        return picks

    def _next_range(self, group: ConsumerGroup, session: Session, queue: int) -> Range | None:
        """Return the next range to lease, or None if there is none or no room.

        A queue without anything to deliver is marked as starved.
        """
        progress = group.progress[queue]
        visible = self._visible.queue(group.topic_id, queue)
        if group.windows is not None:  # an ordered topic's
            visible = visible.limited(self._enter_window(group, group.windows, queue))
        if progress.floor < visible.first:
            self._skip_deleted(group, session, queue, visible.first)
        if progress.waits_for >= visible.end:
            group.starved[queue] = ((group.topic_id, queue), progress.waits_for)
            return None
        want = progress.peek(visible.end)  # None: no room, acks will make some
        if want is not None and session.reports_delivered:
            most = session.credit_records + session.overshoot
            want = want[0], Offset(min(want[1], want[0] + most))
        return want

    def _enter_window(self, group: ConsumerGroup, windows: ChainWindows, queue: int) -> Offset:
        """Count as done what earlier segments deliver; return the end of what may be shown now.

        Orphans, which lie in no segment, are below the first offset of the segment after them.
        """
        progress = group.progress[queue]
        window = windows.enter(queue, progress)
        if progress.floor < window.first:
            progress.skip_to(window.first)
            group.mark(queue)
        return window.end

    def _skip_deleted(
        self, group: ConsumerGroup, session: Session, queue: int, begin: Offset
    ) -> None:
        """Count the offsets that retention has deleted as done, and report them to the session."""
        progress = group.progress[queue]
        _log.warning(
            "offset_below_begin",
            group=group.name,
            topic=group.topic,
            queue=queue,
            offset=progress.floor,
            begin=begin,
            reason="retention has deleted what was not consumed",
        )
        session.skipped += [(queue, skipped) for skipped in progress.skip_to(begin)]
        group.mark(queue)

    def _lease(
        self,
        group: ConsumerGroup,
        session: Session,
        queue: int,
        generation: int,
        want: Range,
        chosen: Sequence[Found],
    ) -> list[Pick]:
        if not chosen:
            return []
        last = chosen[-1]
        # R4, R7, C4: nothing above the commit end is ever delivered.
        shown = self._visible.now().shows(last.position, last.total_len)
        assert shown, "R4: above the commit end"
        self._batch_len[group.topic_id, queue] = last.total_len
        batch_end = last.base_offset + last.record_count
        stop = Offset(min(want[1], batch_end))
        if session.reports_delivered and stop < batch_end:  # split anyway: within the credit, then
            stop = Offset(min(stop, want[0] + session.credit_records))
        now_ms, timeout_ms = self._clock.monotonic_ms(), session.ack_timeout_ms
        latest_ms = now_ms + UNTOUCHED * timeout_ms
        session.leases += 1
        progress = group.progress[queue]
        fresh = progress.next
        segment = 0 if group.windows is None else group.windows.segment(queue)
        leases = progress.lease(
            *(want[0], stop, now_ms + timeout_ms, latest_ms),
            seen=not session.reports_delivered,
            number=session.leases,
        )
        session.credit_records -= sum(end - first for first, end, _ in leases)
        picks: list[Pick] = []
        for lease, entry in _split(leases, chosen):
            place, again = (entry.position, entry.total_len), lease.first < fresh
            picks.append(Pick(queue, generation, lease, *place, again, segment))
        return picks

    def _entry_limit(self, group: ConsumerGroup, queue: int, room: int) -> int:
        """Return how many index entries to ask for: about as many as fit into `room` bytes."""
        length = self._batch_len.get((group.topic_id, queue), 16 * 1024)
        return max(1, min(room // length + 1, _MOST_ENTRIES))

    # ---- reading
    async def _read(self, picks: Sequence[Pick]) -> dict[Position, bytes]:
        """Return the stored batches by position, without those retention has just deleted."""
        places = sorted({(pick.position, pick.total_len) for pick in picks})
        batches: dict[Position, bytes] = {}
        at = 0
        while at < len(places):
            span = _span(places, at)
            start, length = places[at][0], places[span - 1][0] + places[span - 1][1] - places[at][0]
            try:
                data = await self._journal.read_sound(start, length)
            except NotFound:
                at += 1
                continue
            first = at
            while at < span and places[at][0] - start + places[at][1] <= len(data):
                position, total_len = places[at]
                batches[position] = data[position - start : position - start + total_len]
                at += 1
            assert at > first, "a read returns one whole batch at least"
        return batches


def _size(picks: Sequence[Pick], accepts_omitted_batch: bool) -> int:
    """Return the bytes that are sent for `picks`, which are all of one queue."""
    if accepts_omitted_batch:
        return sum({pick.position: pick.total_len for pick in picks}.values())
    return sum(pick.total_len for pick in picks)


def _contains(entry: Found, want: Range) -> bool:
    """Return whether the batch `entry` contains the whole wanted range."""
    return entry.base_offset <= want[0] and want[1] <= entry.base_offset + entry.record_count


def _fitting(
    found: Sequence[Found], want: Range, share: int, budget: int, first: bool, alone: bool
) -> list[Found]:
    """Return the leading entries that fit.

    The first entry of a pick (`first`) may exceed `share`, and if it is `alone`, `budget`, too.
    """
    chosen: list[Found] = []
    size = 0
    for entry in found:
        size += entry.total_len
        if entry.base_offset >= want[1]:
            break
        if size > share and not (first and not chosen and (alone or size <= budget)):
            break
        chosen.append(entry)
    return chosen


def _split(leases: Iterable[Lease], entries: Sequence[Found]) -> Iterator[tuple[Lease, Found]]:
    """Split leases at batch borders; `leases` and `entries` are in ascending order."""
    at = 0
    for first, end, deliveries in leases:
        while first < end:
            entry = entries[at]
            entry_end = entry.base_offset + entry.record_count
            if entry_end <= first:
                at += 1
                continue
            # R7: the index has no hole below what is committed.
            assert entry.base_offset <= first, "a leased offset lies in a stored batch"
            stop = Offset(min(end, entry_end))
            yield Lease(first, stop, deliveries), entry
            first = stop


def _span(places: Sequence[tuple[Position, int]], at: int) -> int:
    """Return one past the index of the last place to read together with the one at `at`."""
    start, length = places[at]
    end = start + length
    after = at + 1
    while after < len(places):
        position, length = places[after]
        if position - end > _GAP_BYTES or position + length - start > _SPAN_BYTES:
            break
        end = position + length
        after += 1
    return after
