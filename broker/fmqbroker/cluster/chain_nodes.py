"""The chains of ordered topics in ZooKeeper: read, create, change, delete. Any broker can.

Order of effects of a creation: the topic (of two creators one wins), `groups/<g>/chains` of each
group, the chain. A creation that stopped in between is completed by the same request with
`if_not_exists`. Of a deletion: the topic, then the chain. A chain with another topic's number is
what an interrupted deletion left: it counts as absent, and a creation replaces it.

Every change is one compare-and-set. A change that closes a segment also raises the version of
the group's node `groups/<g>/chains`, in the same transaction: the leases of that group look at it.
Leaves in ZooKeeper: `ordered/<t>`, `groups/<g>/chains`.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from fmqcore.errors import InvalidArgument, Malformed, NotFound, Unavailable, UnknownTopic
from fmqcore.ids import GroupName, TopicId
from fmqcore.names import is_name
from fmqcore.ordered.evidence import SenderReport
from fmqcore.ordered.moments import stamped
from fmqcore.ordered.senders import sender_of
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqcore.zk.closed_chains import LastClosing, closing_to_json
from fmqcore.zk.codec import Versioned
from fmqcore.zk.sender_place import place_report_from_json
from fmqcore.zk.topic import TopicConfig, topic_from_json
from fmqport.clock import Clock
from fmqport.coordination import BadVersion, Coordination, NodeExists, NoNode, NotEmpty, Write
from fmqport.sequential_nodes import in_sequence

_log = structlog.get_logger()
_TRIES: Final = 10


class ChainNodes:
    """Reads and writes chains; keeps no copy of any."""

    def __init__(self, coordination: Coordination, cluster: str, clock: Clock) -> None:
        self._coordination = coordination
        self._cluster = cluster
        self._clock = clock

    async def topics(self) -> list[str]:
        """Return the names of all topics that have a chain, sorted. Raises `Unavailable`."""
        node = layout.ordered_node(self._cluster)
        await self._coordination.sync(node)
        return await self._coordination.children(node)

    async def topic(self, name: str) -> TopicConfig:
        """Return the ordered topic. Raises `UnknownTopic`, `InvalidArgument`, `Unavailable`."""
        node = layout.topic_node(self._cluster, name)
        found = await self._coordination.get(node, synced=True) if is_name(name) else None
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        topic = topic_from_json(found.data)
        if not topic.ordered:
            raise InvalidArgument(
                f"topic {name} is not ordered: `fmq topic describe {name}` shows its queues, and "
                f"`fmq topic alter {name} --group GROUP` changes its groups"
            )
        return topic

    async def read(self, topic: TopicConfig) -> Versioned[Chain]:
        """Return the chain as it is now. Raises `NotFound`, `Unavailable`."""
        found = await self.stored(topic.name)
        if found is None or found.value.topic_id != topic.id:
            raise NotFound(
                f"ordered topic {topic.name} has no chain: its creation was interrupted; run "
                f"fmq topic create {topic.name} --ordered --groups GROUP,GROUP --if-not-exists"
            )
        return found

    async def senders(self, topic: TopicConfig) -> tuple[str, ...]:
        """Return the line of senders, the first one first."""
        return tuple(
            in_sequence(
                await self._coordination.children(layout.senders_node(self._cluster, topic.name))
            )
        )

    async def report(self, chain: Chain, places: Iterable[str]) -> SenderReport | None:
        """Return what the active sender reported of the last segment, if sends wait though it did.

        `places`: the line of senders. Raises `Unavailable`. A report that does not decode, or is of
        an earlier closing, counts as none.
        """
        last, parent = chain.last, layout.senders_node(self._cluster, chain.topic)
        if chain.closing is None or last is None or not last.has_ended:
            return None
        for place in places:
            if sender_of(place) != chain.sender.id:
                continue
            found, reported = await self._coordination.get(f"{parent}/{place}"), None
            with contextlib.suppress(Malformed):
                if found is not None:
                    reported = place_report_from_json(found.data, chain.queues)
            if reported is not None and reported.segment == last.number:
                return SenderReport(chain.sender.id, *reported)
        return None

    async def create(self, chain: Chain) -> None:
        """Create the chain of a topic that exists, unless it has one. Raises `Unavailable`."""
        await self._make_parents(group.group for group in chain.groups)
        node, data = layout.chain_node(self._cluster, chain.topic), chain_to_json(chain)
        for _ in range(_TRIES):
            found = await self.stored(chain.topic)
            with contextlib.suppress(NodeExists, BadVersion, NoNode):
                if found is None:
                    await self._coordination.create(node, data, make_parents=True)
                elif found.value.topic_id != chain.topic_id:  # of a deleted topic
                    await self._coordination.set(node, data, found.version)
                return
        raise Unavailable(f"the chain of topic {chain.topic} is being changed: try again")

    async def edit(self, topic: TopicConfig, change: Callable[[Chain], Chain]) -> Chain:
        """Change the chain by compare-and-set, and return it; again after a concurrent change.

        After `Unavailable` the change may have been made: every request may be made twice. Raises
        `NotFound`, and what `change` raises.
        """
        for _ in range(_TRIES):
            stored = await self.read(topic)
            before = stored.value
            after = change(before)
            if after == before:
                return before
            with contextlib.suppress(BadVersion):
                return (await self.write(stored, after)).value
        raise Unavailable(
            f"the chain of topic {topic.name} is changed by others at each try: try again"
        )

    async def write(self, before: Versioned[Chain], after: Chain) -> Versioned[Chain]:
        """Write `after` in the place of `before`, with its moments, and return what is stored.

        Raises `BadVersion` if the chain has changed or is gone. After `Unavailable` it may have
        been written.
        """
        after = stamped(before.value, after, self._clock.wall_ms())
        version = await self._write(before.value, after, before.version)
        if (before.value.closing, before.value.segments) != (after.closing, after.segments):
            _log.info("chain_changed", topic=after.topic, closing=after.closing)
        return Versioned(after, version)

    async def delete(self, name: str, topic_id: TopicId) -> None:
        """Delete the chain of a deleted topic, with the line of senders. Raises `Unavailable`.

        Tries again when a broker that has not seen the deletion yet changes the chain or joins the
        line meanwhile.
        """
        for _ in range(_TRIES):
            found = await self.stored(name)
            if found is None or found.value.topic_id != topic_id:
                return None  # another topic of that name has replaced it
            with contextlib.suppress(BadVersion, NotEmpty):
                await self._delete_line(name)
                node = layout.chain_node(self._cluster, name)
                return await self._coordination.delete(node, found.version)
        raise Unavailable(
            f"topic {name} is deleted, and its chain is being changed all the time: delete the "
            "topic again"
        )

    async def delete_left(self, name: str) -> bool:
        """Delete the chain that an interrupted deletion left; return whether there was one."""
        topic = layout.topic_node(self._cluster, name)
        found = await self.stored(name) if is_name(name) else None
        if found is None or await self._coordination.get(topic, synced=True) is not None:
            return False
        await self.delete(name, found.value.topic_id)
        return True

    async def stored(self, name: str) -> Versioned[Chain] | None:
        """Return the chain of that name as it is now. Raises `Unavailable`, `Malformed`.

        It may be of a deleted topic: its number shows it.
        """
        node = layout.chain_node(self._cluster, name)
        found = await self._coordination.get(node, synced=True)
        return None if found is None else Versioned(chain_from_json(found.data), found.version)

    def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever the chain may differ; return a function that stops it."""
        return self._coordination.watch(layout.chain_node(self._cluster, name), changed)

    # ---- inside
    async def _delete_line(self, name: str) -> None:
        line = layout.senders_node(self._cluster, name)
        for sender in await self._coordination.children(line):
            await self._coordination.delete(f"{line}/{sender}")
        await self._coordination.delete(line)

    async def _write(self, before: Chain, after: Chain, version: int) -> int:
        """Return the new version. Raises `BadVersion`, also if the chain was deleted."""
        node = layout.chain_node(self._cluster, after.topic)
        new = {g.group for g in after.groups} - {g.group for g in before.groups}
        await self._make_parents(new)
        writes = [Write(node, chain_to_json(after), version)]
        last = after.last
        same = before.closing is not None and before.next_number == after.next_number
        if after.closing is not None and last is not None and not same:
            closing = LastClosing(after.topic, last.number, after.closing)
            raised = layout.chains_node(self._cluster, last.group)
            writes.append(Write(raised, closing_to_json(closing), -1))
            await self._make_parents([last.group])
        try:
            return (await self._coordination.set_all(writes))[0]
        except NoNode as missing:
            raise BadVersion(node) from missing

    async def _make_parents(self, groups: Iterable[GroupName]) -> None:
        """Create `groups/<g>/chains`, which closings write."""
        for group in groups:
            with contextlib.suppress(NodeExists, NoNode):  # NoNode: the group has left the cluster
                await self._coordination.create(layout.chains_node(self._cluster, group), b"")
