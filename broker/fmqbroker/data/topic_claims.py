"""Claim the numbers of this journal's topics in ZooKeeper before another topic gets them.

ZooKeeper may have lost data: it was removed, or an older backup was restored. Then its count of
topic numbers is below numbers that this journal holds. Every broker compares the two before it
takes part in its group, and again whenever the topics change. Numbers that ZooKeeper has not given
are claimed (`fmqcore.zk.topic_numbers`): the count goes past them, and a topic of that name that is
recreated gets its own number back.

A topic with fewer queues in ZooKeeper than in this journal (from an older backup, or recreated with
fewer) gets them back too, because no client would read the messages in them. This is not done while
the group is being removed from the cluster: it leaves its topics once they are consumed.

`conflict`, which every path asks, refuses topics whose number contradicts the journal. The claims
are stored in ZooKeeper's topics node.
"""

from typing import Final

import structlog

from fmqbroker.cluster.topic_alteration import restore_queues
from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.slices import Slices
from fmqcore.errors import FmqError, UnknownTopic
from fmqcore.ids import GroupName
from fmqcore.properties import NONE
from fmqcore.zk import layout
from fmqcore.zk.group_config import Removal, config_from_json
from fmqcore.zk.topic import TopicConfig, is_ordered
from fmqcore.zk.topic_numbers import TopicNumbers, conflict
from fmqport.clock import Clock
from fmqport.coordination import Coordination
from fmqport.topic_ids import claim_topic_ids

_RETRY_S: Final = 1.0

_log = structlog.get_logger()


class TopicClaims:
    """The topic claims of one broker. `run` keeps them up to date."""

    def __init__(
        self,
        journal: Journal,
        view: ClusterView,
        coordination: Coordination,
        cluster: str,
        clock: Clock,
        group: str,
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._group = GroupName(group)
        self._view = view
        self._coordination = coordination
        self._node = layout.topics_node(cluster)
        self._clock = clock
        self._complained: frozenset[TopicConfig] = frozenset()

    async def run(self) -> None:
        """Claim at each change of the topics until cancelled."""
        while True:
            seen = self._view.changed.count
            try:
                await self.claim()
            except FmqError as error:
                _log.warning("topic_ids_not_claimed", reason=str(error))
                await self._clock.sleep(_RETRY_S)
                continue
            if self._view.changed.count == seen:  # else the topics changed in one of those turns
                await self._view.changed.wait()

    async def claim(self) -> None:
        """Claim numbers and restore queues that ZooKeeper lacks. Raises `Unavailable`."""
        await self._complain()
        await self._claim_numbers()
        await self._restore_queues()

    async def _restore_queues(self) -> None:
        for topic in await self._topics_with_fewer_queues():
            group, coordination = self._group, self._coordination
            await coordination.sync(self._node)  # an old answer would look like a loss
            if await self._is_being_removed():
                return  # it left its topics on purpose
            _, queues = self._journal.state.topics.get(topic.id, ("", 0))
            if not queues:
                continue  # it was deleted meanwhile
            try:
                await restore_queues(coordination, self._cluster, self._view, topic, group, queues)
            except UnknownTopic:
                continue  # it was deleted meanwhile

    async def _is_being_removed(self) -> bool:
        config = await self._coordination.get(layout.config_node(self._cluster, self._group))
        return config is None or config_from_json(config.data).removal is not Removal.NONE

    async def _topics_with_fewer_queues(self) -> list[TopicConfig]:
        topics, slices = list[TopicConfig](), Slices()
        for number, (name, queues) in list(self._journal.state.topics.items()):
            await slices.step()
            topic = self._view.topics_by_id.get(number)
            if topic and topic.name == name and topic.queues_in(self._group) < queues:
                topics.append(topic)
        return topics

    async def _claim_numbers(self) -> None:
        noted, known = self._journal.state.topics, self._view.numbers
        if known is None or await self._is_all_claimed(known):
            return
        await self._coordination.sync(self._node)  # an old answer would look like a loss
        properties = self._journal.state.topic_properties
        ordered = {number for number in noted if is_ordered(properties.get(number, NONE))}
        after = await claim_topic_ids(self._coordination, self._node, dict(noted), ordered)
        lost = {name: number for name, number in after.lost.items() if number in noted}
        missing = [name for name in sorted(lost) if name not in self._view.topics]
        if after != known and missing:
            _log.error(
                "zookeeper_lost_topics",
                topics=missing[:20],
                count=len(missing),
                remedy="make them again: each gets its own number and its messages back",
            )
        self._view.numbers = after

    async def _is_all_claimed(self, known: TopicNumbers) -> bool:
        slices = Slices()
        for number in list(self._journal.state.topics):
            await slices.step()
            if not known.was_given(number):
                return False
        return True

    async def _complain(self) -> None:
        """Log each topic that this journal refuses, once."""
        refused, slices = dict[TopicConfig, UnknownTopic](), Slices()
        for topic in list(self._view.topics.values()):
            await slices.step()
            if (reason := conflict(topic, self._journal.state.topics)) is not None:
                refused[topic] = reason
        for topic in refused.keys() - self._complained:
            _log.error("topic_id_contradicts_journal", topic=topic.name, reason=str(refused[topic]))
        self._complained = frozenset(refused)
