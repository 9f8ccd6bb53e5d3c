"""Special cases of replication, simulated. (On real processes: `e2e/tests/`, same names.)

Each is judged by I1 to I13 besides its own assertions; times are virtual, hence exact.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from e2e.history.client_events import Delivered, Failed, Stored, Unsure
from e2e.traffic.traffic import Member as Reader
from e2e.traffic.traffic import Sending
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode
from fmqsim.tests.directed import MASTER, QUICK, READER, SLAVE, THIRD, Stage, play

ALONE = AckPolicy(how_many=HowMany.NONE)
MIB = 1 << 20
FLOOD = Sending("p", "t", burst=(4, 8), pause_s=(0.02, 0.04), size=(8_000, 24_000), window=400)


def test_slave_and_consumer_below_the_log_start_resume_there() -> None:
    """Slave and consumer return below the log start: each continues at what is left, whole."""
    slow = Reader("slow", "t", "slow", nacks=0.0, holds=0.0, buffer_bytes=4096)
    back: list[float] = []

    async def trouble(stage: Stage) -> None:
        await stage.comes(lambda: stage.traffic.delivered.get("slow"), "it has started")
        stage.clients["slow"].node.pause()
        had = stage.journal(SLAVE).end
        slave = stage.down(SLAVE)
        await stage.comes(lambda: stage.journal(MASTER).journal_start > had, "it is deleted")
        slave.let_go()
        await stage.comes(lambda: stage.in_sync(SLAVE), "it has all that there is")
        assert stage.journal(SLAVE).journal_start >= had, "it begins where its master does"
        back.append(stage.loop.now_ms)
        stage.clients["slow"].node.resume()

    def after(stage: Stage) -> None:
        offsets = defaultdict(list)
        for event in stage.events(Delivered):
            if event.readers == "slow":
                offsets[event.place].append(event.offset)
        jumps = [later - one for seen in offsets.values() for one, later in pairwise(seen)]
        assert any(jump > 1 for jump in jumps), "it went on at what is left"
        assert stage.events(Delivered, since_ms=back[0])

    play(
        trouble,
        policy=ALONE,
        settings={"retention_bytes": 1 << 18},
        sending=(replace(QUICK, size=(2_000, 6_000)),),
        members=(READER, slow),
        after=after,
    )


def test_master_crash_after_replication_before_flush() -> None:
    """The slave has more than its master has on disk: it serves reads and returns the suffix."""

    async def trouble(stage: Stage) -> None:
        host = stage.brokers[MASTER]
        await stage.stored(50)
        master = stage.journal(MASTER)
        host.hold()
        before, kept = stage.commit(MASTER).commit_end, master.durable_end
        assert kept < before, "acknowledged, and not on the master's disk"
        host.cut_power()
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "the slave is read")
        assert stage.journal(SLAVE).end >= before
        host.power_on()
        host.let_go()
        await stage.comes(stage.whole, "the master is back")
        assert stage.journal(MASTER).end >= before, "it has what it had lost, from its slave"

    play(trouble, policy=AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.DURABLE, HowMany.ONE))


def test_sliding_window_under_a_stalled_slave() -> None:
    """Bytes sent to a stalled slave are bounded by its credit, and so is memory."""
    credit = 2 * MIB

    async def trouble(stage: Stage) -> None:
        link = stage.network.link(MASTER, SLAVE)
        stage.network.stall(MASTER, SLAVE)
        start, most = stage.journal(MASTER).end, 0
        while stage.journal(MASTER).end < start + 4 * credit:
            await stage.stored(20)
            most = max(most, sum(pipe.waiting_bytes for pipe in link.pipes))
        assert credit // 4 < most <= credit, "it waits, and is no more than the slave asked for"
        stage.network.heal(MASTER, SLAVE)
        await stage.comes(lambda: stage.in_sync(SLAVE), "it has caught up")

    settings = {"credit_bytes": credit, "dead_after_ms": 60_000, "tail_cache_bytes": MIB}
    play(trouble, policy=ALONE, settings=settings, sending=(FLOOD,))


def test_idle_heartbeats() -> None:
    """Nothing to send for longer than a dead link is tolerated: the link stays up."""

    async def trouble(stage: Stage) -> None:
        links = list(stage.network.link(SLAVE, MASTER).pipes)
        state, end = stage.now_state, stage.journal(MASTER).end
        await stage.until(lambda: False, 6.0)  # five times `dead_after_ms`
        assert stage.journal(MASTER).end == end, "nothing was sent"
        assert list(stage.network.link(SLAVE, MASTER).pipes) == links
        assert stage.now_state == state

    play(trouble, sending=(), members=())


def test_dead_link_then_waiting_producers_get_an_error_at_once() -> None:
    """A cable is pulled. Without the notice the answer would come only with `ack_timeout_ms`."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        cut_ms = stage.loop.now_ms
        stage.cut(MASTER, SLAVE)
        raw = stage.ask_once(MASTER)
        await stage.comes(lambda: raw.done, "it has an outcome")
        [outcome] = [e for e in stage.events(Unsure, Failed) if e.who == "raw"]
        assert "DELIVERY_UNKNOWN" in outcome.reason
        assert not stage.in_sync(SLAVE), "it left the in-sync set first"
        assert outcome.at_ms - cut_ms < 5000
        stage.heal(MASTER, SLAVE)
        await stage.stored(20)

    play(trouble, settings={"ack_timeout_ms": 600_000})


def test_a_new_empty_slave_fills_up_under_live_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttled, and not counted until it has everything; the producers' p99 does not double."""
    rate = MIB
    monkeypatch.setattr(
        "fmqsim.adapters.disk._HICCUP", 0.0
    )  # a wait that is left has a cause of ours

    async def trouble(stage: Stage) -> None:
        await stage.comes(lambda: stage.journal(MASTER).end > 2 * MIB, "there is much")
        since_ms = stage.loop.now_ms
        await stage.stored(300)
        third = stage.empty(THIRD)
        await stage.comes(lambda: not stage.in_sync(THIRD), "it is out of sync")
        full, full_ms = stage.journal(MASTER).end, stage.loop.now_ms
        before = p99(stage.waits_ms(since_ms, full_ms))
        third.let_go()
        await stage.comes(lambda: stage.in_sync(THIRD), "it has filled up")
        took_s = (stage.loop.now_ms - full_ms) / 1000
        assert stage.journal(THIRD).end >= full, "it counts only once it has all"
        assert took_s > 0.9 * full / rate, "it was throttled"
        assert p99(stage.waits_ms(full_ms, stage.loop.now_ms)) <= 2 * before

    heavy = replace(QUICK, burst=(4, 8), size=(2_000, 5_000))
    play(trouble, slaves=2, settings={"learner_bytes_per_s": rate}, sending=(heavy,))


def p99(ordered: list[float]) -> float:
    return ordered[len(ordered) * 99 // 100]


def test_slave_disconnected_in_mid_batch() -> None:
    """Cut again and again in a flood of batches."""

    async def trouble(stage: Stage) -> None:
        for _ in range(8):
            end = stage.journal(SLAVE).end
            await stage.comes(partial(has_more, stage, end), "more comes")
            assert stage.network.reset(MASTER, SLAVE)
        assert stage.brokers[SLAVE].lives == 1
        await stage.comes(lambda: stage.in_sync(SLAVE), "it is in sync again")

    play(trouble, policy=ALONE, sending=(FLOOD,))


def has_more(stage: Stage, than: int) -> bool:
    return stage.journal(SLAVE).end > than


def test_ack_all_with_one_slave_away() -> None:
    """Waiting sends fail at once; then the in-sync set is enough, but not for `strict`."""
    policy = AckPolicy(how_many=HowMany.ALL)

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        down_ms = stage.loop.now_ms
        third = stage.down(THIRD)
        await stage.comes(lambda: not stage.in_sync(THIRD), "it is out of the in-sync set")
        assert stage.loop.now_ms - down_ms < 5000
        await stage.stored(20)  # by the remaining brokers
        config = stage.configs["g1"]
        stage.operator.put(replace(config, policy=replace(policy, strict=True)))
        await stage.until(lambda: False, 1.0)  # every broker knows it
        strict_ms = stage.loop.now_ms
        await stage.until(lambda: False, 4.0)
        assert not stage.events(Stored, since_ms=strict_ms)
        third.let_go()
        await stage.stored(20)

    patient = replace(QUICK, delivery_timeout_s=30.0)
    play(trouble, slaves=2, policy=policy, settings={"ack_timeout_ms": 600_000}, sending=(patient,))


@pytest.mark.parametrize("counts", list(SlaveCounts))
def test_slave_returning_with_everything_becomes_in_sync(counts: SlaveCounts) -> None:
    """Nothing can be stored before it counts (with SENT it never did)."""

    async def trouble(stage: Stage) -> None:
        host = stage.brokers[SLAVE]
        host.hold()
        host.stop()
        await stage.comes(lambda: not host.node.alive and not stage.in_sync(SLAVE), "it is away")
        host.let_go()
        await stage.comes(lambda: stage.in_sync(SLAVE), "it is back")

    play(trouble, policy=AckPolicy(counts=counts), sending=(), members=())
