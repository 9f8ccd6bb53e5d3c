"""Which consumer groups have to read every queue of a topic here, also those without progress.

A queue without progress is read from its oldest message by a group that has progress in another
queue of the topic here (`GroupTable.ensure`, `GroupTable.fit`): a lag without it would be too low
while the group's members are away. An ordered topic's chain names the groups that read it.
"""

from collections.abc import Collection

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.runtime.slices import Slices
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import TopicConfig


class Readers:
    """The consumer groups of topics in one broker group, as known at the call."""

    def __init__(
        self, broker_group: GroupName, offsets: OffsetStore, chains: ChainReads | None
    ) -> None:
        self._broker_group = broker_group
        self._offsets = offsets
        self._chains = chains

    def names(self, topic: TopicConfig) -> list[str]:
        """Return the consumer groups that may read the topic here, sorted; some are deleted."""
        return sorted({*self._offsets.groups_in(topic.id), *self._in_chain(topic)})

    async def reads_all(self, name: str, topic: TopicConfig, slices: Slices) -> bool:
        """Return whether the group has to read every queue of the topic here."""
        if topic.ordered:
            await slices.step()
            chain = self._chain_of(topic)
            return chain is not None and chain.heads_of(name) is not None
        for queue in range(topic.queues_in(self._broker_group)):
            await slices.step()
            entry = self._offsets.get(OffsetKey(name, topic.id, queue))
            if entry is not None and not entry.deleted:
                return True
        return False

    def is_temporary(self, name: str, topic: TopicConfig) -> bool:
        """Return whether the group is unnamed, and no consumer waits for its progress."""
        chain = self._chain_of(topic)
        noted = self._offsets.is_temporary(name, topic.id)
        return noted or (chain is not None and name in chain.temporary)

    def _in_chain(self, topic: TopicConfig) -> Collection[str]:
        chain = self._chain_of(topic)
        return frozenset() if chain is None else {name for name, _ in chain.heads}

    def _chain_of(self, topic: TopicConfig) -> Chain | None:
        chains = self._chains if topic.ordered else None
        return None if chains is None else chains.of(topic.id)
