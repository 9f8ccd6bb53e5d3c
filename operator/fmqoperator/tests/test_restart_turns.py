"""A new default image reaches the groups one after another, and stops where it fails."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fmqoperator.api.group import RESTART
from fmqoperator.core import facts, steps
from fmqoperator.core.actions import PutGroupConfig, Requeue, RestartPod
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Restart
from fmqoperator.core.restart_turns import (
    OWN,
    brought,
    holding,
    is_brought,
    noted,
    template_of,
    updating,
    waits_for,
)
from fmqoperator.tests.plan_kit import restarts
from fmqoperator.tests.world import World, running

NEW = "fmq-broker:new"


def fleet(count: int = 3, **spec: Any) -> list[World]:
    """Return groups as declared, under an operator whose default image is a new one."""
    made = [running(moves=True, **spec) for _ in range(count)]
    for world in made:
        world.image = NEW
    return made


def held(world: World) -> str:
    memory: dict[str, str] = world.body["status"].get("memory", {})
    return memory.get("restartTurn", "")


def images(world: World) -> set[str]:
    return {pod.image for pod in world.pods.values()}


def go_round(worlds: list[World]) -> None:
    """Run a round of each group, and what happens by itself."""
    for at, world in enumerate(worlds):
        others = [(n, w) for n, w in enumerate(worlds) if n != at]
        brought = [f"shop/g{n}" for n, other in others if held(other) not in ("", OWN)]
        world.updating = tuple(brought)
        world.round()
        world.turn()


def go_on(worlds: list[World], until: Callable[[], bool], most: int = 400) -> None:
    for _ in range(most):
        if until():
            return
        go_round(worlds)
    raise AssertionError(f"never: {[w.sentence() for w in worlds]}")


def started(world: World) -> bool:
    return any(isinstance(a, RestartPod | PutGroupConfig) for a in world.done)


def test_group_whose_pods_are_current_waits_for_no_other() -> None:
    made = running(moves=True)
    assert is_brought(made.seen()), "its template is the operator's"
    assert brought(made.seen()) == ""
    made.updating = ("shop/g9",)
    assert waits_for(made.seen()) == ""


@pytest.mark.parametrize(("most", "waits"), [(0, False), (1, True), (2, False)])
def test_group_waits_while_as_many_as_allowed_have_a_turn(most: int, waits: bool) -> None:
    """0: as many as there are."""
    (made,) = fleet(1)
    made.updating = ("shop/g9",)
    made.round()
    seen = made.seen()
    seen = replace(seen, defaults=replace(seen.defaults, updates_at_once=most))
    assert ("shop/g9 first" in waits_for(seen)) is waits


@pytest.mark.parametrize("most", [0, 1])
def test_broker_out_of_sync_is_left_longer_if_groups_take_turns(most: int) -> None:
    (made,) = fleet(1)
    made.round()
    seen = holding(made.seen(), "")
    seen = replace(seen, defaults=replace(seen.defaults, updates_at_once=most))
    assert steps._patience_ms(seen) == (facts.BEHIND_MS if most else facts.STUCK_MS)
    assert steps._patience_ms(holding(seen, NEW)) == facts.STUCK_MS


def test_turn_is_kept_until_a_step_that_spreads() -> None:
    seen = running(moves=True).seen()
    restart = Restart("g1-1", "uid", "a new template")
    assert updating(seen, None) == updating(seen, restart) == ""
    assert updating(seen, replace(restart, spreads=True)) == OWN


def test_template_is_the_operators_again_once_all_pods_have_it() -> None:
    """Until then the change is the resource's own, and waits for no turn."""
    seen = running(moves=True).seen()
    status = seen.group.status
    note = {"template": template_of(seen), "template_from_operator": False}
    status = status.model_copy(update={"memory": status.memory.model_copy(update=note)})
    seen = replace(seen, group=seen.group.model_copy(update={"status": status}))
    assert noted(seen, (), known=True)["template_from_operator"]
    assert not noted(seen, (), known=False)["template_from_operator"]
    due = [({"kind": "StatefulSet"}, "")]
    assert not noted(seen, due, known=True)["template_from_operator"]


def test_one_group_after_another() -> None:
    worlds = fleet()
    order: list[int] = []
    for _ in range(400):
        go_round(worlds)
        assert sum(bool(held(w)) for w in worlds) <= 1
        order += [n for n, w in enumerate(worlds) if started(w) and n not in order]
        for n in order[:-1]:
            assert images(worlds[n]) == {NEW}, "the next begins when the one before is done"
            assert not held(worlds[n])
        if all(images(w) == {NEW} and not held(w) for w in worlds):
            break
    assert order == [0, 1, 2]


def test_bad_image_stops_at_the_first_group_and_others_report_it() -> None:
    worlds = fleet()
    for world in worlds:
        world.bad_images.add(NEW)
    go_on(worlds, lambda: bool(restarts(worlds[0])))
    for _ in range(60):
        go_round(worlds)
    assert restarts(worlds[0]) == ["g1-1"]
    for world in worlds[1:]:
        assert images(world) == {"fmq-broker:test"}
        assert world.body["status"]["phase"] == "Running"
        assert world.condition("Ready")["status"] == "True", "no person is to be woken for that"
        assert world.condition("ConfigApplied")["reason"] == "RestartsDue"
        assert "shop/g0 first: the operator's new image rolls out to 1 group" in world.sentence()
        assert world.round() == [Requeue(30_000)], "the operator looks no more often for that"
    for world in worlds:
        world.image = "fmq-broker:mended"
    go_on(worlds, lambda: all(images(w) == {"fmq-broker:mended"} for w in worlds))
    go_on(worlds, lambda: not any(held(w) for w in worlds))


@pytest.mark.parametrize("own", ["its image", "a restart"])
def test_groups_own_change_does_not_wait_for_others(own: str) -> None:
    worlds = fleet(2)
    worlds[0].bad_images.add(NEW)
    go_on(worlds, lambda: bool(held(worlds[0])))
    if own == "its image":
        worlds[1].spec(image=NEW)
    else:
        worlds[1].annotate(RESTART, "now")
    go_on(worlds, lambda: images(worlds[1]) == {NEW} and not held(worlds[1]))
    assert held(worlds[0])


def test_group_with_a_bad_image_of_its_own_blocks_no_other() -> None:
    worlds = fleet(2)
    worlds[0].bad_images.add("bad")
    worlds[0].spec(image="bad")
    go_on(worlds, lambda: images(worlds[1]) == {NEW} and not held(worlds[1]))
    assert "bad" in images(worlds[0])


def test_group_lacking_a_slave_before_the_roll_blocks_no_other() -> None:
    """Its slave gets the change at once, and need not come up for that."""
    worlds = fleet(2)
    worlds[0].broken.add("g1-1")
    worlds[0].turn()
    go_on(worlds, lambda: images(worlds[1]) == {NEW} and not held(worlds[1]))
    assert not held(worlds[0])


@pytest.mark.parametrize("change", [{"paused": True}, {"image": "fmq-broker:bad"}])
def test_group_taken_out_of_the_roll_passes_its_turn_on(change: dict[str, Any]) -> None:
    worlds = fleet(2)
    worlds[0].bad_images |= {NEW, "fmq-broker:bad"}
    go_on(worlds, lambda: bool(restarts(worlds[0])))
    worlds[0].spec(**change)
    go_on(worlds, lambda: images(worlds[1]) == {NEW})


def test_the_turn_outlives_the_operator() -> None:
    """Between two brokers of one group no other group starts, whichever is looked at first."""
    worlds = fleet(2)
    go_on(worlds, lambda: bool(restarts(worlds[0])))
    for _ in range(3):
        worlds[1].updating = ("shop/g0",)
        worlds[1].round()
    assert not started(worlds[1])


def test_two_groups_with_a_started_roll_both_continue() -> None:
    """An operator died before it could record that it had started with one of them."""
    worlds = fleet(2)
    go_on(worlds, lambda: bool(held(worlds[0])))
    worlds[1].body["status"]["memory"]["restartTurn"] = NEW
    go_on(worlds, lambda: all(images(w) == {NEW} and not held(w) for w in worlds))


def test_group_whose_slave_restarted_early_waits_with_its_master() -> None:
    """Its slave ended by itself, and came back with the new image."""
    world = fleet(1)[0]
    go_on([world], lambda: images(world) == {NEW, "fmq-broker:test"})
    world.turn()
    world.body["status"]["memory"].pop("restartTurn")
    world.updating, world.done = ("shop/g9",), []
    assert not [a for a in world.round() if isinstance(a, PutGroupConfig)]
    assert "shop/g9 first" in world.sentence()
    assert not held(world)
    world.updating = ()
    assert [a for a in world.round() if isinstance(a, PutGroupConfig)]
    assert held(world) == NEW


def as_held(world: World) -> Observation:
    world.body["status"].setdefault("memory", {})["restartTurn"] = NEW
    return world.seen()


def test_a_turn_is_over_when_every_broker_counts() -> None:
    world = running(moves=True)
    assert updating(as_held(world), None) == ""
    world.state = replace(world.state, isr=frozenset())
    assert updating(as_held(world), None) == NEW
    stale = fleet(1)[0]
    stale.round()  # the template is new, the pods are not
    assert updating(as_held(stale), None) == NEW
    stale.body["spec"]["hibernated"] = True
    assert updating(as_held(stale), None) == ""


@pytest.mark.parametrize(("most", "begin"), [(0, 3), (2, 2)])
def test_configured_number_of_groups_roll_at_once(
    most: int, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fmqoperator.core.observation import Defaults

    monkeypatch.setattr(
        "fmqoperator.tests.world.Defaults",
        lambda image: Defaults(image, updates_at_once=most),
    )
    worlds = fleet(3)
    for world in worlds:
        world.bad_images.add(NEW)
    for _ in range(60):
        go_round(worlds)
    assert sum(bool(held(w)) for w in worlds) == begin


@pytest.mark.parametrize("own", [None, "custom:1"])
def test_operators_new_template_reaches_groups_one_by_one(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [running(moves=True, **({"image": own} if own else {})) for _ in range(3)]
    monkeypatch.setattr("fmqoperator.core.children.pod.USER", 10002)
    order: list[int] = []
    for _ in range(400):
        go_round(worlds)
        assert sum(bool(held(w)) for w in worlds) <= 1
        order += [n for n, w in enumerate(worlds) if started(w) and n not in order]
        if order == [0]:
            assert "first: the operator's new pod template rolls out to 1" in worlds[1].sentence()
        if len(order) == len(worlds) and not any(held(w) for w in worlds):
            break
    assert order == [0, 1, 2]
    assert [len(restarts(w)) for w in worlds] == [2, 2, 2]


def test_groups_own_template_waits_for_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the operator's change waits: this one was requested here and now."""
    worlds = [running(moves=True) for _ in range(2)]
    monkeypatch.setattr("fmqoperator.core.children.pod.USER", 10002)
    worlds[0].bad_images.add("fmq-broker:test")
    go_on(worlds, lambda: bool(held(worlds[0])))
    for _ in range(5):
        go_round(worlds)
    assert restarts(worlds[1]) == []
    worlds[1].zookeeper_away = True
    worlds[1].spec(resources={"limits": {"memory": "2Gi"}})
    go_round(worlds)
    worlds[1].zookeeper_away = False
    go_on(worlds, lambda: restarts(worlds[1]) == ["g1-1", "g1-0"] and not held(worlds[1]))
    assert held(worlds[0])


def behind_a_bad_image() -> World:
    """It has the new template, and waits behind a group that stopped at the image."""
    worlds = fleet(2)
    for world in worlds:
        world.bad_images.add(NEW)
    go_on(worlds, lambda: bool(restarts(worlds[0])))
    other = worlds[1]
    other.updating = ("shop/g0",)
    other.round()
    return other


@pytest.mark.parametrize(("unready_ms", "given"), [(None, 0), (2_000, 0), (3_600_000, 1)])
def test_briefly_out_of_sync_slave_waits_for_its_groups_turn(
    unready_ms: int | None, given: int
) -> None:
    """The image fails, and stopped at the first group: it takes no slave from another."""
    other = behind_a_bad_image()
    other.state = replace(other.state, isr=frozenset())
    if unready_ms is not None:
        since_ms = other.now_ms - unready_ms
        pod = replace(other.pods["g1-1"], ready=False, unready_since_ms=since_ms)
        other.pods["g1-1"] = pod
    other.round()
    assert len(restarts(other)) == given
    assert not held(other)


@pytest.mark.parametrize("broker", ["g1-0", "g1-1"], ids=["master", "slave"])
@pytest.mark.parametrize(("unready_ms", "given"), [(180_000, 0), (3_600_000, 1)])
def test_broker_back_with_its_node_waits_for_its_groups_turn(
    broker: str, unready_ms: int, given: int
) -> None:
    """Behind a bad image a node restarts: it is full of brokers of many groups that read their
    journals, and none of them would come back."""
    other = behind_a_bad_image()
    since_ms = other.now_ms - unready_ms
    down = replace(other.pods[broker], ready=False, waiting="reads", unready_since_ms=since_ms)
    other.pods[broker] = down
    other.round()
    assert len(restarts(other)) == given


def test_group_with_a_slave_out_of_sync_takes_no_turn() -> None:
    """Its slave's disk is full, for example: it might never give the turn back."""
    worlds = fleet(2)
    for _ in range(5):
        worlds[0].state = replace(worlds[0].state, isr=frozenset())
        worlds[0].round()
    assert restarts(worlds[0]) == []
    assert not held(worlds[0])
    assert "g1-1 is not in sync" in worlds[0].sentence()
    go_on(worlds[1:], lambda: images(worlds[1]) == {NEW} and not held(worlds[1]))


@pytest.mark.parametrize(("behind_ms", "given"), [(300_000, 0), (3_600_000, 1)])
def test_slave_long_out_of_sync_gets_the_new_image(behind_ms: int, given: int) -> None:
    """Its pod is ready and its disk full, for example: it would wait for itself for ever."""
    world = fleet(1)[0]
    world.state = replace(world.state, isr=frozenset())
    world.round()
    world.now_ms += behind_ms
    for _ in range(3):
        world.state = replace(world.state, isr=frozenset())
        world.round()
    assert len(restarts(world)) == given
    assert not held(world)


def test_failed_roll_is_repaired_by_the_next_image() -> None:
    """A slave that the old image left out of sync does not block the new one for ever."""
    worlds = [running(moves=True, replicas=3), *fleet(1)]
    worlds[0].image = NEW
    go_on(worlds, lambda: restarts(worlds[0]) == ["g1-2", "g1-1"])
    for _ in range(2):
        worlds[0].turn()
    for world in worlds:
        world.image = "fmq-broker:mended"
    for _ in range(400):
        if all(images(w) == {"fmq-broker:mended"} and not held(w) for w in worlds):
            return
        state = worlds[0].state
        if worlds[0].pods["g1-1"].image == NEW:  # it runs, is linked, and does not come in sync
            worlds[0].state = replace(state, isr=state.isr - {"g1-1"})
        worlds[0].now_ms += 5_000
        go_round(worlds)
    raise AssertionError(f"never: {[w.sentence() for w in worlds]}")


def test_group_waiting_with_its_own_change_is_not_ready() -> None:
    """A person who waits for Ready after an edit waits until the edit is applied."""
    worlds = fleet(2)
    for world in worlds:
        world.bad_images.add(NEW)
    go_on(worlds, lambda: bool(restarts(worlds[0])))
    worlds[1].spec(resources={"limits": {"memory": "2Gi"}})
    for _ in range(5):
        go_round(worlds)
        assert worlds[1].condition("Ready")["status"] == "False"
    assert "UpdateQueued" in worlds[1].condition("Progressing")["reason"]
    for world in worlds:
        world.image = "fmq-broker:mended"
    go_on(worlds, lambda: all(w.condition("Ready")["status"] == "True" for w in worlds))
    assert images(worlds[1]) == {"fmq-broker:mended"}
    worlds[1].image, worlds[1].updating = "fmq-broker:newer", ("shop/g9",)
    worlds[1].round()
    worlds[1].round()
    assert "first: the operator's new image" in worlds[1].sentence()
    assert worlds[1].condition("Ready")["status"] == "True", "its own change is long done"


def test_a_declared_master_does_not_wait_for_the_queue() -> None:
    """The master's pod was recreated meanwhile: it runs what the other one is to get."""
    world = fleet(1)[0]
    world.updating = ("shop/g9",)
    world.round()
    world.pods["g1-0"] = replace(world.pods["g1-0"], deleting=True, ready=False)
    for _ in range(10):
        world.turn()
        world.round()
    assert images(world) == {NEW, "fmq-broker:test"}
    world.spec(switchover={"to": "g1-1"})
    for _ in range(10):
        world.turn()
        world.round()
    assert world.state.master == "g1-1"
    world.updating = ()
    go_on([world], lambda: images(world) == {NEW} and world.state.master == "g1-1")
