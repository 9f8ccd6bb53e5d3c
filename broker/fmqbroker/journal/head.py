"""The growing end of the journal: gives the next batch its position, offsets and chain.

State and index grow with it, in memory at once; `flusher.py` makes the bytes durable. A master
appends drafts, which get their place here; a slave appends what it received, which must agree with
that place to the last bit. Rolling to the next segment is logical too: an EOF fills the old one
(unless it is exactly full), a SNAP opens the new one and states its length.
"""

from collections.abc import Sequence
from contextlib import suppress

import structlog

from fmqbroker.journal.catalog import Catalog, segment_start
from fmqbroker.journal.disk_space import KEPT_FOR_TERMS, Claim, control_segment
from fmqbroker.journal.drafts import Appended, BatchDraft, Snaps, control_payloads, long_snap
from fmqbroker.journal.recovery import Loaded
from fmqbroker.journal.store import SegmentStore
from fmqbroker.journal.tail_cache import Tail
from fmqbroker.runtime.freeing import Freeing
from fmqbroker.runtime.steady_clock import may_correct
from fmqcore.batch.control import decode_epoch
from fmqcore.batch.header import (
    HEADER_LEN,
    MAGIC,
    VERSION,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    padding,
    parse_header,
    seal_header,
)
from fmqcore.clocks import FUTURE_MS
from fmqcore.errors import Malformed, StorageFull, TooLarge
from fmqcore.ids import Epoch, Offset, Position
from fmqcore.journal.kinds import apply_batch, kind_of
from fmqcore.journal.scan import Cursor, check_batches
from fmqcore.journal.segments import (
    NO_TERM,
    Segment,
    eof_batch,
    max_payload,
    snap_header,
    snap_room,
    usual_snap,
)
from fmqcore.journal.snap_payload import Snapshot
from fmqcore.journal.state import JournalState
from fmqcore.turns import Turns
from fmqport.clock import Clock

log = structlog.get_logger()


class Head:
    """The logical end of the journal."""

    def __init__(
        self,
        tail: Tail,
        store: SegmentStore,
        catalog: Catalog,
        clock: Clock,
        segment_bytes: int,
        freeing: Freeing,
    ) -> None:
        self.end = tail.end
        self.state = JournalState()
        self.epoch = Epoch(0)
        self.last_header_crc = 0
        self._tail = tail
        self._store = store
        self._space = store.space
        self._catalog = catalog
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._freeing = freeing  # of old tombstones, and of the tables of replaced states
        self._segment_end = tail.end
        self.being_cut = False  # no append may happen meanwhile
        self._last_ms = 0
        self._chained = tail.end == 0  # False: whatever the next SNAP says is right
        self._built: tuple[tuple[Position, int, int], Snapshot] | None = None  # by `_own_snapshot`

    def adopt(self, loaded: Loaded | None) -> None:
        """Continue from the tail's end, with the state that a scan of the newest segment found."""
        self.end = self._tail.end
        last = self._store.last
        self._segment_end = last.end if last else self.end
        self._freeing.add(self.state.freeing())
        self._built = None
        if loaded is None:
            self.state, self.epoch, self.last_header_crc = JournalState(), Epoch(0), 0
            self._chained, self._last_ms = self.end == 0, 0
            return
        self.state, self.epoch = loaded.state, loaded.epoch
        self.last_header_crc = loaded.last_header_crc or 0
        self._last_ms = loaded.last_ms
        self._chained = True

    @property
    def last_ms(self) -> int:
        """The newest store time in the journal, in milliseconds."""
        return self._last_ms

    # ---- master
    def append(self, draft: BatchDraft, *, for_term: bool = False) -> Appended:
        """See `Journal.append`."""
        (kind, payload, payload_crc, topic_id, queue_id, record_count, attrs, producer_id,
         producer_epoch, base_sequence, tag_mask, deliver_at_ms) = draft  # fmt: skip
        length = len(payload)
        total_len = (HEADER_LEN + length + 7) & -8
        # D10
        assert not self.being_cut, "who cuts the journal back has closed the writes before"
        wall_ms = self._clock.wall_ms()
        if self._last_ms - wall_ms > FUTURE_MS and kind != BatchType.EPOCH and not for_term:
            self._correct_times(wall_ms)
        rest = self._segment_end - self.end - total_len
        # `segments.fits`, inlined: it runs for every batch
        if (rest and rest < HEADER_LEN) or self._space.tight:
            term = decode_epoch(payload).epoch if kind == BatchType.EPOCH else NO_TERM
            self._make_way(kind, length, rest, term, for_term=for_term)
            rest = self._segment_end - self.end - total_len
        position, epoch, base_offset, chain = self.end, self.epoch, Offset(0), self.last_header_crc
        if kind == BatchType.DATA:
            base_offset = self.state.next_offsets.get((topic_id, queue_id), base_offset)
            if not record_count:
                raise Malformed("a DATA batch must have at least one record")
        elif kind == BatchType.EPOCH:
            epoch = decode_epoch(payload).epoch
            assert epoch > self.epoch, "a term is opened once, and terms rise"  # F2
        else:
            # D6
            assert not kind_of(kind).frame, "segments are framed here alone"
        store_ms = self._last_ms = max(self._last_ms, wall_ms)
        raw, header = seal_header((
            total_len, MAGIC, VERSION, kind, 0, payload_crc, position, epoch, attrs, queue_id,
            topic_id, record_count, base_offset, store_ms, deliver_at_ms, producer_id,
            producer_epoch, 0, base_sequence, chain, length, tag_mask,
        ))  # fmt: skip
        apply_batch(self.state, header, payload)  # the last thing that may be refused
        self._note(header)
        pad = total_len - HEADER_LEN - length
        self._tail.add((raw, payload, bytes(pad)) if pad else (raw, payload), total_len, self.end)
        if not rest:
            self._tail.close_segment()
        return Appended(position, self.end, base_offset, store_ms)

    def _make_way(
        self, kind: BatchType, payload_len: int, rest: int, term: Epoch, *, for_term: bool
    ) -> None:
        """Roll if need be, as far as there is room (the table of `disk_space.py`).

        `rest` is what remains of the segment behind the batch. Raises `StorageFull`.
        """
        space = self._space
        space.follows = False
        fits = not rest or rest >= HEADER_LEN
        if not space.tight:
            self._roll(payload_len, Claim.DATA, term)
        elif kind == BatchType.EPOCH:
            if not fits:
                self._roll(payload_len, Claim.TERM, term)
        elif kind == BatchType.DATA:
            if space.no_data or not fits or rest < KEPT_FOR_TERMS:
                raise StorageFull(space.tight)
        elif space.no_control:
            raise StorageFull(space.no_control)
        elif for_term:
            if not fits:
                self._require_lent()
                self._roll(payload_len, Claim.TERM, term)
        elif not fits or rest < KEPT_FOR_TERMS:
            if not space.affords(
                control_segment(usual_snap(self._segment_bytes), self._segment_bytes)
            ):
                raise StorageFull(space.tight)
            self._roll(payload_len, Claim.CONTROL, term)

    def _require_lent(self) -> None:
        """Require room for what goes with a term, including the reserve. Raises `StorageFull`.

        Unlike its EPOCH it is appended again at the next try, which then finds what has come free.
        """
        size = self._segment_bytes
        snapshot = self.state.snapshot(self._now_ms(), *snap_room(size))
        if not self._space.lends(control_segment(snapshot.payload_len, size)):
            raise StorageFull(self._space.tight)

    def _correct_times(self, wall_ms: int) -> None:
        """Begin a segment at the clock's time, below the newest store time, if it can be relied on.

        Only a SNAP may lower the store times: within a segment they never fall (ADR 0070).
        """
        if self._space.tight or not may_correct(self._clock):
            return
        before_ms = self._last_ms
        with suppress(TooLarge):  # then the times go on as they are
            self._roll(0, Claim.DATA, NO_TERM, corrected_ms=wall_ms)
            ahead_ms = before_ms - wall_ms
            log.warning("store_times_corrected", position=self.end, were_ahead_ms=ahead_ms)

    def _roll(
        self, payload_len: int, claim: Claim, term: Epoch, *, corrected_ms: int | None = None
    ) -> None:
        """Close the segment and open the next one, with room for `payload_len` bytes.

        `corrected_ms`: the time of the next SNAP, below those before it.
        """
        size = self._segment_bytes
        now_ms = self._now_ms() if corrected_ms is None else corrected_ms
        # The very first SNAP comes before any epoch, whichever broker writes it.
        framed_for = term if self.epoch else NO_TERM
        snapshot = self.state.snapshot(now_ms, *snap_room(size))
        snap_len = snapshot.payload_len
        if claim is not Claim.DATA:
            size = control_segment(snap_len, size)
        if payload_len > max_payload(size, snap_len):
            raise TooLarge(
                f"a batch of {payload_len} bytes does not fit a segment of {size} bytes, of which "
                f"the journal's state takes {snap_len}: set larger segments"
            )
        if self.end < self._segment_end:
            self._close_segment(framed_for)
            if framed_for:  # the EOF started a term
                snapshot = self.state.snapshot(now_ms, *snap_room(self._segment_bytes))
        raw, _ = snap_header(
            base=self.end,
            segment_bytes=size,
            epoch=self.epoch,
            prev_header_crc=self.last_header_crc,
            payload_len=snapshot.payload_len,
            payload_crc=snapshot.payload_crc,
            store_ms=now_ms,
            framed_for=framed_for,
            corrected_from_ms=0 if corrected_ms is None else self._last_ms,
            last_correction=self._catalog.last_correction,
        )
        self._last_ms = now_ms
        header = parse_header(raw)
        self._settle(snapshot)
        self.state.note_frame(header)
        self._begin_segment(header, claim)
        self._note(header)
        pieces = (raw, *snapshot.parts, padding(header.payload_len))
        self._tail.add_long(pieces, header.total_len, self.end)

    def _close_segment(self, framed_for: Epoch) -> None:
        raw, _ = eof_batch(
            position=self.end,
            segment_end=self._segment_end,
            epoch=self.epoch,
            prev_header_crc=self.last_header_crc,
            store_ms=self._last_ms,
            framed_for=framed_for,
        )
        header = parse_header(raw)
        self.state.note_frame(header)
        self._note(header)
        self._tail.add((raw,), HEADER_LEN, self.end)
        self._tail.close_segment()

    # ---- slave
    def unpacking(self, data: bytes) -> Turns[Snaps]:
        """Decode a long SNAP at the start of received batches, in pieces.

        The result depends on the bytes alone, so the journal may change meanwhile. Bytes that do
        not decode are left to `append_replica`, which refuses them, and so is what needs no
        decoding.
        """
        snap = long_snap(data)
        if snap is None or (snap.position == self.end and self._own_snapshot([snap], data)):
            return {}
        yield
        payload = data[HEADER_LEN : HEADER_LEN + snap.payload_len]
        try:
            return {snap.position: (yield from JournalState.decoding_snap(payload))}
        except Malformed:
            return {}

    def append_replica(self, position: Position, data: bytes, snaps: Snaps | None = None) -> None:
        """See `Journal.append_replica`."""
        assert not self.being_cut, "a slave cuts back and appends in one task"  # D10
        if position != self.end:  # R2: append only at the end
            raise BadBatch(
                BatchFault.POSITION, f"batches for position {position}, the end is {self.end}"
            )
        self._space.follows = True
        data = bytes(data)  # no copy if it is that already
        headers = check_batches(data, self._cursor())  # R1: it chains to what is here, to the bit
        snapshot, self._built = self._own_snapshot(headers, data), None
        snaps = {} if snaps is None else snaps
        payloads = control_payloads(headers, data, snaps, known=snapshot is not None)
        claim = self._claim_of(headers)
        at, first, starts = 0, 0, list[int]()
        for header, payload in zip(headers, payloads, strict=True):
            if snapshot is not None and not at:
                self._settle(snapshot)
                self.state.note_frame(header)
            elif header.type == BatchType.SNAP:
                before = self.state.follow_snap(header, snaps[header.position])
                self._freeing.add(before.freeing())
            else:
                apply_batch(self.state, header, payload)
            if header.type == BatchType.SNAP:
                self._begin_segment(header, claim)
            self._note(header)
            starts.append(header.position)
            at += header.stored_len
            if self.end == self._segment_end:
                self._tail.add_stored(data[first:at], starts, self.end)
                self._tail.close_segment()
                first, starts = at, []
        if starts:
            self._tail.add_stored(data[first:], starts, self.end)
        if headers:
            self._last_ms = headers[-1].store_ms

    def _own_snapshot(self, headers: Sequence[BatchHeader], data: bytes) -> Snapshot | None:
        """Return the broker's own snapshot if the leading SNAP equals it, to skip decoding.

        It is built once for `unpacking` and `append_replica`: while the end is the same, so is the
        state.
        """
        if not headers or headers[0].type != BatchType.SNAP or not self._chained:
            return None
        snap = headers[0]
        key = self.end, snap.store_ms, snap.base_offset
        if self._built is None or self._built[0] != key:
            self._built = key, self.state.snapshot(snap.store_ms, *snap_room(snap.base_offset))
        own = self._built[1]
        return own if own.is_at(HEADER_LEN, HEADER_LEN + snap.payload_len, data) else None

    def _claim_of(self, headers: Sequence[BatchHeader]) -> Claim:
        """Return the claim of received batches: with little room, no DATA. Raises `StorageFull`."""
        space = self._space
        if not space.tight:
            return Claim.DATA
        for header in headers:
            data = header.type == BatchType.DATA
            rolls = header.type == BatchType.SNAP and not space.affords(header.base_offset)
            if space.no_control or (data and space.no_data) or rolls:
                raise StorageFull(space.tight)
        return Claim.CONTROL

    def _cursor(self) -> Cursor:
        segment = None
        if self.end != self._segment_end and self._store.last is not None:
            segment = Segment(self._store.last.base, self._segment_end)
        if not self._chained:
            return Cursor(self.end)
        started = self._store.last is not None
        return Cursor(
            self.end,
            self.last_header_crc,
            self.epoch if started else None,
            segment,
            self.state.next_offsets,
            complete=started,
        )

    # ---- both
    def _settle(self, snapshot: Snapshot) -> None:
        self.state.settle(snapshot)
        self._freeing.add(self.state.dropping())

    def _begin_segment(self, snap: BatchHeader, claim: Claim) -> None:
        end = Position(snap.position + snap.base_offset)
        segment = self._store.add(snap.position, end, claim)
        self._space.spend(segment.size)
        if claim is Claim.DATA:
            self._store.next_bytes = segment.size
        self._segment_end = end
        self._chained = True  # the first SNAP after a reset was taken as it is; now it counts
        # A copy: the state goes on changing, this one stays as it was at the segment's start.
        self._catalog.begin(segment, segment_start(snap, dict(self.state.next_offsets)))

    def _note(self, header: BatchHeader) -> None:
        self._catalog.apply(header)
        self.end = header.end
        self.epoch = header.epoch
        self.last_header_crc = header.header_crc

    def _now_ms(self) -> int:
        """Return the store time in ms; it never falls within a segment: searches rely on that."""
        self._last_ms = max(self._last_ms, self._clock.wall_ms())
        return self._last_ms
