"""The chains of this broker's group, and of topics that others follow, as they were read last.

Which chains concern the group follows from the topics: a group that left a chain keeps its queues
in the topic. Each chain's node is watched, also before it exists. So an idle topic costs nothing,
and a change costs one read. `read` returns the chain as it is now.

A cached chain is never replaced by an older one: the reads and writes of one chain take turns.
Writes chains by compare-and-set (`ChainNodes`).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Final

import structlog

from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.cluster.view import ClusterView
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.slices import Slices
from fmqcore.errors import Malformed, Unavailable
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.evidence import SenderReport
from fmqcore.zk.chain import NO_TOPIC, Chain
from fmqcore.zk.codec import Versioned
from fmqport.coordination import BadVersion

_log = structlog.get_logger()

_AT_ONCE: Final = 32
"""Reads under way at the same time."""
_RETRY_S: Final = 1.0
"""Seconds after a failed read until the next try, if no watch fires before."""


class _Entry:
    """One watched topic name: its chain, if it has one, and its users."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.lock = asyncio.Lock()  # one read or write at a time: what is cached never goes back
        self.stored: Versioned[Chain] | None = None
        self.own: TopicId = NO_TOPIC  # the number of the topic with queues in this group
        self.followers: set[object] = set()
        self.complaint = ""  # why the node's newest data does not decode; "" = it does


class ChainCache:
    """Cached and watched; may be stale, by far if ZooKeeper is away."""

    changed: Signal  # a cached chain was replaced, came or went

    def __init__(self, nodes: ChainNodes, view: ClusterView, group: GroupName) -> None:
        self.changed = Signal()
        self._nodes = nodes
        self._view = view
        self._group = group
        self._entries: dict[str, _Entry] = {}
        self._by_id: dict[TopicId, str] = {}  # of each cached chain: its name
        self._callbacks: dict[Callable[[TopicId], None], None] = {}
        self._callbacks_of: dict[TopicId, dict[object, Callable[[], None]]] = {}
        self._dirty: dict[str, None] = {}  # to be read, in the order in which watches fired
        self._fired = Signal()

    # ---- what is known
    def of(self, topic_id: int) -> Chain | None:
        """Return the topic's chain as read last; None if none is cached."""
        found = self.stored_of(topic_id)
        return None if found is None else found.value

    def version_of(self, topic_id: int) -> int:
        """Return the version of the node that `of` shows; -1 if none is cached."""
        found = self.stored_of(topic_id)
        return -1 if found is None else found.version

    def stored_of(self, topic_id: int) -> Versioned[Chain] | None:
        """Return the topic's chain with its version, as `edit` takes it; None if none is cached."""
        name = self._by_id.get(TopicId(topic_id))
        return None if name is None else self._entries[name].stored

    def topics(self) -> Iterator[Chain]:
        """Yield the chains of all topics that have queues in this broker's group."""
        for entry in list(self._entries.values()):
            if entry.stored is not None and entry.own == entry.stored.value.topic_id:
                yield entry.stored.value

    def cached(self) -> Iterator[Chain]:
        """Yield all cached chains, also of topics that are followed only."""
        for entry in list(self._entries.values()):
            if entry.stored is not None:
                yield entry.stored.value

    def is_outdated(self, topic_id: int) -> bool:
        """Return whether the node has a newer chain, which does not decode."""
        name = self._by_id.get(TopicId(topic_id))
        return name is not None and bool(self._entries[name].complaint)

    def is_unknown(self, topic_id: int) -> bool:
        """Return whether the topic is ordered and its newest chain was not read or decoded.

        Nothing may be concluded then from what the cached chain, if any, does not have.
        """
        topic = self._view.topics_by_id.get(TopicId(topic_id))
        if topic is None or not topic.ordered:
            return False
        return self.of(topic_id) is None or self.is_outdated(topic_id)

    def on_changed(self, callback: Callable[[TopicId], None]) -> Callable[[], None]:
        """Call `callback` with the number of each topic whose chain changes, before `changed`.

        So a reader of one topic among thousands does not walk through all. Returns what stops it.
        """
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None)

    def on_change_of(self, topic: TopicId, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` when the chain of that topic changes, before `changed`.

        Returns what stops it.
        """
        follower = object()
        self._callbacks_of.setdefault(topic, {})[follower] = notify

        def stop() -> None:
            followers = self._callbacks_of.get(topic, {})
            followers.pop(follower, None)
            if not followers:
                self._callbacks_of.pop(topic, None)

        return stop

    # ---- now
    async def read(self, name: str) -> Versioned[Chain]:
        """Return the chain as it is now, and cache it if it is watched.

        Raises `UnknownTopic`, `InvalidArgument` (not ordered), `NotFound`, `Malformed`,
        `Unavailable`.
        """
        entry = self._entries.get(name)
        if entry is None:
            return await self._nodes.read(await self._nodes.topic(name))
        async with entry.lock:
            stored = await self._stored(name, entry)
            self._adopt(name, entry, stored)
        topic = self._view.topics.get(name)
        if stored is None or topic is None or stored.value.topic_id != topic.id:
            return await self._nodes.read(await self._nodes.topic(name))  # for its error
        return stored

    async def read_all(self, names: Iterable[str]) -> None:
        """Read these chains as they are now, many at a time. Raises `Unavailable`.

        One that does not decode, or is gone, does not hinder the others: its error is logged.
        """
        read = [name for name in names if name in self._entries]
        if failed := await self._read_many(read):
            raise Unavailable(f"the chain of topic {failed[0]} could not be read from ZooKeeper")

    async def report(self, chain: Chain, places: Iterable[str]) -> SenderReport | None:
        """Return the report in the active sender's nodes: see `ChainNodes.report`."""
        return await self._nodes.report(chain, places)

    async def edit(self, before: Versioned[Chain], edit: Chain) -> bool:
        """Replace `before` by `edit`: one compare-and-set; return whether it certainly stands.

        A closing also raises the version of `groups/<g>/chains`, in the same transaction. After
        False (another change came first, or no answer) read the chain and decide again.
        """
        name = edit.topic
        entry = self._entries.get(name)
        async with entry.lock if entry is not None else nullcontext():
            try:
                stored = await self._nodes.write(before, edit)
            except (BadVersion, Unavailable):
                self._request_read(name)
                return False
            if entry is not None:
                self._adopt(name, entry, stored)
        return True

    # ---- following
    def follow(self, name: str) -> Callable[[], None]:
        """Watch and cache the chain of any topic; return a function that stops it."""
        entry = self._entry(name)
        follower = object()
        entry.followers.add(follower)

        def stop() -> None:
            entry.followers.discard(follower)
            self._forget_unneeded(name, entry)

        return stop

    async def load(self) -> None:
        """Read the group's chains for the first time. Raises `Unavailable`."""
        await self._keep_own()
        failed = await self._read_many(list(self._entries))
        if failed:
            raise Unavailable(f"the chain of topic {failed[0]} could not be read from ZooKeeper")

    async def run(self) -> None:
        """Follow the topics and the watches until cancelled."""
        try:
            while True:
                seen, fired = self._view.changed.count, self._fired.count
                await self._keep_own()
                dirty, self._dirty = self._dirty, {}
                failed = await self._read_many([n for n in dirty if n in self._entries])
                self._dirty |= dict.fromkeys(failed)
                if (seen, fired) == (self._view.changed.count, self._fired.count):
                    rest_s = _RETRY_S if failed else None
                    await wait_any(self._view.changed, self._fired, timeout_s=rest_s)
        finally:
            for entry in self._entries.values():
                entry.stop()

    # ---- inside
    async def _keep_own(self) -> None:
        """Give each ordered topic of the group an entry; let go of the others."""
        own: dict[str, TopicId] = {}
        slices = Slices()
        for topic in list(self._view.topics.values()):
            if topic.ordered and topic.queues_in(self._group):
                own[topic.name] = topic.id
            await slices.step()
        for name, number in own.items():
            entry = self._entry(name)
            if entry.own != number:
                entry.own = number
                self._request_read(name)
            await slices.step()
        for name, entry in list(self._entries.items()):
            if entry.own and name not in own:
                entry.own = NO_TOPIC
                self._forget_unneeded(name, entry)
            await slices.step()

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            stop = self._nodes.watch(name, partial(self._request_read, name))
            entry = self._entries[name] = _Entry(stop)
            self._request_read(name)
        return entry

    def _forget_unneeded(self, name: str, entry: _Entry) -> None:
        if not entry.own and not entry.followers and self._entries.get(name) is entry:
            entry.stop()
            self._adopt(name, entry, None)
            del self._entries[name]

    def _request_read(self, name: str) -> None:
        self._dirty[name] = None
        self._fired.notify()

    async def _read_many(self, names: list[str]) -> list[str]:
        """Read these entries; return the names of those that got no answer."""
        failed: list[str] = []
        for first in range(0, len(names), _AT_ONCE):
            part = names[first : first + _AT_ONCE]
            answered = await asyncio.gather(*map(self._read_one, part))
            failed += [name for name, ok in zip(part, answered, strict=True) if not ok]
        return failed

    async def _read_one(self, name: str) -> bool:
        entry = self._entries.get(name)
        if entry is None:
            return True
        async with entry.lock:
            try:
                stored = await self._stored(name, entry)
            except Unavailable:
                return False
            except Malformed:  # logged
                return True
            self._adopt(name, entry, stored)
        return True

    async def _stored(self, name: str, entry: _Entry) -> Versioned[Chain] | None:
        """Read the node; note whether it decodes. Raises `Malformed`, `Unavailable`."""
        try:
            stored = await self._nodes.stored(name)
        except Malformed as error:
            if entry.complaint != str(error):
                entry.complaint = str(error)
                _log.error("chain_malformed", topic=name, error=str(error))
            raise
        entry.complaint = ""
        return stored

    def _adopt(self, name: str, entry: _Entry, stored: Versioned[Chain] | None) -> None:
        """Put what was read into the cache, under the entry's lock."""
        before = entry.stored
        if before == stored or (stored is not None and self._entries.get(name) is not entry):
            return
        entry.stored = stored
        if before is not None:
            self._by_id.pop(before.value.topic_id, None)
        if stored is not None:
            self._by_id[stored.value.topic_id] = name
        for number in {s.value.topic_id for s in (before, stored) if s is not None}:
            for callback in list(self._callbacks):
                callback(number)
            for notify in list(self._callbacks_of.get(number, {}).values()):
                notify()
        self.changed.notify()
