"""Outages are as long as clients measured them: brokers report when they were served."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import Mode
from fmqoperator.api.times import as_text
from fmqoperator.core.observation import Periods
from fmqoperator.tests.test_outages import kill_master
from fmqoperator.tests.world import World, running


def serving(made: World) -> None:
    """Both brokers report a minute later: the master is reachable and serves."""
    made.now_ms += 60_000
    since_ms = made.now_ms - 60_000
    made.periods = {
        "g1-0": Periods(since_ms, since_ms),
        "g1-1": Periods(heard_master="g1-0", heard_at_ms=made.now_ms),
    }
    made.round()


def take_over(made: World, **reported: Any) -> None:
    """The slave has served the reads since 100 ms."""
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(2), reader=BrokerId("g1-1"), reason="gone"
    )
    known = made.periods["g1-1"]
    made.periods["g1-1"] = replace(known, reads_since_ms=made.now_ms - 100, **reported)


def last(made: World) -> dict[str, Any]:
    found: dict[str, Any] = made.body["status"]["lastTransition"]
    return found


def test_lost_master_then_outage_counts_from_its_last_message() -> None:
    """Its node is lost: no container ended, and the operator looks when the slave serves."""
    made = running()
    serving(made)
    heard_ms = made.now_ms
    made.now_ms += 2_700
    kill_master(made)
    take_over(made)
    made.round()
    assert last(made)["readOutageMs"] == 2_600
    assert made.body["status"]["noWritesSince"] == as_text(heard_ms)
    assert made.body["status"]["memory"]["noWritesSinceMs"] == heard_ms


def test_silence_seen_before_then_the_last_message_counts() -> None:
    """The operator notices 1.3 s late that the master hangs, and later that the slave serves."""
    made = running()
    serving(made)
    made.now_ms += 1_300
    made.silent.add("g1-0")
    made.round()
    assert made.body["status"]["access"] == "UNKNOWN"
    made.now_ms += 1_500
    kill_master(made)
    take_over(made)
    made.round()
    assert last(made)["readOutageMs"] == 2_700


def test_jittering_age_then_the_start_time_stays() -> None:
    """An age gives another moment at each look; another slave was cut off long before."""
    made = running(replicas=3)
    serving(made)
    heard_ms = made.now_ms
    cut_off = Periods(heard_master="g1-0", heard_at_ms=heard_ms - 30_000)
    made.periods["g1-2"] = cut_off
    made.now_ms += 2_000
    kill_master(made)
    for jitter_ms in (0, 30, -20, 50):
        known = made.periods["g1-1"]
        made.periods["g1-1"] = replace(known, heard_at_ms=heard_ms + jitter_ms)
        made.round()
        made.now_ms += 100
    started_ms = made.body["status"]["memory"]["noReadsSinceMs"]
    assert heard_ms - 20 <= started_ms <= heard_ms


def test_move_between_two_looks_then_its_pause_is_measured() -> None:
    """The old master reports its end, the new one its start."""
    made = running(True)
    serving(made)
    made.now_ms += 5_000
    ended_ms = made.now_ms - 1_900
    made.periods["g1-0"] = Periods(
        reads_until_ms=ended_ms, writes_until_ms=ended_ms - 50,
        heard_master="g1-1", heard_at_ms=made.now_ms,
    )  # fmt: skip
    made.periods["g1-1"] = Periods(made.now_ms - 1_100, made.now_ms - 1_000)
    made.state = replace(
        made.state, epoch=Epoch(3), master=BrokerId("g1-1"), isr=frozenset({BrokerId("g1-0")})
    )
    made.round()
    assert (last(made)["readOutageMs"], last(made)["writeOutageMs"]) == (800, 950)


@pytest.mark.parametrize("reports", [True, False])
def test_dead_slave_in_sync_then_writes_wait_for_its_return(reports: bool) -> None:
    """Both brokers are killed; the master is back at once, its slave still counts as in sync."""
    made = running()
    serving(made)
    kill_master(made)
    made.round()
    started_ms = made.now_ms
    made.broken.clear()
    made.now_ms += 1_100
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=True)
    made.state = replace(made.state, epoch=Epoch(3), reason="g1-0 is back")
    cause = "in-sync slaves are not connected: g1-1"
    alone = Periods(reads_since_ms=made.now_ms, unanswered=cause)
    made.periods = {"g1-0": alone} if reports else {}
    made.round()
    assert last(made)["readOutageMs"] == 1_100
    if not reports:  # an older broker: only the in-sync set is known
        assert last(made)["writeOutageMs"] == 1_100
        return
    assert made.condition("WriteAvailable")["reason"] == "NotAcknowledged"
    assert made.condition("WriteAvailable")["message"] == cause
    assert made.body["status"]["access"] == "READ"
    assert "writeOutageMs" not in last(made)
    assert made.body["status"]["noWritesSince"] == as_text(started_ms)
    made.now_ms += 20_400
    made.periods = {"g1-0": Periods(made.now_ms - 20_400, made.now_ms - 400)}
    made.round()
    assert last(made)["writeOutageMs"] == 21_100
