"""The numbers of this journal's topics are claimed in ZooKeeper before another topic gets them.

ZooKeeper may have lost what it had: its data was removed, or an older backup was restored. Then its
count of topic numbers stands below numbers that this journal holds. Every broker compares the two
before it takes part in its group, and again whenever the topics change. What ZooKeeper has not
given is claimed (`fmqcore.topic_numbers`): the count goes past it, and a topic of that name that is
made again gets its own number back.

What it is not: the refusal of topics whose number contradicts the journal (`conflict`; every path
asks it). Leaves the claims in ZooKeeper's topics node.
"""

from typing import Final

import structlog

from fmqbroker.cluster_view import ClusterView
from fmqbroker.journal import Journal
from fmqcore import paths
from fmqcore.cluster import TopicConfig
from fmqcore.errors import FmqError
from fmqcore.topic_numbers import conflict
from fmqport.clock import Clock
from fmqport.coordination import Coordination
from fmqport.topic_ids import claim_topic_ids

_AGAIN_S: Final = 1.0

_log = structlog.get_logger()


class TopicClaims:
    """One broker's claims. `run` is its duty while it runs."""

    def __init__(
        self,
        journal: Journal,
        view: ClusterView,
        coordination: Coordination,
        cluster: str,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._view = view
        self._coordination = coordination
        self._node = paths.topics_node(cluster)
        self._clock = clock
        self._complained: frozenset[TopicConfig] = frozenset()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.claim()
            except FmqError as error:
                _log.warning("topic_numbers_not_claimed", why=str(error))
                await self._clock.sleep(_AGAIN_S)
                continue
            await self._view.changed.wait()

    async def claim(self) -> None:
        """Claim what ZooKeeper has not given. Raises `Unavailable`."""
        noted, known = self._journal.state.topics, self._view.numbers
        self._complain()
        if known is None or all(map(known.was_given, noted)):
            return
        await self._coordination.sync(self._node)  # an old answer would look like a loss
        after = await claim_topic_ids(self._coordination, self._node, dict(noted))
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

    def _complain(self) -> None:
        """One line for each topic that this journal refuses."""
        topics = self._view.topics.values()
        refused = {t: why for t in topics if (why := conflict(t, self._journal.state.topics))}
        for topic in refused.keys() - self._complained:
            _log.error(
                "topic_number_contradicts_journal", topic=topic.name, why=str(refused[topic])
            )
        self._complained = frozenset(refused)
