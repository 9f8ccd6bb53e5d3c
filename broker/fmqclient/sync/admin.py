"""The admin for programs without asyncio (`sync/client.py`)."""

from collections.abc import Mapping, Sequence

from fmqclient.admin.client import Admin as AsyncAdmin
from fmqclient.admin.infos import BrokerStatus, GroupInfo, QueueOffsets, TopicInfo
from fmqclient.settings import Start
from fmqclient.sync.loop_thread import LoopThread


class Admin:
    """Administers the cluster by calls to its brokers. Holds no state."""

    def __init__(self, loop: LoopThread, admin: AsyncAdmin) -> None:
        self._loop = loop
        self._admin = admin

    # ---- topics

    def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        groups: Sequence[str] | Mapping[str, int] | None = None,
        if_not_exists: bool = False,
    ) -> TopicInfo:
        """Create a topic with `queues` queues in each group, and return it.

        `groups`: names, or names with weights; None means every group of the cluster. Raises
        `AlreadyExists`, `InvalidArgument`, `NotFound` (a group).
        """
        return self._loop.run(
            self._admin.create_topic(
                name, queues=queues, groups=groups, if_not_exists=if_not_exists
            )
        )

    def alter_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        groups: Sequence[str] | Mapping[str, int | None] | None = None,
        all_groups: bool = False,
    ) -> TopicInfo:
        """Change a topic and return it: more queues per group, more groups, other weights.

        Weight 0: no new messages. No queue that holds messages is removed. Raises `UnknownTopic`,
        `NotFound`, `InvalidArgument`.
        """
        return self._loop.run(
            self._admin.alter_topic(name, queues=queues, groups=groups, all_groups=all_groups)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; retention removes its messages. Raises `NotFound`."""
        self._loop.run(self._admin.delete_topic(name))

    def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        return self._loop.run(self._admin.topics())

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises `UnknownTopic`."""
        return self._loop.run(self._admin.topic(name))

    # ---- consumer groups

    def groups(self) -> list[GroupInfo]:
        """Return all consumer groups, by name and topic."""
        return self._loop.run(self._admin.groups())

    def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        """Return progress per queue; empty names mean all. Group "" is a queue that none has read.

        Raises `Unavailable` if some group's reader does not answer: there are no partial results.
        """
        return self._loop.run(self._admin.offsets(group, topic))

    def lag(self, group: str) -> list[QueueOffsets]:
        """Return one consumer group's progress in every queue it has read. Raises `NotFound`."""
        return self._loop.run(self._admin.lag(group))

    def seek(
        self,
        group: str,
        topic: str,
        to: Start | None = None,
        *,
        offset: int | None = None,
        queues: Sequence[tuple[str, int]] | None = None,
    ) -> list[QueueOffsets]:
        """Move a consumer group on a topic to a moment, or (`offset`) to an offset.

        `queues` are (group, queue) pairs; None means all of the topic. Live members go on from
        there. Returns the new progress. Raises `InvalidArgument`, `Unavailable`.
        """
        return self._loop.run(self._admin.seek(group, topic, to, offset=offset, queues=queues))

    def delete_group(self, group: str, topic: str = "") -> int:
        """Delete a consumer group's progress; return in how many queues. Raises `NotFound`."""
        return self._loop.run(self._admin.delete_group(group, topic))

    # ---- the cluster

    def status(self) -> list[BrokerStatus]:
        """Return every broker's status; for one that does not answer, `error` has the reason."""
        return self._loop.run(self._admin.status())
