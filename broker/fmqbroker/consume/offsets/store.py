"""Consumer progress: where it is kept in each mode.

| mode | entries go to | stored when |
|---|---|---|
| master | OFFSETS batches in the journal | the batch lies below the commit end |
| takeover reader | `takeover.journal` (`consume/offsets/side_journal.py`) | fsynced |
| frozen, retired | nowhere: `put` is refused | |

Entries are gathered for `offsets_interval_ms` and then written together. Order of effects: written
and committed (or fsynced), then `put` returns; the takeover reader's checkpoint in the group's
state follows at most `takeover_checkpoint_ms` later. Hand-over: `freeze` on the takeover reader,
`install` on the master. The record stays in the group's state until every in-sync slave has the
installed entries, which leave the master only when its term stands. Of two entries the higher
version always wins.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Final, assert_never

import structlog

from fmqbroker.consume.offsets.append import append_offsets
from fmqbroker.consume.offsets.journal_tail import offsets_above
from fmqbroker.consume.offsets.known_progress import KnownProgress
from fmqbroker.consume.offsets.side_journal import SideDisk, SideJournal, checkpoint_of
from fmqbroker.consume.offsets.write_round import Round, Source
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import in_turns
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.batch.control import decoding_offsets, encoding_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, merge, next_version
from fmqcore.consume.offsets.merge import (
    merged,
    merging,
    news_for,
    pieces_of,
    shortened,
    within,
)
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.consume.offsets.takeover_record import MAX_RECORD_CHARS, decoding_record
from fmqcore.errors import FmqError, NoPermission, StorageFull, Unavailable
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.clock import Clock

MAX_CHECKPOINT_CHARS: Final = MAX_RECORD_CHARS
"""Maximum length of the takeover record in the group's state."""

_INSTALLED: Final = 150
"""Entries that are compared and appended in one turn of the loop."""

_log = structlog.get_logger()
_Table = dict[OffsetKey, OffsetEntry]


class _Keeping(Enum):
    MASTER = "master"
    TAKER = "taker"
    FROZEN = "frozen: the offsets are being handed over"
    RETIRED = "neither master nor taker"


class OffsetStore(KnownProgress):
    """The one place where consumer progress is read and written."""

    def __init__(
        self,
        disk: SideDisk,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._commit = commit
        self._group = group
        self._settings = settings
        self._clock = clock
        self._keeping = _Keeping.RETIRED
        self._epoch = Epoch(0)  # of the term in which this store keeps them
        self._installed_end = Position(0)  # master: what was installed lies below
        self._round = Round()
        self._writing = Round()  # what is being written now, part by part
        self._appended: deque[tuple[Position, Round]] = deque()  # master: not yet committed
        self._takeover = ProgressTable()  # taker: what changed since the claim
        self._taken_in = Epoch(0)  # the term in which `_takeover` was last started; 0 = it is empty
        self._side: SideJournal | None = None
        self._checkpointed = True
        self._saves = 0  # number of checkpoints started
        self._sources: list[Source] = []
        self._freezing: Round | None = None  # settled when frozen
        self._lock = asyncio.Lock()  # of the file, and of changes of mode
        self._dirty = Signal()
        self._moved = Signal()  # appended or changed mode: the waiters look again
        self._unsaved = Signal()  # the taker's entries have changed since the checkpoint

    # ---- reading
    @property
    def epoch(self) -> Epoch:
        """The epoch of the term in which entries are kept here."""
        return self._epoch

    @property
    def unmet_reason(self) -> str | None:
        """Why no entry can be committed now, the policy's; None while it can be met."""
        return self._commit.unwritable_reason

    def _tables(self) -> Sequence[ProgressTable]:
        stored = self._journal.state.offsets
        return (self._round.entries, self._writing.entries, self._takeover, stored)

    def next_version(self, key: OffsetKey) -> int:
        """Return the version for a change made now."""
        return next_version(self.get(key), self._epoch)

    def next_versions(self, keys: Collection[OffsetKey]) -> dict[OffsetKey, int]:
        """Return `next_version` for many keys."""
        entries, epoch = self.get_all(keys), self._epoch
        return {key: next_version(entries.get(key), epoch) for key in keys}

    # ---- writing
    async def put(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Store entries; return once they are committed or fsynced, as the mode requires (C5).

        Without entries, return once everything known here is stored. Raises `StorageFull`, and
        `NoPermission` while frozen or when neither master nor takeover reader.
        """
        await self.accept(entries).wait()

    def accept(self, entries: Mapping[OffsetKey, OffsetEntry]) -> Round:
        """Like `put`, but return the write to wait for. From here on the entries are known."""
        if self._keeping not in (_Keeping.MASTER, _Keeping.TAKER):
            raise self._refusal()
        if self._freezing is not None:  # they are in the frozen record, but stored for the next
            self._take_in(entries)  # reader only: whoever waits is refused, as after the freeze
            return self._freezing
        if self._side is None:
            entries = merged(entries)  # sorted, for the journal
            # A taker that found no room: nothing of what is known is stored.
            self._round.repeats = bool(self._takeover)
        if entries or self._round.due:
            return self._take_in(entries)
        if self._writing.entries:
            return self._writing
        if self._keeping is _Keeping.MASTER:
            return self._written()
        known = Round()
        known.settle()
        return known

    def add_source(self, source: Source) -> None:
        """Add a source that `freeze` asks for entries that were acked but not accepted yet."""
        self._sources.append(source)

    async def run(self) -> None:
        """Gather, write and checkpoint until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._gather())
                tasks.create_task(self._await_commit())
                tasks.create_task(self._checkpoint())
                tasks.create_task(self._let_go())
                tasks.create_task(self._clean())
        finally:
            self.retire()
            await self._close_side(remove=False)

    # ---- changes of mode
    async def become_master(self) -> None:
        """Write entries to the journal from now on; remove this broker's side journal."""
        async with self._lock:
            if self._keeping is _Keeping.MASTER:
                return
            await self._close_side(remove=True)
            self._installed_end = self._journal.end
            self._enter(_Keeping.MASTER)

    async def become_taker(self, record: str, committed: Position) -> None:
        """Start the side journal from the journal's end, the old side journal and `record`.

        `record` is the group state's `offsets`, the checkpoint of the reader before. Raises
        `Malformed` if it does not decode: then a person must look, and nothing is overwritten. The
        master may lack for ever what this journal holds above `committed` (ADR 0038).

        Order of effects: the store is retired, so that nothing is accepted meanwhile; the table is
        built aside, in short turns; it is put in place with its term, written to the file, and only
        then are entries accepted. A call that ends early leaves the old table and the old file.
        """
        async with self._lock:
            self.retire()
            earlier = await in_turns(decoding_record(record))
            left_in, own = await self._own()
            await self._close_side(remove=False)
            table, changed = ProgressTable(), False
            # `earlier` stays whole: a slave with a shorter journal may have to use this table.
            await in_turns(merging(table, earlier))
            # by a broker that has this journal
            known = left_in < self._group.state.value.last_opened_epoch
            for piece in pieces_of(own):
                news = news_for(self._journal.state.offsets, piece) if known else piece
                changed = bool(merge(table, news)) or changed
                await asyncio.sleep(0)
            tail = await offsets_above(self._journal, committed)
            changed = await in_turns(merging(table, tail)) or changed
            self._takeover, self._taken_in = table, self._term()
            await self._start_side()
            self._enter(_Keeping.TAKER)
            self._checkpointed = not changed
            self._unsaved.notify()

    def retire(self) -> None:
        """Stop keeping progress: refuse `put`, and end its waiters with `NoPermission`."""
        self._enter(_Keeping.RETIRED)

    async def freeze(self) -> bytes:
        """Refuse new entries, fsync, and return the takeover's entries (an OFFSETS payload).

        They are all that the master may lack: see `become_taker`. Another call returns the same.
        """
        if self._keeping is _Keeping.TAKER:
            await self._take_all_in()
        async with self._lock:
            if self._keeping is not _Keeping.FROZEN:
                raise self._refusal()
            await self._write_side()
            table = self._takeover  # frozen: it does not change between two turns
            return await in_turns(encoding_offsets(table, table.by_topic()))

    async def install(self, payload: bytes, *, lacking: bool = False) -> None:
        """Append handed-over entries on the master before it serves; durable locally; idempotent.

        `lacking`: the journal does not have everything that the takeover reader had (ADR 0025).
        """
        await self._install(await in_turns(decoding_offsets(payload)), lacking=lacking)

    async def install_own(self, opened: Epoch, *, lacking: bool = False) -> None:
        """Install the entries of this broker's side journal if no master opened a term since.

        The journal may be shorter than when this broker served: a person let the group begin again.
        Then the progress on what is missing is void, or the next messages at those offsets would
        count as done.
        """
        async with self._lock:
            left_in, entries = await self._own()
        if entries and left_in >= opened:
            await self._install(entries, lacking=lacking, own=True)

    async def _install(self, given: _Table, *, lacking: bool, own: bool = False) -> None:
        """Append the news, piece by piece: each is compared and appended in the same turn.

        With `lacking` the journal's own entries are limited, too. No entry depends on another, and
        a repeated entry changes nothing, so a try that stopped half-way is simply made again.
        """
        pieces = pieces_of(given, _INSTALLED)
        if lacking:
            pieces = chain(pieces, pieces_of(self._journal.state.offsets, _INSTALLED))
        count, end = 0, Position(0)
        for piece in pieces:
            if news := self._news(piece, lacking=lacking, own=own):
                end = await append_offsets(self._journal, news, for_term=True)
                count += len(news)
            await asyncio.sleep(0)
        if count:
            await self._journal.wait_durable(end)
        _log.info("offsets_installed", entries=count, end=end)

    def _news(self, given: _Table, *, lacking: bool, own: bool) -> _Table:
        """Return what to append of `given`, limited to the journal as it is now."""
        state, term = self._journal.state, self._journal.epoch
        if own:  # by the versions that they have now
            given = shortened(news_for(state.offsets, given), state.next_offsets, term)
        if lacking:
            held = {key: state.offsets[key] for key in given if key in state.offsets}
            given = within(merged(held, given), state.next_offsets, term)
        return news_for(state.offsets, given)

    # ---- inside
    async def _take_all_in(self) -> None:
        """Take everything from the sources in short turns, then keep nothing more (`FROZEN`).

        The gate is closed: no new acks. A piece is taken and known here in one turn, and what is
        put in between is in the record, too.
        """
        self._freezing = Round()
        try:
            for source in self._sources:
                while source and self._keeping is _Keeping.TAKER:
                    self._take_in(source.take())
                    if source:
                        await asyncio.sleep(0)
        finally:
            if self._keeping is _Keeping.TAKER:
                self._keeping = _Keeping.FROZEN  # before the lock: nothing comes in from here on
            self._freezing.settle(self._refusal())
            self._freezing = None

    async def _own(self) -> tuple[Epoch, _Table]:
        left_in = await SideJournal.epoch_left(self._disk) or Epoch(0)
        own = await SideJournal.load(self._disk)
        await in_turns(merging(own, self._takeover))
        return max(left_in, self._taken_in), own  # there may have been no room for a file

    def _take_in(self, entries: Mapping[OffsetKey, OffsetEntry]) -> Round:
        merge(self._round.entries, entries)
        if self._keeping is _Keeping.TAKER:
            merge(self._takeover, entries)
        self._dirty.notify()
        return self._round

    def _written(self) -> Round:
        """Return a round that settles when the journal's entries, of any term, are committed."""
        end = self._appended[-1][0] if self._appended else self._installed_end
        known = Round()
        if end <= self._commit.commit_end:
            known.settle()
        else:
            self._appended.append((end, known))
            self._moved.notify()
        return known

    def _term(self) -> Epoch:
        return max(self._group.state.value.epoch, self._journal.epoch)

    def _enter(self, keeping: _Keeping) -> None:
        left, self._round = self._round, Round()
        self._keeping = keeping
        self._epoch = self._term()
        left.settle(self._refusal())
        self._writing.settle(self._refusal())
        while self._appended:
            self._appended.popleft()[1].settle(self._refusal())
        self._moved.notify()

    def _refusal(self) -> NoPermission:
        state = self._group.state.value
        return NoPermission(
            f"this broker keeps no offsets now ({self._keeping.value}): mode {state.mode.value}, "
            f"epoch {state.epoch}, reader {state.reader or 'none'}; ask for the routes again"
        )

    async def _gather(self) -> None:
        while True:
            while not self._round.due:
                await self._dirty.wait()
            await self._clock.sleep(self._settings.offsets_interval_ms / 1000)
            async with self._lock:
                match self._keeping:
                    case _Keeping.MASTER:
                        await self._write_journal()
                    case _Keeping.TAKER | _Keeping.FROZEN:
                        await self._write_side()
                    case _Keeping.RETIRED:
                        pass  # waiting callers have their error
                    case _:
                        assert_never(self._keeping)

    async def _write_journal(self) -> None:
        if not self._round.entries:
            return  # waiting callers have their error, this is the next term
        full, self._round = self._round, Round()
        self._writing = full
        try:
            end = await append_offsets(self._journal, full.entries, full.check)
        except FmqError as error:  # a full disk, a closed journal, a term that is over
            full.settle(error)
        except asyncio.CancelledError:
            full.settle(self._refusal())
            raise
        else:
            self._appended.append((end, full))
            self._moved.notify()
        finally:
            self._writing = Round()

    async def _start_side(self) -> None:
        try:
            self._side = await SideJournal.start(self._disk, self._term(), self._takeover)
        except StorageFull as error:  # reads go on; each `put` tries again
            _log.error("takeover_journal_not_started", error=str(error))

    async def _write_side(self) -> None:
        if not self._round.due:
            return
        full, self._round = self._round, Round()
        self._writing = full
        try:
            if self._side is None:
                self._side = await SideJournal.start(self._disk, self._term(), self._takeover)
            elif full.entries:
                await self._side.append(full.entries)
            full.settle()
            await self._side.compact(self._takeover)
        except StorageFull as error:  # they are in memory, and in the next checkpoint
            full.settle(error)
        finally:
            full.settle(self._refusal())  # failed or cancelled: waiting callers get the error
            self._writing = Round()
        self._checkpointed = False
        self._unsaved.notify()

    async def _clean(self) -> None:
        """Remove the side journal once a master, which has its entries, serves in a later term.

        Not before that term is open: this broker itself may be the new master (`install_own`).
        """
        left_in = await SideJournal.epoch_left(self._disk)
        while True:
            async with self._lock:
                state = self._group.state.value
                if self._side is not None:
                    left_in = self._side.epoch
                over = state.mode is Mode.MASTER and not state.required_epoch
                over = over and left_in is not None and state.epoch > left_in
                if over and self._keeping is _Keeping.RETIRED:
                    await self._close_side(remove=True)
                    left_in = None
            await wait_any(self._group.changed, self._moved)

    async def _await_commit(self) -> None:
        while True:
            while self._appended and self._appended[0][0] <= self._commit.commit_end:
                self._appended.popleft()[1].settle()
            await (self._commit.changed if self._appended else self._moved).wait()

    async def _checkpoint(self) -> None:
        while True:
            while self._checkpointed or self._keeping is not _Keeping.TAKER:
                await self._unsaved.wait()
            await self._clock.sleep(self._settings.takeover_checkpoint_ms / 1000)
            if self._keeping is _Keeping.TAKER:
                self._checkpointed = True
                await self._save_checkpoint()

    async def checkpoint(self) -> None:
        """Save a checkpoint now, so that an orderly stop leaves the next reader all entries."""
        if self._keeping is _Keeping.TAKER:
            await self._save_checkpoint()

    async def _save_checkpoint(self) -> None:
        self._saves += 1
        number, epoch = self._saves, self._epoch
        record = await checkpoint_of(self._takeover, MAX_CHECKPOINT_CHARS)
        if record is None or number != self._saves:  # one started later holds more
            return
        me = BrokerId(self._settings.broker)

        def edit(state: GroupState) -> GroupState | None:
            is_reader = (state.mode, state.epoch, state.reader) == (Mode.SLAVE_CONSUME, epoch, me)
            return replace(state, offsets=record) if is_reader else None

        try:
            stands = await self._group.change(edit)
        except Unavailable as error:
            self._checkpointed = False  # again a moment later; the side journal has it
            _log.warning("takeover_checkpoint_failed", error=str(error))
            return
        if stands is None:
            _log.info("takeover_checkpoint_left", epoch=epoch, reason="no longer the reader")

    async def _let_go(self) -> None:
        """Empty the takeover record in the group state once no slave that may claim needs it."""
        epoch = Epoch(0)

        def is_left_over(state: GroupState) -> bool:
            return (state.mode, state.epoch) == (Mode.MASTER, epoch) and bool(state.offsets)

        while True:
            epoch = self._epoch
            if self._keeping is not _Keeping.MASTER or not is_left_over(self._group.state.value):
                await wait_any(self._moved, self._group.changed)
            elif self._commit.all_end < self._installed_end:
                await wait_any(self._moved, self._commit.changed)
            else:
                try:
                    await self._group.change(
                        lambda s: replace(s, offsets="") if is_left_over(s) else None
                    )
                except Unavailable:  # it may stay
                    await self._clock.sleep(self._settings.takeover_checkpoint_ms / 1000)

    async def _close_side(self, *, remove: bool) -> None:
        if self._side is not None:
            side, self._side = self._side, None
            await side.close()
        if remove:
            await SideJournal.remove(self._disk)
            self._takeover, self._taken_in = ProgressTable(), Epoch(0)
