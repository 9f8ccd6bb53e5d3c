"""The messages that count as not consumed before a broker group is removed."""

import pytest

from fmqcli.group_removal import unread_of
from fmqclient.admin.infos import QueueOffsets
from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup

G1, G2 = GroupName("g1"), GroupName("g2")
ORDERS = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 1), TopicGroup(G2, 2)))


def row(
    consumers: str,
    group: str,
    queue: int,
    read: int,
    end: int,
    *,
    acked: int = 0,
    session: str = "",
) -> QueueOffsets:
    return QueueOffsets(
        consumers, "orders", group, queue, read, 10, end, session=session, acked=acked
    )


def unread(*rows: QueueOffsets) -> list[str]:
    return [str(each) for each in unread_of(ORDERS, G2, rows)]


def test_queue_read_by_all_groups_is_consumed() -> None:
    assert unread(row("shop", "g1", 0, 10, 99), row("shop", "g2", 0, 20, 20),
                  row("shop", "g2", 1, 15, 20, acked=5)) == []  # fmt: skip


def test_each_consumer_group_counts_over_all_queues() -> None:
    rows = [row("shop", "g2", 0, 12, 20), row("shop", "g2", 1, 19, 20, session="s"),
            row("bill", "g2", 0, 20, 20), row("bill", "g2", 1, 19, 20)]  # fmt: skip
    assert unread(*rows) == [
        "consumer group bill has 1 message to read of topic orders, and no member",
        "consumer group shop has 9 messages to read of topic orders",
    ]


def test_messages_that_no_consumer_group_has_read_count() -> None:
    assert unread(row("", "g2", 0, 10, 10), row("", "g2", 1, 10, 13)) == [
        "topic orders has 3 messages that no consumer group has read"
    ]


def test_a_consumer_group_without_progress_here_has_all_to_read() -> None:
    """It read the topic before that came to this broker group."""
    rows = [row("shop", "g1", 0, 99, 99), row("", "g2", 0, 10, 14), row("bill", "g2", 1, 12, 12)]
    assert unread(*rows) == [
        "consumer group bill has 4 messages to read of topic orders, and no member",
        "consumer group shop has 6 messages to read of topic orders, and no member",
    ]


def test_a_queue_that_is_not_reported_is_not_empty() -> None:
    with pytest.raises(Unavailable, match="does not report queue 1 of topic orders yet"):
        unread(row("shop", "g2", 0, 20, 20))
