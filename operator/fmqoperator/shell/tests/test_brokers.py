"""A broker's status reply, as the planner sees it."""

from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqoperator.core.observation import Answer, Periods, Replica
from fmqoperator.shell.brokers import answer_of
from fmqproto.v1.admin_pb2 import REMEDY_BEGIN_AGAIN, ReplicaStatus, ServedPeriods, StatusReply


def test_status_reply_then_every_field_is_decoded() -> None:
    reply = StatusReply(
        broker="g1-0",
        permission=int(Permission.FULL),
        epoch=7,
        end=300,
        durable_end=200,
        commit_end=100,
        reason="it is master",
        zookeeper_connected=True,
        version="1.2",
        disk_full_reason="7 MiB are free",
        damage="0000.journal, position 7",
        remedy=REMEDY_BEGIN_AGAIN,
        served_periods=ServedPeriods(
            reads_served_ms=500,
            writes_ended_ago_ms=70,
            followed_master="g1-1",
            master_silent_ms=9,
            unacknowledged_reason="alone",
        ),
        replicas=[
            ReplicaStatus(broker="g1-1", connected=True, durable_end=295, lag_bytes=5),
            ReplicaStatus(broker="g1-2", connected=True, lag_bytes=300),  # no report from it yet
        ],
    )
    assert answer_of(reply, 1_000_000) == Answer(
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
        periods=Periods(999_500, None, None, 999_930, "g1-1", 999_991, "alone"),
        remedy=Remedy.BEGIN_AGAIN,
    )


def test_older_brokers_status_has_no_disk_field() -> None:
    found = answer_of(StatusReply(broker="g1-0"), 1_000_000)
    assert (found.periods, found.remedy) == (None, Remedy.NONE)
    assert (found.refuses, found.damage, found.permission) == ("", "", Permission.NONE)
