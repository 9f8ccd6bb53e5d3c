"""The admin for programs without asyncio (`sync/client.py`)."""

from collections.abc import Mapping, Sequence

from fmqclient.admin.client import Admin as AsyncAdmin
from fmqclient.admin.infos import (
    BrokerStatus,
    GroupInfo,
    OrderedTopicStatus,
    QueueOffsets,
    TopicInfo,
)
from fmqclient.admin.ordered import OrderedAdmin as AsyncOrderedAdmin
from fmqclient.settings import Start
from fmqclient.sync.loop_thread import LoopThread


class Admin:
    """Administers the cluster by calls to its brokers. Holds no state."""

    def __init__(self, loop: LoopThread, admin: AsyncAdmin) -> None:
        self._loop = loop
        self._admin = admin

    @property
    def ordered(self) -> "OrderedAdmin":
        """Calls on ordered topics."""
        return OrderedAdmin(self._loop, self._admin.ordered)

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


class OrderedAdmin:
    """The part of the admin for ordered topics: `Admin.ordered`."""

    def __init__(self, loop: LoopThread, ordered: AsyncOrderedAdmin) -> None:
        self._loop = loop
        self._ordered = ordered

    def create(
        self,
        name: str,
        groups: Sequence[str] | Mapping[str, int],
        *,
        queues: int = 1,
        allow_single: bool = False,
        if_not_exists: bool = False,
    ) -> TopicInfo:
        """Create an ordered topic over two groups or more, and return it.

        `groups`: names, or names with weights (1 or more): of drained groups the heaviest is
        used. Each has two brokers or more, unless `allow_single` (for tries). With more than one
        queue the order is kept per queue. Raises `AlreadyExists`, `InvalidArgument`, `NotFound` (a
        group).
        """
        return self._loop.run(
            self._ordered.create(
                name,
                groups,
                queues=queues,
                allow_single=allow_single,
                if_not_exists=if_not_exists,
            )
        )

    def set_groups(self, name: str, groups: Sequence[str] | Mapping[str, int]) -> TopicInfo:
        """Let the chain use these groups from now on, and no others. Returns the topic.

        A group that leaves gets no new segment; consumers still read its old ones. Raises
        `UnknownTopic`, `InvalidArgument`, `NotFound` (a group).
        """
        return self._loop.run(self._ordered.set_groups(name, groups))

    def status(self, topic: str = "") -> list[OrderedTopicStatus]:
        """Return one ordered topic, or all, by name. Raises `UnknownTopic`, `InvalidArgument`."""
        return self._loop.run(self._ordered.status(topic))

    def switch(self, topic: str, *, off: str = "", reason: str = "") -> OrderedTopicStatus:
        """Close the open segment, so that sends go on in another group; return the chain then.

        `off`: only if the segment lies in that group. Nothing changes if it does not, or if the
        segment is closing already. `switched_segment` of the result is the segment, 0 if the sends
        go to another group than `off`, or to none. By then the next segment may be open, also in
        the group `off`. Raises `InvalidArgument` if no other group may take the sends.
        """
        return self._loop.run(self._ordered.switch(topic, off=off, reason=reason))

    def release(self, topic: str, segment: int, *, accept_loss: bool = False) -> OrderedTopicStatus:
        """End a segment of unknown end at the highest end that its remaining members have.

        Raises `InvalidArgument`, also if acknowledged records would be in no segment then, unless
        `accept_loss`; `Unavailable` if no broker serves the reads of the segment's group.
        """
        return self._loop.run(self._ordered.release(topic, segment, accept_loss=accept_loss))
