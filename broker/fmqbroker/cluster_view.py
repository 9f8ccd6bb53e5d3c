"""The whole cluster as this broker knows it: every group's config, state, live brokers; topics.

CONTRACT STUB (owner: coordination). Answers `Routes`; creates and deletes topics.
"""

from collections.abc import Sequence

from fmqbroker.signal import Signal
from fmqcore.cluster import GroupConfig, GroupState, TopicConfig, TopicGroup
from fmqcore.words import GroupName, TopicId
from fmqport.coordination import Coordination
from fmqproto.v1 import client_pb2


class ClusterView:
    """Cached and watched; may be stale while ZooKeeper is away (epochs tell)."""

    configs: dict[GroupName, GroupConfig]
    states: dict[GroupName, GroupState]
    topics: dict[str, TopicConfig]
    topics_by_id: dict[TopicId, TopicConfig]
    changed: Signal

    def __init__(self, coordination: Coordination, cluster: str) -> None:
        raise NotImplementedError

    async def load(self) -> None:
        """First read of everything."""
        raise NotImplementedError

    async def run(self) -> None:
        """Follow the watches until cancelled."""
        raise NotImplementedError

    def routes(self, topics: Sequence[str]) -> client_pb2.RouteReply:
        """The route table; only those topics if any are named."""
        raise NotImplementedError

    async def create_topic(
        self, name: str, queues: int, groups: Sequence[TopicGroup], *, if_not_exists: bool
    ) -> TopicConfig:
        """Create it in ZooKeeper with the next free id and take it into the view.

        Raises `AlreadyExists`, `InvalidArgument`, `Unavailable`.
        """
        raise NotImplementedError

    async def delete_topic(self, name: str) -> None:
        """Delete it. Raises `NotFound`, `Unavailable`. Its id is never given again."""
        raise NotImplementedError
