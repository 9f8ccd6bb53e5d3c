"""Progress of consumer groups without members goes after `offsets_retention_ms`.

The master's duty. When a group last had members on a topic is in the journal, so that it survives
restarts and failovers: a tombstone under a number that no queue has (`PRESENCE_QUEUE`), whose time
is the moment. It is renewed each quarter of the retention while there are members; so a group is
without members for the whole retention at least when it goes. A group without such a note gets one:
its time begins then. Groups that nobody named (`TEMPORARY_QUEUE`) go after some minutes.

Nothing goes while the clock is in doubt, nor before a master has served for a while: members of a
group come back to a new master one after another.
Leaves on disk: OFFSETS batches.
"""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from fmqbroker.gate import Gate
from fmqbroker.group_table import GroupTable
from fmqbroker.journal import Journal
from fmqbroker.offset_store import OffsetStore
from fmqcore.errors import FmqError
from fmqcore.journal.offsets import OffsetKey, tombstone
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE
from fmqcore.words import Epoch, Permission, TopicId
from fmqport.clock import Clock

EVERY_S: Final = 60.0
"""Between two looks."""
TEMPORARY_MS: Final = 10 * 60 * 1000
"""A group that nobody named stays so long without members."""
_GRACE_MS: Final = 10 * 60 * 1000
"""A new master waits so long at most before anything goes."""
_AT_ONCE: Final = 5_000
"""Entries in one OFFSETS append."""
_SLICE: Final = 1_000
"""Entries between two turns of the loop."""

_log = structlog.get_logger()
_GroupKey = tuple[str, TopicId]


class IdleGroups:
    """What `run` does each minute."""

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        offsets: OffsetStore,
        groups: GroupTable,
        clock: Clock,
        retention_ms: int,
        clock_doubt: Callable[[], str] = lambda: "",
    ) -> None:
        self.forgotten = 0  # groups, counted once for each topic
        self._journal = journal
        self._gate = gate
        self._offsets = offsets
        self._groups = groups
        self._clock = clock
        self._retention_ms = retention_ms
        self._clock_doubt = clock_doubt
        self._epoch = Epoch(0)
        self._since_ms = 0  # master in `_epoch` since then, by the monotonic clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.look()

    async def look(self) -> int:
        """Note who has members, forget who had none for long; return the entries that went."""
        if not self._gate.permission() & Permission.WRITE:
            self._epoch = Epoch(0)
            return 0
        if self._epoch != self._gate.epoch:
            self._epoch, self._since_ms = self._gate.epoch, self._clock.monotonic_ms()
        if self._clock_doubt():
            return 0
        try:
            progress = await self._progress()
            unnoted, over = await self._sorted_out(progress)
            await self._note(unnoted)
            return await self._forget({key: progress[key] for key in over})
        except FmqError as error:
            _log.warning("idle_groups_not_forgotten", why=str(error))
            return 0

    async def _progress(self) -> dict[_GroupKey, list[OffsetKey]]:
        """Progress entries by group and topic."""
        found: dict[_GroupKey, list[OffsetKey]] = {}
        for number, (key, entry) in enumerate(list(self._journal.state.offsets.items()), 1):
            if not entry.deleted:
                found.setdefault((key.group, key.topic_id), []).append(key)
            if not number % _SLICE:
                await self._clock.sleep(0)
        return found

    async def _sorted_out(
        self, progress: Iterable[_GroupKey]
    ) -> tuple[list[_GroupKey], list[_GroupKey]]:
        """Groups whose note is to be written, and those whose time is over."""
        unnoted, over = [], []
        for number, key in enumerate(progress, 1):
            if self._is_to_be_noted(key):
                unnoted.append(key)
            elif self._is_over(key):
                over.append(key)
            if not number % _SLICE:
                await self._clock.sleep(0)
        return unnoted, over

    # ---- who has members
    def _is_to_be_noted(self, key: _GroupKey) -> bool:
        noted_ms = self._journal.state.present_ms(*key)
        if noted_ms is None:
            return True
        retention_ms = self._kept_ms(key)
        old = retention_ms and self._clock.wall_ms() - noted_ms >= retention_ms // 4
        return bool(old) and self._has_members(key)

    async def _note(self, keys: Iterable[_GroupKey]) -> None:
        notes = [OffsetKey(*key, self._note_queue(key)) for key in keys]
        for at in range(0, len(notes), _AT_ONCE):
            part = notes[at : at + _AT_ONCE]
            await self._offsets.put({k: tombstone(self._offsets.next_version(k)) for k in part})

    # ---- who goes
    async def _forget(self, progress: dict[_GroupKey, list[OffsetKey]]) -> int:
        gone: list[_GroupKey] = []
        keys: list[OffsetKey] = []
        for group, entries in progress.items():
            if len(keys) < _AT_ONCE and self._is_over(group):  # a member may have come
                self._groups.forget(*group)
                gone.append(group)
                keys += entries
        if not keys:
            return 0
        await self._offsets.put({k: tombstone(self._offsets.next_version(k)) for k in keys})
        self.forgotten += len(gone)
        some = [f"{name} on topic {topic_id}" for name, topic_id in sorted(gone)[:10]]
        _log.info("idle_groups_forgotten", groups=len(gone), entries=len(keys), names=some)
        return len(keys)

    def _is_over(self, key: _GroupKey) -> bool:
        noted_ms, retention_ms = self._journal.state.present_ms(*key), self._kept_ms(key)
        if noted_ms is None or not retention_ms or self._has_members(key):
            return False
        if self._clock.monotonic_ms() - self._since_ms < min(_GRACE_MS, retention_ms):
            return False
        return self._clock.wall_ms() - noted_ms > retention_ms + retention_ms // 4

    def _has_members(self, key: _GroupKey) -> bool:
        live = self._groups.get(*key)
        return live is not None and bool(live.sessions)

    def _kept_ms(self, key: _GroupKey) -> int:
        """0: for ever."""
        return TEMPORARY_MS if self._is_temporary(key) else self._retention_ms

    def _note_queue(self, key: _GroupKey) -> int:
        return TEMPORARY_QUEUE if self._is_temporary(key) else PRESENCE_QUEUE

    def _is_temporary(self, key: _GroupKey) -> bool:
        return self._journal.state.is_temporary(*key)
