"""The times in which a broker served clients, as its status reply reports them."""

from types import SimpleNamespace
from typing import Any

from fmqbroker.admin.served_periods import ServedPeriods
from fmqbroker.replication.view import LinkView
from fmqbroker.tests.produce.test_intake import ME, UNMET, Parts
from fmqcore.ids import BrokerId, GroupName, Permission, Position
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode

SLAVE = BrokerId("g1-1")


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms


class Reporting(Parts):
    """The periods of a master with one in-sync slave, and the parts they read."""

    def __init__(self, policy: AckPolicy | None = None) -> None:
        super().__init__()
        members = (Member(ME, "a:1"), Member(SLAVE, "b:1"))
        config = GroupConfig(GroupName("g1"), ME, members)
        if policy is not None:
            config = GroupConfig(GroupName("g1"), ME, members, policy)
        state = GroupState(mode=Mode.MASTER, master=ME, isr=frozenset({SLAVE}))
        group: Any = SimpleNamespace(config=config, state=SimpleNamespace(value=state))
        self.link = LinkView(connected=True)
        master: Any = SimpleNamespace(links={SLAVE: self.link})
        self.upstream = SimpleNamespace(heard_master="", heard_ms=0)
        slave: Any = SimpleNamespace(upstream=self.upstream)
        clock: Any = Clock()
        self.clock: Clock = clock
        self.periods = ServedPeriods(ME, clock, self.gate, self.intake, group, master, slave)

    def set(self, kind: str) -> int | None:
        found: int | None = getattr(self.periods.report(), kind)
        return found


def test_ages_of_a_period_count_from_its_first_look() -> None:
    broker = Reporting()
    assert [broker.set(f"{kind}_served_ms") for kind in ("reads", "writes")] == [None, None]
    assert broker.set("reads_ended_ago_ms") is None
    broker.lead()
    broker.periods.note()
    broker.clock.now_ms += 700
    assert [broker.set(f"{kind}_served_ms") for kind in ("reads", "writes")] == [700, 700]
    broker.commit.refuse(UNMET, Position(0))
    broker.clock.now_ms += 50
    assert [broker.set("reads_served_ms"), broker.set("writes_served_ms")] == [750, None]
    assert broker.set("writes_ended_ago_ms") == 50
    assert broker.periods.report().unacknowledged_reason == UNMET


def test_disconnected_in_sync_slave_then_no_period_is_returned() -> None:
    broker = Reporting(AckPolicy(how_many=HowMany.ALL))
    broker.lead()
    assert broker.set("writes_served_ms") == 0
    broker.link.connected = False
    broker.clock.now_ms += 20
    report = broker.periods.report()
    assert report.unacknowledged_reason == "in-sync slaves are not connected: g1-1"
    assert report.writes_ended_ago_ms == 20
    assert report.reads_served_ms is not None
    broker.link.connected = True
    assert broker.periods.report().unacknowledged_reason == ""


def test_slave_reports_when_it_heard_its_master() -> None:
    broker = Reporting()
    assert broker.periods.report().followed_master == ""
    broker.upstream.heard_master, broker.upstream.heard_ms = "g1-1", 400
    report = broker.periods.report()
    assert (report.followed_master, report.master_silent_ms) == ("g1-1", 600)
    assert report.unacknowledged_reason == ""  # its role: another broker serves
    assert broker.gate.permission() is Permission.NONE
