"""Delete the progress of consumer groups without members after `offsets_retention_ms`.

Only the master does this. The time when a group last had members on a topic is in the journal, so
that it survives restarts and failovers: it is the time of a tombstone under a number that no queue
has (`PRESENCE_QUEUE`). This note is renewed each quarter of the retention while there are members,
so a deleted group was without members for at least the whole retention. A group without a note gets
one, and its time starts then. Unnamed groups (`TEMPORARY_QUEUE`) are deleted after some minutes.

Nothing is deleted while the clock is in doubt, nor before a master has served for a while: members
of a group come back to a new master one after another. Written to the journal: OFFSETS batches.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.registry import GroupTable
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.slices import Slices
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetKey, tombstone
from fmqcore.clocks import FUTURE_MS
from fmqcore.errors import FmqError
from fmqcore.ids import Epoch, Permission, TopicId
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE
from fmqport.clock import Clock

EVERY_S: Final = 60.0
"""Interval between two checks."""
TEMPORARY_MS: Final = 10 * 60 * 1000
"""Time for which an unnamed group is kept without members."""
_GRACE_MS: Final = 10 * 60 * 1000
"""Maximum time that a new master waits before it deletes anything."""
_AT_ONCE: Final = 5_000
"""Maximum entries deleted in one check, plus the rest of the last group."""
_A_WRITE: Final = 500
"""Maximum entries in one write and one turn of the event loop, plus the rest of the last group."""
_QUEUES_A_STEP: Final = 8

_log = structlog.get_logger()
_GroupKey = tuple[str, TopicId]


class IdleGroups:
    """The check for idle consumer groups, which `run` makes each minute."""

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        offsets: OffsetStore,
        groups: GroupTable,
        clock: Clock,
        retention_ms: int,
        clock_doubt: Callable[[], str | None] = lambda: None,
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
        """Check every `EVERY_S` seconds until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.check_once()

    async def check_once(self) -> int:
        """Note groups with members, delete long idle ones; return the number of entries deleted."""
        if not self._gate.permission() & Permission.WRITE:
            self._epoch = Epoch(0)
            return 0
        if self._epoch != self._gate.epoch:
            self._epoch, self._since_ms = self._gate.epoch, self._clock.monotonic_ms()
        if self._clock_doubt() is not None:
            return 0
        try:
            unnoted, over = await self._sorted_out(await self._with_progress())
            await self._note(unnoted)
            await self._leave_chains(over)
            return await self._forget(over)
        except FmqError as error:
            _log.warning("idle_groups_not_forgotten", reason=str(error))
            return 0

    async def _with_progress(self) -> list[_GroupKey]:
        """Return the groups that have progress, by topic; not their keys, which are many."""
        slices, found = Slices(), list[_GroupKey]()
        for topic_id in self._journal.state.offsets.topics():
            for group in list(self._journal.state.offsets.groups_in(topic_id)):
                queues = len(self._journal.state.offsets.queues_of(group, topic_id))
                if any(self._keys((group, topic_id))):
                    found.append((group, topic_id))
                await slices.step(1 + queues // _QUEUES_A_STEP)
        return found

    def _keys(self, of: _GroupKey) -> Iterator[OffsetKey]:
        """Yield the keys of the group's stored progress; nothing may change meanwhile."""
        table = self._journal.state.offsets
        keys = (OffsetKey(*of, queue) for queue in table.queues_of(*of))
        return (key for key in keys if not table[key].deleted)

    async def _sorted_out(
        self, progress: Iterable[_GroupKey]
    ) -> tuple[list[_GroupKey], list[_GroupKey]]:
        """Return the groups whose note must be written, and those whose time is over."""
        slices, unnoted, over = Slices(), list[_GroupKey](), list[_GroupKey]()
        for key in progress:
            if self._is_to_be_noted(key):
                unnoted.append(key)
            elif self._is_over(key):
                over.append(key)
            await slices.step()
        return unnoted, over

    # ---- noting groups with members
    def _is_to_be_noted(self, key: _GroupKey) -> bool:
        noted_ms = self._journal.state.present_ms(*key)
        if noted_ms is None:
            return True
        retention_ms, now_ms = self._kept_ms(key), self._clock.wall_ms()
        if noted_ms > now_ms + FUTURE_MS >= self._journal.last_ms:
            return True  # with a clock that was ahead; new notes have the right time
        old = retention_ms and now_ms - noted_ms >= retention_ms // 4
        return bool(old) and self._has_members(key)

    async def _note(self, keys: Iterable[_GroupKey]) -> None:
        waiting = list(keys)
        for at in range(0, len(waiting), _A_WRITE):
            part = waiting[at : at + _A_WRITE]  # its kind is asked now: it may have started again
            await self._store_tombstones([OffsetKey(*key, self._note_queue(key)) for key in part])

    async def _store_tombstones(self, keys: list[OffsetKey]) -> None:
        versions = self._offsets.next_versions(keys)
        await self._offsets.put({key: tombstone(version) for key, version in versions.items()})

    # ---- deleting idle groups
    async def _leave_chains(self, keys: Iterable[_GroupKey]) -> None:
        """Take groups out of the chains of ordered topics, before their progress is deleted.

        A session that joins now opens again (`subscriptions.py`): it has lost its place.
        """
        chains = self._groups.chains
        if chains is None:
            return
        for name, topic_id in keys:
            chain = chains.of(topic_id)
            in_chain = chain is not None and chain.heads_of(name) is not None
            if chain is not None and in_chain and self._is_over((name, topic_id)):
                await chains.remove(name, chain.topic)
                _log.info("idle_group_left_chain", group=name, topic=chain.topic)

    async def _forget(self, over: Iterable[_GroupKey]) -> int:
        waiting, gone, entries = deque(over), list[_GroupKey](), 0
        while waiting and entries < _AT_ONCE:
            keys: list[OffsetKey] = []
            # Checked and forgotten in one turn of the loop: a session must not join in between.
            while waiting and len(keys) < _A_WRITE:
                group = waiting.popleft()
                of_group = list(self._keys(group)) if self._is_over(group) else []
                if of_group:  # else it has members, or was deleted meanwhile
                    self._groups.forget(*group)
                    gone.append(group)
                    keys += of_group
            if keys:
                await self._store_tombstones(keys)
                entries += len(keys)
        if gone:
            self.forgotten += len(gone)
            names = [f"{name} on topic {topic_id}" for name, topic_id in sorted(gone)[:10]]
            _log.info("idle_groups_forgotten", groups=len(gone), entries=entries, names=names)
        return entries

    def _is_over(self, key: _GroupKey) -> bool:
        """Return whether the group has been idle for too long now (C7)."""
        noted_ms, retention_ms = self._journal.state.present_ms(*key), self._kept_ms(key)
        if noted_ms is None or not retention_ms or self._has_members(key):
            return False
        if self._clock.monotonic_ms() - self._since_ms < min(_GRACE_MS, retention_ms):
            return False
        chains = self._groups.chains
        if chains is not None and not chains.may_expire(*key):
            return False
        return self._clock.wall_ms() - noted_ms > retention_ms + retention_ms // 4

    def _has_members(self, key: _GroupKey) -> bool:
        live = self._groups.get(*key)
        return live is not None and bool(live.sessions)

    def _kept_ms(self, key: _GroupKey) -> int:
        """Return how long a group is kept without members; 0 = for ever."""
        return TEMPORARY_MS if self._is_temporary(key) else self._retention_ms

    def _note_queue(self, key: _GroupKey) -> int:
        return TEMPORARY_QUEUE if self._is_temporary(key) else PRESENCE_QUEUE

    def _is_temporary(self, key: _GroupKey) -> bool:
        return self._offsets.is_temporary(*key)
