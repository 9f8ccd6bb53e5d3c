"""Requests that move no mastership, with the operator killed after each action.

The next operator knows what the cluster and ZooKeeper hold, and ends where one operator alone would
have: the same brokers, volumes, members and settings, no broker restarted twice.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest

from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import FENCE, RESTART
from fmqoperator.core.actions import Requeue
from fmqoperator.core.plan import plan
from fmqoperator.tests.plan_kit import members, restarts
from fmqoperator.tests.test_plan_safety import check
from fmqoperator.tests.world import World, running


@dataclass(frozen=True, slots=True)
class End:
    """What must be the same, however often the operator was killed."""

    pods: tuple[str, ...]
    members: tuple[str, ...]
    permissions: tuple[str, ...]
    volumes: tuple[tuple[str, int], ...]  # the size of each, and its number of owners
    restarted: tuple[str, ...]
    masters: tuple[str, ...]  # the brokers that opened a term since
    kept: bool  # whether volumes of leaving brokers are kept


def end(made: World) -> End:
    assert made.config is not None
    spec = made.children["StatefulSet", "g1"]["spec"]
    return End(
        tuple(sorted(made.pods)),
        tuple(members(made)),
        tuple(m.permission.name or "NONE" for m in made.config.value.members),
        tuple((claim.requested, len(claim.owners)) for _, claim in sorted(made.claims.items())),
        tuple(restarts(made)),
        tuple(made.terms),
        spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain",
    )


def _asleep(made: World) -> None:
    made.spec(hibernated=True)
    made.run(lambda w: not w.pods and w.body["status"]["phase"] == "Hibernated")


WISHES: Final[dict[str, tuple[Callable[[World], None], Callable[[World], None]]]] = {
    "a slave less": (lambda w: None, lambda w: w.spec(replicas=2)),
    "two slaves less": (lambda w: None, lambda w: w.spec(replicas=1, policy={"howMany": "none"})),
    "a slave more": (lambda w: None, lambda w: w.spec(replicas=4)),
    "sleep": (lambda w: None, lambda w: w.spec(hibernated=True)),
    "wake": (_asleep, lambda w: w.spec(hibernated=False)),
    "wake with a slave less": (_asleep, lambda w: w.spec(hibernated=False, replicas=2)),
    "larger volumes": (lambda w: None, lambda w: w.spec(storage={"size": "20Gi"})),
    "a restart": (lambda w: None, lambda w: w.annotate(RESTART, "monday")),
    "a fence": (lambda w: None, lambda w: w.annotate(FENCE, "g1-2")),
    "no network policy": (lambda w: None, lambda w: w.spec(networkPolicy={"enabled": False})),
}


def started(name: str) -> World:
    before, ask = WISHES[name]
    storage = {"size": "10Gi", "onScaleDown": "Delete", "onDelete": "Delete"}
    made = running(True, replicas=3, storage=storage)
    before(made)
    made.done.clear()
    made.terms.clear()
    ask(made)
    return made


def finish(made: World) -> End:
    calm = 0
    for _ in range(150):
        check(made.seen())
        calm = calm + 1 if made.round() == [Requeue(30_000)] else 0
        if calm == 4:
            return end(made)
        made.turn()
    raise AssertionError(f"never calm: {made.sentence()}")


@pytest.mark.parametrize("name", sorted(WISHES))
def test_operator_killed_after_any_action_then_plan_completes(name: str) -> None:
    alone = finish(started(name))
    made, killed, calm = started(name), 0, 0
    while calm < 4:
        actions: list[Any] = plan(made.seen())
        for left in range(len(actions) if len(actions) > 1 else 0):
            other, killed = deepcopy(made), killed + 1
            other.round(killed_after=left)
            other.body["status"] = {}  # the next operator finds no status either
            for _ in range(killed % 3):
                other.turn()
            assert finish(other) == alone, (killed, left, actions[left])
        calm = calm + 1 if made.round() == [Requeue(30_000)] else 0
        made.turn()
    assert killed > 0
    assert end(made) == alone
    assert made.state.mode is Mode.MASTER
