"""A waiting step does not hide that no broker serves, and names what it waits for."""

from dataclasses import replace

import pytest

from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import Mode
from fmqoperator.api.base import Json
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.tests.world import World, running


def die(made: World, *brokers: str) -> None:
    """Kill these brokers; they do not come back by themselves."""
    for broker in brokers:
        made.broken.add(broker)
        pod = made.pods[broker]
        made.pods[broker] = replace(pod, ready=False, waiting="CrashLoopBackOff")


def after_a_while(made: World) -> Json:
    for _ in range(10):
        made.round()
        made.turn()
    return status(made.seen())


def says(found: Json, kind: str) -> str:
    return str(next(c["message"] for c in found["conditions"] if c["type"] == kind))


def test_waiting_update_does_not_hide_that_only_a_slave_serves() -> None:
    made = running(True, replicas=3)
    made.spec(image="new:2")
    die(made, "g1-0")
    found = after_a_while(made)
    assert (found["phase"], found["access"]) == ("ReadOnly", "READ")
    assert found["message"].startswith("g1-0: it ended with status 78: ")
    assert "g1-1 serves reads: g1-0 is gone" in found["message"]
    assert "the master does not serve" in says(found, "Progressing")


def test_waiting_scale_down_does_not_hide_that_none_serves() -> None:
    made = running(True, replicas=3)
    made.spec(replicas=2)
    made.round()
    made.turn()
    leaving = made.pods["g1-2"]
    assert leaving.deleting
    die(made, "g1-0", "g1-1")
    made.turn()
    made.pods["g1-2"] = leaving
    made.round()
    found = status(made.seen())
    assert "its pod still exists" in says(found, "Progressing")
    assert (found["phase"], found["access"]) == ("Down", "NONE")
    assert found["message"].startswith("g1-0: it ended with status 78: ")
    assert "; master g1-0 is gone; " in found["message"]


def test_waiting_switchover_does_not_hide_a_lost_master() -> None:
    """A switchover to g1-1, which still copies; the master dies, and then the reader."""
    made = running(True, replicas=3)
    assert made.config is not None
    made.config = replace(made.config, value=replace(made.config.value, master=BrokerId("g1-1")))
    made.state = replace(made.state, isr=frozenset({BrokerId("g1-2")}))
    die(made, "g1-0")
    found = after_a_while(made)
    assert (found["phase"], found["access"], found["reader"]) == ("ReadOnly", "READ", "g1-2")
    wish = "g1-1 is to be master instead of g1-0, which is gone: it hands over once it returns"
    assert says(found, "Progressing") == wish
    die(made, "g1-2")
    found = after_a_while(made)
    assert (found["phase"], found["access"]) == ("Down", "NONE")
    cause = "master g1-0 is gone, and g1-2, which served the reads, is gone"
    assert found["message"].endswith(f"; {cause}"), "the brokers' own faults come first"


def test_lost_reader_is_not_reported_as_serving() -> None:
    made = running()
    die(made, "g1-0")
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    die(made, "g1-1")
    made.broken.discard("g1-0")
    made.pods["g1-0"] = replace(made.pods["g1-0"], waiting="", ready=False)
    found = status(made.seen())
    assert (found["phase"], found["access"]) == ("Down", "NONE")
    cause = "master g1-0 does not serve yet, and g1-1, which served the reads, is gone"
    assert says(found, "ReadAvailable") == cause
    assert found["message"].startswith("g1-0: it ended with status 78: ")
    assert found["message"].endswith(cause)


def test_promotion_reports_what_the_reader_waits_for() -> None:
    made = running(True, replicas=3)
    die(made, "g1-0", "g1-2")
    made.run(lambda w: w.state.mode is Mode.SLAVE_CONSUME)
    assert made.config is not None
    wish = replace(made.config.value, master=BrokerId("g1-1"), declared_lost=BrokerId("g1-0"))
    made.config = replace(made.config, value=wish)
    seen = made.seen()
    reader = BrokerId("g1-1")
    answer = replace(seen.answers[reader], cause="waits for every other member but g1-0")
    found = status(replace(seen, answers={**seen.answers, reader: answer}))
    assert found["phase"] == "ReadOnly"
    assert says(found, "Progressing").endswith(
        "which is declared lost: waits for every other member but g1-0"
    )


def test_new_master_lost_before_its_term_then_group_is_down() -> None:
    made = running(True)
    made.opens = False
    made.annotate(SWITCHOVER, "g1-1")
    made.run(lambda w: w.state.required_epoch != 0)
    assert status(made.seen())["phase"] == "Switching"
    die(made, "g1-0", "g1-1")
    found = after_a_while(made)
    assert found["phase"] == "Down"
    assert found["message"].startswith("g1-0: it ended with status 78: ")
    assert found["message"].endswith("; master g1-1 is gone")
    assert "is gone: it must return to open its term" in says(found, "Progressing")


@pytest.mark.parametrize("pods_left", [True, False])
def test_hibernation_waiting_for_zookeeper_reports_it(pods_left: bool) -> None:
    made = running(replicas=2)
    made.zookeeper_away = True
    made.spec(hibernated=True)
    if not pods_left:
        made.pods.clear()
    found = status(made.seen())
    cause = "spec.hibernated is set, but no broker is stopped: zk:2181 does not answer"
    expected = ("Hibernating", cause) if pods_left else ("Hibernated", "spec.hibernated is set")
    assert (found["phase"], found["message"]) == expected


def test_hibernation_names_the_brokers_it_waits_for() -> None:
    made = running(replicas=3)
    made.spec(hibernated=True)
    made.round()
    made.turn()
    assert made.pods["g1-2"].deleting
    found = status(made.seen())
    assert (found["phase"], found["message"]) == (
        "Hibernating",
        "brokers are being stopped: g1-1, g1-2",
    )


def phases_until_it_runs(made: World) -> list[str]:
    """Return the phases as `kubectl get -w` shows them."""
    out: list[str] = []
    for _ in range(30):
        made.round()
        phase = str(made.body["status"]["phase"])
        out += [phase] if out[-1:] != [phase] else []
        if phase == "Running":
            return out
        made.turn()
    raise AssertionError(f"it does not run: {out}")


def asleep() -> World:
    made = running()
    made.spec(hibernated=True)
    made.run(lambda w: w.body["status"]["phase"] == "Hibernated")
    made.spec(hibernated=False)
    return made


def test_a_group_that_wakes_is_not_down() -> None:
    made = asleep()
    assert "Down" not in phases_until_it_runs(made)


def test_a_group_that_does_not_wake_is_down() -> None:
    made = asleep()
    made.round()
    made.turn()
    starts = replace(made.pods["g1-0"], ready=False, waiting="ContainerCreating")
    starts = replace(starts, unready_since_ms=made.now_ms)
    made.pods["g1-0"] = replace(starts, waiting="CrashLoopBackOff", exit_code=65)
    assert status(made.seen())["phase"] == "Down"
    made.pods["g1-0"] = starts
    made.now_ms += 59_000
    assert status(made.seen())["phase"] == "Creating"
    made.now_ms += 2_000
    assert status(made.seen())["phase"] == "Down"


def test_reads_that_are_handed_back_are_a_switch() -> None:
    made = running()
    cause = "g1-1 hands over to master g1-0"
    made.state = replace(made.state, mode=Mode.HANDOVER, reader=BrokerId("g1-1"), reason=cause)
    found = status(made.seen())
    assert (found["phase"], found["message"], found["access"]) == ("Switching", cause, "NONE")
    die(made, "g1-0")
    assert status(made.seen())["phase"] == "Down"


def test_offsets_of_a_stopped_reader_are_in_zookeeper() -> None:
    made = running()
    made.state = replace(
        made.state, mode=Mode.HANDOVER, epoch=Epoch(3), reader=BrokerId("g1-1"), reason="it stops"
    )
    for final, place in ((False, "at g1-1"), (True, "in ZooKeeper")):
        made.state = replace(made.state, offsets_final=final)
        found = {c["type"]: c for c in status(made.seen())["conditions"]}["OffsetsSynced"]
        assert f"newest consumer offsets are {place} until g1-0 returns" in found["message"]


@pytest.mark.parametrize(
    ("master_lives", "hibernated", "kind"),
    [(True, False, "Normal"), (False, False, "Warning"), (False, True, "Normal")],
)
def test_last_reader_that_stops_warns_unless_asked(
    master_lives: bool, hibernated: bool, kind: str
) -> None:
    made = running()
    made.state = replace(made.state, mode=Mode.HANDOVER, epoch=Epoch(3), reader=BrokerId("g1-1"))
    if not master_lives:
        die(made, "g1-0")
    made.spec(hibernated=hibernated)
    events = [a for a in plan(made.seen()) if isinstance(a, EmitEvent)]
    assert [e.type for e in events if e.reason == "EpochOpened"] == [kind]
