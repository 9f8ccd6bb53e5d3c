"""A producer's view of one topic: queue buffers, and ordered moves between groups. No I/O.

Records of one key that end up in one queue are there in the order in which they were handed in,
although groups come and go and batches are refused (L6). For that, a key's records that might still
move are always in one queue buffer. When the groups among which keys are spread change (`remap`),
nothing new is sent for a moment. The batches in flight from queue buffers that lose keys are
awaited: each is stored, refused, or has an unknown outcome and stays there for good. Then all that
was not sent is placed again, in the order in which it was handed in. A batch that is unknown, or
not answered in `HOLD_MS`, *stays*: if it is refused later, its records are placed again except
those of keys of which later records were placed since. These go to their own queue buffer only.
"""

from collections.abc import Callable, Iterable
from typing import Final

from fmqclient.producer.batches import InFlightBatch, PendingBatch, Record
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqcore.ids import GroupName
from fmqcore.placement import Place, PlacementsOf, standard_placements
from fmqcore.zk.topic import TopicConfig

KEYS_REMEMBERED: Final = 100_000
"""Keys per topic whose queue buffer is remembered, so that they are hashed once."""
HOLD_MS: Final = 300
_LOOK_AHEAD: Final = 8  # places to pass over, at most, because something is under way there

Unrouted = tuple[Record, GroupName | None, int | None]


class Topic:
    """Queue buffers of one topic. `mapping`: the groups among which records are spread now."""

    __slots__ = (
        "_awaited",
        "_held_until_ms",
        "_new_buffer",
        "_placements_of",
        "_staying",
        "buffers",
        "by_key",
        "config",
        "held",
        "mapping",
        "name",
        "placements",
        "sticky",
        "unrouted",
    )

    def __init__(
        self,
        name: str,
        new_buffer: Callable[["Topic", Place], QueueBuffer],
        placements_of: PlacementsOf = standard_placements,
    ) -> None:
        self.name = name
        self.config: TopicConfig | None = None  # None: the routes have not been asked yet
        self.mapping: frozenset[GroupName] = frozenset()
        self.placements = placements_of((), 0)
        self.buffers: dict[Place, QueueBuffer] = {}
        self.by_key: dict[bytes, QueueBuffer] = {}
        self.sticky: QueueBuffer | None = None  # takes what has no key, until it is sent
        self.unrouted: list[Unrouted] = []
        self.held = False  # nothing new is sent until what is awaited is answered
        self._awaited: list[InFlightBatch] = []
        self._held_until_ms = 0
        self._staying: list[InFlightBatch] = []  # those whose `free_keys` are kept up to date
        self._new_buffer = new_buffer
        self._placements_of = placements_of

    # ---- placing

    def buffer_for(self, key: bytes) -> QueueBuffer | None:
        """Return a record's queue buffer. None: no group takes it, or none is known yet."""
        if key:
            return self.by_key.get(key) or self.buffer_for_key(key)
        sticky = self.sticky
        return sticky if sticky is not None and sticky.open is not None else self.next_buffer()

    def buffer_for_key(self, key: bytes) -> QueueBuffer | None:
        """Return the queue buffer of a key that is not remembered."""
        place = self.placements.keyed.place(key, self.mapping)
        if place is None:
            return None
        if len(self.by_key) >= KEYS_REMEMBERED:
            self.by_key.clear()
        buffer = self.by_key[key] = self.buffer(place)
        self.note_placed(key)
        return buffer

    def note_placed(self, key: bytes) -> None:
        """Note that a key has a queue now: its earlier records must not move to another queue.

        Batches that stay with their group keep the set of keys that may still move (`free_keys`).
        Called at least for the first record of a key after a batch started to stay.
        """
        if self._staying and key:
            self._staying = [batch for batch in self._staying if batch.tracked]
            for batch in self._staying:
                batch.free_keys.discard(key)

    def next_buffer(self) -> QueueBuffer | None:
        """Return the next queue buffer for records without a key; prefer an idle one."""
        buffer: QueueBuffer | None = None
        for _ in range(_LOOK_AHEAD):
            place = self.placements.keyless.place(b"", self.mapping)
            if place is None:
                return None
            buffer = self.buffer(place)
            if not buffer.in_flight:
                break
        self.sticky = buffer
        return buffer

    def buffer(self, place: Place) -> QueueBuffer:
        """Return the queue buffer of a place, created if need be."""
        buffer = self.buffers.get(place)
        if buffer is None:
            buffer = self.buffers[place] = self._new_buffer(self, place)
        return buffer

    # ---- moving

    def set_config(
        self, config: TopicConfig, start: int, usable: Iterable[GroupName], now_ms: int
    ) -> None:
        """Take the topic's groups and queues, for the first time or changed."""
        self.config = config
        self.placements = self._placements_of(config.groups, start)
        before, self.mapping = self.mapping, self._wanted(usable)
        self._hold(before, now_ms)

    def remap(self, usable: Iterable[GroupName], now_ms: int) -> None:
        """Take the groups that are usable now."""
        after = self._wanted(usable)
        if after == self.mapping:
            return
        before, self.mapping = self.mapping, after
        # Keys leave the groups that went away; if groups came, keys may leave any.
        self._hold(before if after - before else before - after, now_ms)

    def place_again(self) -> None:
        """Place again, at the next `lift`, what was not sent: it may go to other groups now."""
        self.held = True

    def lift(self, now_ms: int) -> "list[tuple[Record, PendingBatch, QueueBuffer | None]] | None":
        """Return what must be placed again, in order. None: not yet, or not at all.

        Each record comes with its batch so far (its deadline, its time of birth), and the queue
        buffer to which it is pinned, if any.
        """
        if not self.held:
            return None
        self._awaited = [f for f in self._awaited if not f.over]
        if now_ms < self._held_until_ms and not all(f.unknown for f in self._awaited):
            return None
        for batch in self._awaited:
            batch.stay()
            for key in batch.free_keys:
                self.by_key.pop(key, None)
        before = [b for b in self._staying if b.tracked and b not in self._awaited]
        self._staying = before + self._awaited
        self._awaited = []
        self.held = False
        moved = [
            (record, pending_batch, buffer if record[5] else None)
            for buffer in self.buffers.values()
            for pending_batch in buffer.take_unsent()
            for record in pending_batch.records
        ]
        moved.sort(key=lambda entry: entry[0][6])
        return moved

    def _wanted(self, usable: Iterable[GroupName]) -> frozenset[GroupName]:
        assert self.config is not None, "a topic is mapped when it is known"
        groups = frozenset(g.group for g in self.config.groups if g.weight > 0 and g.queues > 0)
        return groups & frozenset(usable) or groups

    def _hold(self, leaving: Iterable[GroupName], now_ms: int) -> None:
        self.by_key.clear()
        self.sticky = None
        groups = set(leaving)
        in_flight = [
            f for p, buffer in self.buffers.items() if p[0] in groups for f in buffer.in_flight
        ]
        self._awaited += [f for f in in_flight if f not in self._awaited]
        self.held = True
        self._held_until_ms = now_ms + HOLD_MS
