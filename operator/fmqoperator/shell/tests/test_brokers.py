"""What a broker says of itself, as the planner knows it."""

from fmqcore.words import BrokerId, Epoch, Permission, Position
from fmqoperator.seen import Answer, Replica
from fmqoperator.shell.brokers import answer_of
from fmqproto.v1.admin_pb2 import ReplicaStatus, StatusReply


def test_every_word_of_it() -> None:
    reply = StatusReply(
        broker="g1-0",
        permission=int(Permission.FULL),
        epoch=7,
        end=300,
        durable_end=200,
        commit_end=100,
        why="it is master",
        zookeeper_connected=True,
        version="1.2",
        refuses="7 MiB are free",
        damage="0000.journal, position 7",
        replicas=[
            ReplicaStatus(broker="g1-1", connected=True, durable_end=295, lag_bytes=5),
            ReplicaStatus(broker="g1-2", connected=True, lag_bytes=300),  # it said nothing yet
        ],
    )
    assert answer_of(reply) == Answer(
        BrokerId("g1-0"),
        Permission.FULL,
        Epoch(7),
        Position(300),
        Position(200),
        Position(100),
        "it is master",
        zookeeper_connected=True,
        replicas=(
            Replica(BrokerId("g1-1"), connected=True, in_sync=False, lag_bytes=5),
            Replica(BrokerId("g1-2"), connected=True, in_sync=False, lag_bytes=None),
        ),
        version="1.2",
        refuses="7 MiB are free",
        damage="0000.journal, position 7",
    )


def test_an_older_broker_says_nothing_of_its_disk() -> None:
    found = answer_of(StatusReply(broker="g1-0"))
    assert (found.refuses, found.damage, found.permission) == ("", "", Permission.NONE)
