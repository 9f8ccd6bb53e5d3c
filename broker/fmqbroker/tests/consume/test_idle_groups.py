"""Progress of memberless groups is removed after its retention, and no other progress."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.consume.idle_groups import EVERY_S, TEMPORARY_MS, IdleGroups
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.tests.consume_harness import Rig, consuming, key, running, until
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.ids import Offset, Permission, TopicId
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE, TOMBSTONE_MS, JournalState

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
ENTRY = OffsetEntry(1, Offset(3))


class Days(SystemClock):
    """Wall and monotonic clock advance together, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


class World(Rig):
    """A rig whose journal runs on that clock."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.days = self.clock = Days()
        self.doubt: str | None = None

    def duty(self) -> IdleGroups:
        groups, retention_ms = self.fetch.groups, self.settings.offsets_retention_ms
        return IdleGroups(
            self.journal, self.gate, self.offsets, groups, self.clock, retention_ms,
            lambda: self.doubt,
        )  # fmt: skip

    async def live(self, duty: IdleGroups, days: float) -> int:
        """Look every half day; return the removed entries."""
        went = 0
        for _ in range(round(2 * days)):
            self.days.ahead_ms += DAY_MS // 2
            self.permit(Permission.FULL)
            went += await duty.check_once()
        return went


async def test_memberless_group_is_removed_after_its_retention(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await rig.offsets.put({key(0): ENTRY, key(1): ENTRY})
        await duty.check_once()  # its time starts
        assert await rig.live(duty, 7) == 0
        assert rig.journal.state.progress(key(0)) == ENTRY
        assert await rig.live(duty, 2) == 2
        state = rig.journal.state
        assert state.progress(key(0)) is None
        assert duty.forgotten == 1
        later = JournalState.from_snap(state.to_snap(rig.clock.wall_ms() + 10 * DAY_MS))
        assert not later.offsets, "neither tombstones nor notes stay"


async def test_progress_stored_during_the_check_goes_with_its_group(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        await rig.offsets.put({key(0): ENTRY})
        await duty.check_once()
        assert await rig.live(duty, 7) == 0

        async def late(keys: Iterable[tuple[str, TopicId]]) -> None:
            if any(keys):
                await rig.offsets.put({key(1): ENTRY})

        duty._leave_chains = late  # type: ignore[method-assign]
        assert await rig.live(duty, 2) == 2
        assert rig.journal.state.progress(key(1)) is None


async def test_a_group_with_members_stays_idle_or_not(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig), consuming(rig, "a") as consumer:
        await until(lambda: len(consumer.held) == 4)
        duty = rig.duty()
        await until(lambda: rig.journal.state.progress(key(0)))
        assert await rig.live(duty, 30) == 0
        assert rig.journal.state.progress(key(0))


async def test_the_note_survives_snap_and_restart(tmp_path: Path) -> None:
    """With a restart each day, the time without members still counts."""
    rig = World(tmp_path)
    async with running(rig):
        await rig.offsets.put({key(0): ENTRY})
        await rig.duty().check_once()
    went = 0
    for day in range(1, 11):
        ahead_ms = rig.days.ahead_ms
        rig = World(tmp_path)
        rig.days.ahead_ms = ahead_ms
        async with running(rig, epoch=day + 1):
            rig.permit(Permission.FULL, day + 1)
            duty = rig.duty()
            for _ in range(2):
                rig.days.ahead_ms += DAY_MS // 2
                rig.permit(Permission.FULL, day + 1)
                went += await duty.check_once()
    assert went == 1


def test_notes_stay_in_snap_while_there_is_progress() -> None:
    state, at_ms = JournalState(), 10**12
    note = key(0)._replace(queue_id=PRESENCE_QUEUE)
    state.offsets = ProgressTable({key(0): ENTRY, note: tombstone(2)})
    state.deleted_ms = {note: at_ms}
    kept = JournalState.from_snap(state.to_snap(at_ms + 100 * TOMBSTONE_MS))
    assert kept.present_ms(note.group, note.topic_id) == at_ms
    del state.offsets[key(0)]
    gone = JournalState.from_snap(state.to_snap(at_ms + 100 * TOMBSTONE_MS))
    assert gone.present_ms(note.group, note.topic_id) is None


@pytest.mark.parametrize("reason", ["for ever", "clock in doubt", "a slave"])
async def test_progress_stays(tmp_path: Path, reason: str) -> None:
    retention_ms = 0 if reason == "for ever" else WEEK_MS
    rig = World(tmp_path, offsets_retention_ms=retention_ms)
    async with running(rig):
        duty = rig.duty()
        await rig.offsets.put({key(0): ENTRY})
        await duty.check_once()
        rig.doubt = "it jumped" if reason == "clock in doubt" else None
        for _ in range(40):
            rig.days.ahead_ms += DAY_MS
            rig.permit(Permission.READ if reason == "a slave" else Permission.FULL)
            assert await duty.check_once() == 0
        assert rig.journal.state.progress(key(0)) == ENTRY


async def test_a_new_master_waits_for_members_to_come_back(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        await rig.offsets.put({key(0): ENTRY})
        await rig.duty().check_once()
        rig.days.ahead_ms += 30 * DAY_MS
        rig.permit(Permission.FULL)
        duty = rig.duty()
        assert await duty.check_once() == 0
        async with consuming(rig, "a") as consumer:
            await until(lambda: len(consumer.held) == 4)
            rig.days.ahead_ms += HOUR_MS
            rig.permit(Permission.FULL)
            assert await duty.check_once() == 0
        await until(lambda: not rig.fetch.groups.get(key(0).group, key(0).topic_id).sessions)  # type: ignore[union-attr]
        assert await rig.live(duty, 7) == 0, "seen with members an hour ago"


async def test_a_member_that_joins_during_a_check_keeps_the_progress(tmp_path: Path) -> None:
    """It joins after the idle groups were found, while the notes of other groups are written."""
    rig = World(tmp_path)
    async with running(rig), AsyncExitStack() as stack:
        await rig.offsets.put({key(0): ENTRY})
        duty = rig.duty()
        await duty.check_once()
        rig.days.ahead_ms += 30 * DAY_MS
        rig.permit(Permission.FULL)
        await rig.offsets.put({OffsetKey("new", key(0).topic_id, 0): ENTRY})
        put = rig.offsets.put

        async def put_with_a_member(entries: Any) -> None:
            rig.offsets.put = put  # type: ignore[method-assign]
            consumer = await stack.enter_async_context(consuming(rig, "a"))
            await until(lambda: len(consumer.held) == 4)
            await put(entries)

        rig.offsets.put = put_with_a_member  # type: ignore[method-assign]
        assert await duty.check_once() == 0
        assert rig.journal.state.progress(key(0))


async def test_idle_temporary_group_is_removed_soon(tmp_path: Path) -> None:
    rig = World(tmp_path, offsets_retention_ms=0)
    async with running(rig):
        note = key(0)._replace(queue_id=TEMPORARY_QUEUE)
        named = OffsetKey("named", key(0).topic_id, 0)
        await rig.offsets.put({key(0): ENTRY, named: ENTRY, note: tombstone(1)})
        duty = rig.duty()
        went = 0
        for _ in range(round(2 * TEMPORARY_MS / 1000 / EVERY_S)):
            went += await duty.check_once()
            rig.days.ahead_ms += round(EVERY_S * 1000)
            rig.permit(Permission.FULL)
        assert went == 1
        assert rig.journal.state.progress(named) == ENTRY


async def put_directly(journal: Journal, entries: dict[OffsetKey, OffsetEntry]) -> None:
    payload = encode_offsets(entries)
    journal.append(BatchDraft(BatchType.OFFSETS, payload, crc32c(payload)))


async def test_a_new_group_is_refused_where_no_room_is_left(tmp_path: Path) -> None:
    rig = World(tmp_path)
    async with running(rig):
        table = {OffsetKey(f"service-{n}", key(0).topic_id, 0): ENTRY for n in range(4000)}
        await put_directly(rig.journal, table)
        assert rig.journal.state.progress_bytes < rig.fetch.groups.state_limits.progress_room
        async with consuming(rig, "a") as consumer:
            await until(lambda: len(consumer.held) == 4)
        more = {OffsetKey(f"other-{n}", key(0).topic_id, 0): ENTRY for n in range(3000)}
        await put_directly(rig.journal, more)
        async with consuming(rig, "b", group="new") as consumer:
            await until(lambda: consumer.opened is not None)
            assert consumer.opened is not None
            assert "cannot begin on topic orders" in consumer.opened.error.message
        async with consuming(rig, "a") as consumer:
            await until(lambda: len(consumer.held) == 4, "a group with progress goes on")


async def test_notes_of_the_future_are_made_again(tmp_path: Path) -> None:
    """A clock that was ahead when a group was noted does not keep it until that moment."""
    rig = World(tmp_path)
    async with running(rig):
        duty = rig.duty()
        rig.days.ahead_ms += 300 * DAY_MS
        await rig.offsets.put({key(0): ENTRY})
        await duty.check_once()
        rig.days.ahead_ms -= 300 * DAY_MS
        end = rig.journal.end
        await duty.check_once()
        assert rig.journal.end == end, "a note would have the same time"
        rig.journal._head._last_ms = rig.clock.wall_ms()
        await duty.check_once()
        noted_ms = rig.journal.state.present_ms("billing", key(0).topic_id)
        assert noted_ms is not None
        assert noted_ms <= rig.clock.wall_ms()
