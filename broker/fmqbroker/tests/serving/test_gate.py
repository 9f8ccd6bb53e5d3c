"""The gate and the lease that bounds it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import Proof
from fmqbroker.serving.gate import Gate
from fmqbroker.serving.lease import Lease, lease_ms
from fmqbroker.tests.failover_harness import until
from fmqcore.errors import NoPermission, Unavailable
from fmqcore.failover.term_rules import FOREVER, Tenure
from fmqcore.ids import BrokerId, Epoch, Permission
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode

M, S = BrokerId("g1-0"), BrokerId("g1-1")
FULL, READ, WRITE, NONE = Permission.FULL, Permission.READ, Permission.WRITE, Permission.NONE
SESSION_MS = 3000


class HandClock(SystemClock):
    """A clock moved by hand; `sleep` ends once it has moved far enough."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        until_ms = self.now_ms + round(seconds * 1000)
        while self.now_ms < until_ms:
            await asyncio.sleep(0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def gate(clock: HandClock) -> Gate:
    gate = Gate(clock)
    gate.adopt(GroupState(Mode.MASTER, Epoch(3), M, M))
    return gate


# ---- the gate


def test_a_grant_without_a_lease_is_nothing(gate: Gate, clock: HandClock) -> None:
    gate.grant(FULL, "serving")
    assert gate.permission() is NONE
    gate.extend_lease(clock.now_ms + 10)
    assert gate.permission() is FULL
    gate.extend_lease(clock.now_ms + 5)  # only ever later
    clock.now_ms += 9
    assert gate.permission() is FULL
    clock.now_ms += 1  # at that very moment it is over, notified or not
    assert gate.permission() is NONE


def test_a_lease_without_a_grant_is_nothing(gate: Gate, clock: HandClock) -> None:
    gate.extend_lease(clock.now_ms + 10)
    assert gate.permission() is NONE
    gate.grant(READ, "serving reads")
    assert gate.permission() is READ
    gate.require(READ)
    for needed in (WRITE, FULL):
        with pytest.raises(NoPermission, match="mode MASTER, epoch 3, reader g1-0; serving reads"):
            gate.require(needed)
    clock.now_ms += 10
    with pytest.raises(NoPermission, match="serving lease expired"):
        gate.require(READ)


def test_grants_bound_the_lease_too(gate: Gate, clock: HandClock) -> None:
    until_ms = clock.now_ms + 100
    gate.grant(FULL, "serving")
    gate.count_grants(lambda: until_ms)
    assert gate.permission() is FULL
    assert not gate.zookeeper_leased()
    assert gate.leased_until_ms() == until_ms
    clock.now_ms += 100
    assert gate.permission() is NONE
    until_ms = FOREVER  # no slave in sync: unanimous
    assert gate.permission() is FULL
    gate.count_grants(None)
    assert gate.permission() is NONE


def test_closing_makes_all_leases_void(gate: Gate, clock: HandClock) -> None:
    gate.grant(FULL, "serving")
    gate.extend_lease(clock.now_ms + 1000)
    gate.count_grants(lambda: FOREVER)
    gate.close("another serves")
    assert gate.permission() is NONE
    gate.grant(READ, "a new term")  # must not live on the old term's lease
    assert gate.permission() is NONE


def test_each_change_notifies_once(clock: HandClock) -> None:
    gate = Gate(clock)
    gate.grant(FULL, "a")
    gate.grant(FULL, "a")
    assert gate.changed.count == 1
    gate.grant(FULL, "b")
    gate.adopt(GroupState(Mode.SLAVE_CONSUME, Epoch(4), M, S))
    gate.adopt(GroupState(Mode.SLAVE_CONSUME, Epoch(4), M, S, offsets="else"))
    assert gate.changed.count == 3
    assert (gate.mode, gate.epoch, gate.master, gate.reader) == (Mode.SLAVE_CONSUME, 4, M, S)


# ---- the lease


class Group(SimpleNamespace):
    """Stands in for `GroupStore`."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(changed=Signal(), session_timeout_ms=SESSION_MS, standing=1)
        self.clock = clock
        self.state = Versioned(GroupState(Mode.MASTER, Epoch(3), M, M), 1)
        self.takes_ms = 0
        self.answers = True
        self.asked = 0
        self.over: list[Callable[[], None]] = []
        self.on_lost = self.over.append

    async def prove(self) -> Proof:
        self.asked += 1
        sent_ms, standing = self.clock.monotonic_ms(), self.standing
        await asyncio.sleep(0)
        if self.takes_ms:
            assert isinstance(self.clock, HandClock)
            self.clock.now_ms += self.takes_ms
        if not self.answers:
            raise Unavailable("cut")
        return Proof(sent_ms, standing if standing == self.standing else 0)


@pytest.fixture
def group(clock: HandClock) -> Group:
    return Group(clock)


@pytest.fixture
async def lease(gate: Gate, group: Group, clock: HandClock) -> Lease:
    settings = BrokerSettings(
        cluster="c", group="g1", broker=M, data_dir="x", zookeeper="z", loop_stall_ms=1000
    )
    lease = Lease(gate, group, settings, clock)  # type: ignore[arg-type]
    gate.grant(FULL, "serving")
    return lease


HELD = Tenure(Epoch(3), 1)


async def test_a_renewal_counts_from_when_it_was_sent(
    lease: Lease, gate: Gate, group: Group, clock: HandClock
) -> None:
    sent_ms, group.takes_ms = clock.now_ms, 700
    lease.hold(HELD)
    assert await lease.renew()
    assert gate.leased_until_ms() == sent_ms + lease_ms(SESSION_MS) == sent_ms + 2000
    group.takes_ms = 2500  # an answer that is older than what it would give
    sent_ms = clock.now_ms
    await lease.renew()
    assert gate.permission() is NONE


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda g, c: setattr(g, "answers", False), id="no-answer"),
        pytest.param(lambda g, c: setattr(g, "standing", 2), id="another-standing"),
        pytest.param(lambda g, c: setattr(g, "standing", 0), id="no-live-node"),
        pytest.param(
            lambda g, c: setattr(g, "state", Versioned(GroupState(epoch=Epoch(4)), 2)),
            id="another-term",
        ),
    ],
)
async def test_a_renewal_that_does_not_count(
    spoil: "object", lease: Lease, gate: Gate, group: Group, clock: HandClock
) -> None:
    lease.hold(HELD)
    assert callable(spoil)
    spoil(group, clock)
    assert not await lease.renew()
    assert gate.permission() is NONE


async def test_renewal_answered_after_its_tenure_ended_does_not_count(
    lease: Lease, gate: Gate
) -> None:
    """The tenure was closed meanwhile, and its leases are void."""
    lease.hold(HELD)
    renewing = asyncio.create_task(lease.renew())
    await asyncio.sleep(0)
    lease.hold(None)
    assert not await renewing
    assert gate.permission() is NONE


async def test_nothing_is_renewed_without_a_tenure(lease: Lease, group: Group) -> None:
    assert not await lease.renew()
    lease.hold(HELD)
    lease.hold(None)
    assert not await lease.renew()
    assert group.asked == 0


async def test_renewal_during_a_loop_stall_does_not_count(
    lease: Lease, gate: Gate, group: Group, clock: HandClock
) -> None:
    running = asyncio.create_task(lease._watch_loop())
    try:
        await asyncio.sleep(0)
        lease.hold(HELD)
        group.takes_ms = 1600  # 100 ms later than the watch of the loop allows
        assert not await lease.renew()
        assert gate.permission() is NONE
        group.takes_ms = 0
        assert not await lease.renew()  # the watch has not had its turn yet
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.now_ms += 1
        group.takes_ms = 400
        assert await lease.renew()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_lease_end_is_notified(group: Group) -> None:
    group.clock = clock = SystemClock()
    group.session_timeout_ms = 300
    gate = Gate(clock)
    settings = BrokerSettings(cluster="c", group="g1", broker=M, data_dir="x", zookeeper="z")
    lease = Lease(gate, group, settings, clock)  # type: ignore[arg-type]
    running = asyncio.create_task(lease.run())
    try:
        gate.grant(FULL, "serving")
        lease.hold(HELD)
        async with asyncio.timeout(20):
            while not gate.permission():
                await gate.changed.wait()
            group.answers = False
            while gate.permission():
                await gate.changed.wait()
            gate.count_grants(lambda: FOREVER)  # and that it holds again
            lease.recheck()
            await gate.changed.wait()
        assert gate.permission() is FULL
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_session_that_is_over_ends_its_lease_at_once(
    lease: Lease, gate: Gate, group: Group
) -> None:
    """Even if it was ended early, and ZooKeeper cannot be reached to announce the broker again."""
    lease.hold(HELD)
    assert await lease.renew()
    assert gate.permission() is FULL
    [over] = group.over
    over()
    assert gate.permission() is NONE
    gate.count_grants(lambda: FOREVER)
    assert gate.permission() is FULL, "what slaves granted stands"


async def test_renewals_go_on_by_themselves(gate: Gate, group: Group, clock: HandClock) -> None:
    settings = BrokerSettings(cluster="c", group="g1", broker=M, data_dir="x", zookeeper="z")
    group.session_timeout_ms = 60  # every 10 ms
    lease = Lease(gate, group, settings, clock)  # type: ignore[arg-type]
    running = asyncio.create_task(lease.run())
    try:
        await asyncio.sleep(0)
        assert group.asked == 0
        lease.hold(HELD)
        await until(lambda: group.asked >= 3)
        group.standing = 0  # nothing to ask while this broker has no live node
        await asyncio.sleep(0.05)
        asked = group.asked
        await asyncio.sleep(0.05)
        assert group.asked == asked
        group.standing = 1
        group.changed.notify()
        await until(lambda: group.asked > asked)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
