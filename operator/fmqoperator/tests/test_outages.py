"""When an outage started: at the dead broker's silence, or at its container's end; and the report
on a change of the serving broker that is observed half-way."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId, Epoch, Permission
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.api.times import as_text
from fmqoperator.core.observation import Answer
from fmqoperator.core.status.group import status
from fmqoperator.core.status.outages import UNHEARD_MS
from fmqoperator.tests.world import World, running


def kill_master(made: World) -> None:
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], ready=False, waiting="CrashLoopBackOff")


@pytest.mark.parametrize(("silent_ms", "reads_ms"), [(2_000, 2_000), (UNHEARD_MS + 1, 0)])
def test_outage_starts_with_the_dead_brokers_silence(silent_ms: int, reads_ms: int) -> None:
    """Its live node lasts until its session expires; a longer silence means the operator was cut
    off.
    """
    made = running()
    answers = {b: answer for b, answer in made.seen().answers.items() if b != "g1-0"}
    made.body["status"] = status(replace(made.seen(), answers=answers))
    assert made.body["status"]["access"] == "UNKNOWN"
    made.now_ms += silent_ms
    kill_master(made)
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(2), reader=BrokerId("g1-1"), reason="gone"
    )
    made.round()
    found = made.body["status"]
    assert found["lastTransition"]["readOutageMs"] == reads_ms
    assert "unansweredSinceMs" not in found["memory"]
    assert made.now_ms - found["memory"]["noWritesSinceMs"] == reads_ms


@pytest.mark.parametrize(
    ("ended_ago_ms", "more_ms"),
    [(900, 400), (1_700, 1_200), (300, 0), (-700, 0), (3_600_000, 0)],
    ids=["just now", "reported late", "this second", "again", "before it served"],
)
def test_outage_starts_when_the_serving_container_ended(ended_ago_ms: int, more_ms: int) -> None:
    """By its container's end, which is rounded down to seconds: half a second is added."""
    made = running()
    made.now_ms += 60_000
    kill_master(made)
    made.round()
    pod = made.pods["g1-0"]
    made.pods["g1-0"] = replace(pod, ended_ms=made.now_ms - ended_ago_ms)
    made.now_ms += 1500
    for _ in range(2):  # it does not change
        made.round()
    made.state = replace(
        made.state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(2), reader=BrokerId("g1-1"), reason="gone"
    )
    made.round()
    assert made.body["status"]["lastTransition"]["readOutageMs"] == 1500 + more_ms
    made.broken.clear()
    made.now_ms += 1000
    made.pods["g1-0"] = replace(pod, waiting="", ready=True, ended_ms=made.now_ms)
    made.state = replace(
        made.state, mode=Mode.MASTER, epoch=Epoch(4), reader=BrokerId("g1-0"), reason="back"
    )
    made.round()
    assert made.body["status"]["lastTransition"]["writeOutageMs"] == 2500 + more_ms


def test_outage_that_ended_unseen_has_no_duration() -> None:
    """A minute after its end another operator is active: it was no outage of a minute."""
    made = running()
    kill_master(made)
    made.round()
    made.broken.clear()
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=True)
    made.state = replace(made.state, epoch=Epoch(3), reason="g1-0 is back")
    made.now_ms += 60_000
    made.body["status"] = status(replace(made.seen(), watched=False))
    last = made.body["status"]["lastTransition"]
    assert (last["to"], last["epoch"]) == ("g1-0 FULL", 3)
    assert "readOutageMs" not in last
    assert "writeOutageMs" not in last
    made.round()
    assert made.body["status"]["lastTransition"] == last, "it stays what it was"


@pytest.mark.parametrize("seen_first", [False, True], ids=["it was so", "it was seen to begin"])
def test_outage_that_started_unseen_has_no_duration(seen_first: bool) -> None:
    """ZooKeeper was away for ten minutes, and the serving broker too; it is back a second later."""
    made = running()
    kill_master(made)
    if seen_first:
        made.round()
    made.now_ms += 600_000
    for watched in (False, True):
        made.body["status"] = status(replace(made.seen(), watched=watched))
        made.now_ms += 1000
    made.broken.clear()
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=True)
    made.state = replace(made.state, epoch=Epoch(3), reason="g1-0 is back")
    made.round()
    last = made.body["status"]["lastTransition"]
    assert (last["to"], last["epoch"]) == ("g1-0 FULL", 3)
    reported = {last.get("readOutageMs"), last.get("writeOutageMs")}
    assert reported == ({602_000} if seen_first else {None})
    assert "noReadsSinceMs" not in made.body["status"]["memory"]


def test_move_ending_during_the_observation_is_reported_whole() -> None:
    """ZooKeeper was asked before the new master: that broker's answer is newer."""
    made = running(True)
    made.annotate(SWITCHOVER, "g1-1")
    made.run(lambda w: w.state.successor_incarnation != "")
    seen = made.seen()
    ahead = Answer(BrokerId("g1-1"), Permission.FULL, Epoch(made.state.epoch + 2))
    torn = status(replace(seen, answers={**seen.answers, BrokerId("g1-1"): ahead}))
    assert torn["lastTransition"] == made.body["status"]["lastTransition"]
    assert torn["memory"]["lastServed"] == "g1-0 FULL"
    made.body["status"] = torn
    made.run()
    last = made.body["status"]["lastTransition"]
    assert (last["from"], last["to"]) == ("g1-0 FULL", "g1-1 FULL")
    assert "in place of g1-0" in last["cause"]


def promoted(made: World) -> None:
    """The reader is master now, and no slave is left that the policy could count."""
    made.state = replace(
        made.state,
        mode=Mode.MASTER,
        epoch=Epoch(4),
        master=BrokerId("g1-1"),
        reader=BrokerId("g1-1"),
        isr=frozenset(),
        reason="g1-1 becomes master",
    )


def test_master_without_slave_then_write_outage_lasts() -> None:
    """A promotion with two brokers: a client waits until the lost one is back in sync."""
    made = running()
    kill_master(made)
    made.round()
    started_ms = made.now_ms
    made.now_ms += 40_000
    promoted(made)
    made.round()
    found = made.body["status"]
    assert (found["access"], found["lastTransition"]["to"]) == ("READ", "g1-1 FULL")
    assert found["lastTransition"]["readOutageMs"] == 40_000
    assert "writeOutageMs" not in found["lastTransition"], "it lasts"
    assert found["noWritesSince"] == as_text(started_ms)
    assert "noReadsSince" not in found
    made.now_ms += 95_000
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-0")}))
    made.round()
    found = made.body["status"]
    assert found["lastTransition"]["writeOutageMs"] == 135_000
    assert "noWritesSince" not in found


def test_later_pause_then_transition_keeps_its_figure_unknown() -> None:
    """A later pause does not fill in what the transition did not measure."""
    made = running()
    made.body["status"]["lastTransition"].pop("writeOutageMs", None)
    made.now_ms += 86_400_000
    made.state = replace(made.state, isr=frozenset())
    made.round()
    assert made.body["status"]["noWritesSince"] == as_text(made.now_ms)
    made.now_ms += 3_000
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-1")}))
    made.round()
    assert "writeOutageMs" not in made.body["status"]["lastTransition"]


def test_outage_started_unseen_then_no_time_is_shown() -> None:
    made = running()
    kill_master(made)
    found = status(replace(made.seen(), watched=False))
    assert "noReadsSince" not in found
    assert "noWritesSince" not in found
