"""Removes a broker group whose messages are all consumed (`fmq cluster remove-group`).

    weight 0 in its topics → read to the end → READ only → read to the end → removed from its topics
        → its brokers stop → its nodes are deleted

ZooKeeper holds the progress (`Removal` in the group's configuration), and each step can be
repeated, so that the same command goes on wherever it was interrupted. It reads to the end twice: a
producer may not know the new weights yet; a broker without WRITE stores nothing of any producer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fmqcli.cluster_registry import Changed, Registry
from fmqcli.common import client, counted, talk
from fmqclient.address import SCHEME
from fmqclient.admin.infos import QueueOffsets
from fmqclient.admin.lag import to_read
from fmqcore.errors import InvalidArgument, NotFound, Unavailable
from fmqcore.ids import GroupName, Permission
from fmqcore.ordered.requests import give_up_group, group_in_use
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Removal
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_changes import closed, without

if TYPE_CHECKING:
    from fmqclient.admin.client import Admin

_POLL_S: Final = 0.3
_NAMED: Final = 5
"""Topics and consumer groups named in one sentence, at most."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The unread messages of a consumer group ("": none ever read) in a topic of the group."""

    topic: str
    consumers: str
    messages: int
    has_members: bool

    def __str__(self) -> str:
        count = counted(self.messages, "message")
        if not self.consumers:
            return f"topic {self.topic} has {count} that no consumer group has read"
        members = "" if self.has_members else ", and no member"
        return f"consumer group {self.consumers} has {count} to read of topic {self.topic}{members}"


def unread_of(topic: TopicConfig, group: GroupName, rows: Sequence[QueueOffsets]) -> list[Unread]:
    """Return what is not consumed in a broker group, by the topic's rows in all groups.

    A consumer group that reads the topic elsewhere has all to read in a queue where it has no row.
    Raises `Unavailable` if a queue has no row at all.
    """
    here = [row for row in rows if row.broker_group == group]
    reported = {row.queue for row in here}
    if missing := sorted(set(range(topic.queues_in(group))) - reported):
        raise Unavailable(
            f"group {group} does not report queue {missing[0]} of topic {topic.name} yet: try again"
        )
    unread = []
    for consumers in sorted({row.group for row in rows if row.group}) or [""]:
        found = to_read(consumers, here).values()
        if messages := sum(row.lag for row in found):
            has_members = any(row.session for row in found)
            unread.append(Unread(topic.name, consumers, messages, has_members))
    return unread


class GroupRemoval:
    """One run of the command. `drain`, then, once a person has agreed, `finish`."""

    def __init__(
        self, groups: Registry, name: GroupName, timeout_s: float, *, lost: bool = False
    ) -> None:
        self._groups = groups
        self._name = name
        self._timeout_s = timeout_s
        self._lost = lost

    async def drain(self) -> bool:
        """Have the group read to its end without new messages. False: there is nothing to remove.

        Raises `InvalidArgument` if it holds messages that no member reads: nothing is changed then.
        """
        found, topics = await self._groups.group(self._name), await self._topics()
        if found is None:
            return bool(topics) or await self._something_is_left()
        await self._refuse_chains(topics)
        for topic in topics:
            without(topic, self._name)  # raises if it would take no messages then
        if self._lost:
            await self._require_lost()
        elif not _is_empty(found.value) and await self._was_in_service(topics):
            await self._refuse_unread(topics)
            for topic in topics:
                await self._close(topic)
            await self._await_consumed()
        return True

    async def finish(self) -> None:
        """Remove the group, starting wherever an earlier run stopped."""
        config = await self._groups.group(self._name)
        version = -1
        if config is not None:
            if not _is_empty(config.value):
                config = await self._empty(config)
            version = config.version
        if self._lost:
            await self._give_up_chains()
        await self._leave_topics()
        await self._await_no_broker()
        await self._leave_topics()  # a broker of an older version gives them back to its group
        await self._groups.delete(self._name, version)
        await self._leave_topics()  # one that was made meanwhile
        talk(f"group {self._name} is removed; its brokers' data directories are as they were")

    # ---- looking
    async def _topics(self) -> list[TopicConfig]:
        return await self._groups.topics_of(self._name)

    async def _refuse_chains(self, topics: Sequence[TopicConfig]) -> None:
        """Raise while the chain of an ordered topic uses the group, or consumers still read it."""
        for topic in topics:
            chain = await self._groups.chain_of(topic) if topic.ordered else None
            if chain is not None and self._lost:  # what is unread in it goes with the group
                chain = give_up_group(chain, self._name)
            if chain is not None and (reason := group_in_use(chain, self._name)) is not None:
                raise InvalidArgument(f"group {self._name} is not removed: {reason}")

    async def _something_is_left(self) -> bool:
        if await self._groups.is_there(self._name):
            return True
        if await self._groups.was_removed(self._name):
            talk(f"group {self._name} was removed before")
            return False
        known = ", ".join(sorted(await self._groups.groups())) or "none"
        raise NotFound(f"the cluster has no group {self._name!r}; it has: {known}")

    async def _require_lost(self) -> None:
        if live := await self._groups.live(self._name):
            raise InvalidArgument(
                f"group {self._name} is not lost: {', '.join(live)} lives; without --lost its "
                "messages are read first"
            )

    async def _was_in_service(self, topics: Sequence[TopicConfig]) -> bool:
        """Whether the group may hold messages of these topics. Raises if no broker answers."""
        state = await self._groups.state(self._name)
        if not topics:
            return False
        if state.epoch == 0 and not await self._groups.live(self._name):
            talk(f"group {self._name} was never in service")
            return False
        if state.mode is not Mode.MASTER or state.required_epoch:
            raise InvalidArgument(
                f"group {self._name} has no master now ({state.mode.value}: "
                f"{state.reason or 'new'}), "
                "and what a lost one holds is not known: bring it back, or promote another one "
                f"(fmq failover {self._name} --to BROKER --lost {state.master or 'MASTER'}); if "
                "all journals of the group are lost for good: --lost"
            )
        return True

    async def _unread(self, admin: "Admin") -> list[Unread]:
        found = []
        for topic in await self._topics():
            rows = await admin.offsets(topic=topic.name)
            found += unread_of(topic, self._name, rows)
        return found

    async def _refuse_unread(self, topics: Sequence[TopicConfig]) -> None:
        """Raise before anything is changed: messages that no member reads would never be read."""
        async with self._admin() as admin:
            found = [unread for unread in await self._unread(admin) if not unread.has_members]
        if found:
            untouched = any(_weight(topic, self._name) for topic in topics)
            raise InvalidArgument(
                self._not_consumed(found) + (". Nothing was changed" if untouched else "")
            )

    def _not_consumed(self, found: Sequence[Unread]) -> str:
        examples, first = "; ".join(map(str, found[:_NAMED])), found[0]
        if len(found) > _NAMED:
            examples += f"; and {len(found) - _NAMED} more"
        reader = first.consumers or "NAME"
        give_up = (
            f"fmq group seek {reader} {first.topic} --to latest"
            if first.consumers
            else f"fmq topic delete {first.topic}"
        )
        return (
            f"group {self._name} is not removed, as it holds what is not consumed: {examples}. Let "
            f"it be read (fmq consume {first.topic} -g {reader} --from earliest -e), or give it up "
            f"({give_up}), then run this again"
        )

    @asynccontextmanager
    async def _admin(self) -> "AsyncIterator[Admin]":
        """Yield the admin of a client that knows every broker, those of other groups first."""
        groups = await self._groups.groups()
        members = [
            m for g in sorted(groups, key=self._name.__eq__) for m in groups[g].value.members
        ]
        async with client(SCHEME + ",".join(member.address for member in members)) as connected:
            yield connected.admin()

    # ---- doing
    async def _close(self, topic: TopicConfig) -> None:
        if weight := _weight(topic, self._name):
            await self._groups.edit_topic(topic.name, partial(closed, group=self._name))
            talk(f"topic {topic.name}: weight of {self._name} {weight} -> 0")

    async def _await_consumed(self) -> None:
        """Wait until every consumer group has read all. Raises `Unavailable` after the timeout."""
        deadline_s, reported = time.monotonic() + self._timeout_s, False
        async with self._admin() as admin:
            while found := await self._unread(admin):
                if time.monotonic() >= deadline_s:
                    raise Unavailable(
                        f"{self._not_consumed(found)}. It gets no new messages meanwhile; to let "
                        f"it have them: fmq topic alter {found[0].topic} --group {self._name}:1"
                    )
                if not reported:
                    reported = True
                    talk(f"waiting until all is read: {found[0]}")
                await asyncio.sleep(_POLL_S)

    async def _empty(self, config: Versioned[GroupConfig]) -> Versioned[GroupConfig]:
        """Take WRITE from the brokers, wait until all is read, and note that in the node."""
        members = tuple(
            replace(m, permission=Permission.READ if m.permission else m.permission)
            for m in config.value.members
        )
        draining = replace(config.value, members=members, removal=Removal.DRAINING)
        if draining != config.value:
            config = await self._put(draining, config.version)
        topics = await self._topics()
        if not self._lost and await self._was_in_service(topics):
            talk(f"the brokers of group {self._name} take no messages from now on")
            for topic in topics:  # one that was made meanwhile
                await self._close(topic)
            await self._await_read_to_the_end()
        return await self._put(replace(config.value, removal=Removal.EMPTY), config.version)

    async def _put(self, config: GroupConfig, version: int) -> Versioned[GroupConfig]:
        try:
            await self._groups.write(config, version)
            stored = await self._groups.group(self._name)
        except Changed:
            stored = None
        if stored is None or stored.value != config:
            raise Unavailable(
                f"group {self._name} was changed by another command meanwhile: run this again, it "
                "goes on"
            )
        return stored

    async def _await_read_to_the_end(self) -> None:
        """Wait for it within one term in which the master could store nothing of any producer."""
        while True:
            before = await self._await_read_only()
            await self._await_consumed()
            after = await self._groups.state(self._name)
            if (after.epoch, after.mode) == (before.epoch, before.mode):
                return

    async def _await_read_only(self) -> GroupState:
        """Wait until its master takes no messages, and what it took before can be read."""
        deadline_s, end, reason = time.monotonic() + self._timeout_s, -1, ""
        async with self._admin() as admin:
            while time.monotonic() < deadline_s:
                state = await self._groups.state(self._name)
                rows = [row for row in await admin.status() if row.broker == state.master]
                reason = f"{state.master} does not answer"
                if rows and not rows[0].error:
                    row = rows[0]
                    current = state.mode is Mode.MASTER and not state.required_epoch
                    current = current and row.epoch == state.epoch
                    reason = (
                        f"{row.broker} has {row.permission.name}, epoch {row.epoch}: {row.reason}"
                    )
                    if current and not row.permission & Permission.WRITE:
                        end = row.end if end < 0 else end
                        if row.commit_end >= end:
                            return state
                        reason = f"{row.broker} waits for its slaves: {row.reason}"
                await asyncio.sleep(_POLL_S)
        raise Unavailable(
            f"group {self._name}: its master is not known to take no messages ({reason}): run this "
            "again when it answers"
        )

    async def _leave_topics(self) -> None:
        for topic in await self._topics():
            await self._groups.edit_topic(topic.name, partial(without, group=self._name))
            talk(f"topic {topic.name} is no longer in group {self._name}")

    async def _give_up_chains(self) -> None:
        """Let consumers of ordered topics go on after the segments that are lost."""
        for topic in await self._topics():
            given_up = partial(give_up_group, group=self._name)
            if topic.ordered and await self._groups.edit_chain(topic, given_up):
                talk(
                    f"ordered topic {topic.name}: the unread records of segments in {self._name} "
                    "are given up"
                )

    async def _await_no_broker(self) -> None:
        deadline_s, reported = time.monotonic() + self._timeout_s, ""
        while live := ", ".join(await self._groups.live(self._name)):
            if time.monotonic() >= deadline_s:
                raise Unavailable(
                    f"group {self._name} is empty and in no topic, and {live} still lives: stop "
                    "it, then run this again"
                )
            if live != reported:
                reported = live
                talk(f"stop {live} now: group {self._name} is empty and in no topic")
            await asyncio.sleep(_POLL_S)


def _is_empty(config: GroupConfig) -> bool:
    """Whether the group was found empty, and no broker has got WRITE back since."""
    writers = [m for m in config.members if m.permission & Permission.WRITE]
    return config.removal is Removal.EMPTY and not writers


def _weight(topic: TopicConfig, group: GroupName) -> int:
    return next((g.weight for g in topic.groups if g.group == group), 0)
