"""Which of several replicas is active: every state of the Lease, and replicas in a race."""

from typing import Any

import pytest

from fmqoperator.shell.election import (
    DURATION_S,
    RENEW_DEADLINE_S,
    RENEW_S,
    Sight,
    next_step,
    patience_s,
    pause_s,
    released,
    still_held,
)

NOW = "2026-01-01T00:00:00.000000Z"


def lease(holder: str, version: str = "1", duration_s: int = DURATION_S) -> dict[str, Any]:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_s,
        "acquireTime": "then",
        "renewTime": "then",
        "leaseTransitions": 3,
    }
    return {"metadata": {"name": "l", "resourceVersion": version}, "spec": spec}


def test_missing_lease_then_a_replica_creates_it() -> None:
    step = next_step(None, "a", None, 0, NOW)
    assert step.create
    assert step.write is not None
    assert step.write["spec"]["holderIdentity"] == "a"


@pytest.mark.parametrize(
    ("found", "seen", "now_s", "writes", "transitions"),
    [
        (lease("a"), None, 0, True, 3),  # its own: renewed
        (lease("a"), Sight("a", "1", 0), 99, True, 3),
        (lease(""), None, 0, True, 4),  # released: taken at once
        (lease("b"), None, 1000, False, 3),  # first seen now: however old it looks
        (lease("b"), Sight("b", "1", 0), DURATION_S - 0.1, False, 3),
        (lease("b"), Sight("b", "1", 0), DURATION_S, True, 4),  # silent for too long
        (lease("b", "2"), Sight("b", "1", 0), 1000, False, 3),  # its holder lives: it renewed
        (lease("c"), Sight("b", "1", 0), 1000, False, 3),  # another replica has it
        (lease("b", duration_s=1), Sight("b", "1", 0), 1, True, 4),
    ],
)
def test_each_state(
    found: dict[str, Any], seen: Sight | None, now_s: float, writes: bool, transitions: int
) -> None:
    step = next_step(found, "a", seen, now_s, NOW)
    assert (step.write is not None) == writes
    if step.write is not None:
        spec = step.write["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", transitions)
        assert spec["renewTime"] == NOW
        assert (spec["acquireTime"] == NOW) == (transitions > 3)
        assert step.write["metadata"]["resourceVersion"] == "1", "or two could take it"


def test_released_lease_is_free() -> None:
    step = next_step(released(lease("b")), "a", None, 0, NOW)
    assert step.write is not None


def test_the_holder_stops_before_another_may_start() -> None:
    assert still_held(0, RENEW_DEADLINE_S - 0.1)
    assert not still_held(0, RENEW_DEADLINE_S)
    assert RENEW_S * 2 < RENEW_DEADLINE_S < DURATION_S - RENEW_S


def test_never_two_by_their_own_clocks() -> None:
    """The holder is cut off at any moment; another takes the Lease only after it gave up."""
    for cut_s in range(40):
        stored, renewed_s, seen, taken_s = lease("a", "0"), 0.0, None, None
        version = 0
        for tick in range(1200):
            now_s = tick / 10
            if now_s < cut_s and tick % int(RENEW_S * 10) == 0:
                step = next_step(stored, "a", None, now_s, NOW)
                assert step.write is not None
                version += 1
                stored = {**step.write, "metadata": {"resourceVersion": str(version)}}
                renewed_s = now_s
            if tick % 20 == 7:
                step = next_step(stored, "b", seen, now_s, NOW)
                seen = step.sight
                if step.write is not None:
                    taken_s = now_s
                    break
        assert taken_s is not None
        assert not still_held(renewed_s, taken_s), (cut_s, renewed_s, taken_s)


@pytest.mark.parametrize("takes_s", [0.0, 0.3, 3.9, 100.0])
def test_lease_holder_without_answers_stops_before_expiry(takes_s: float) -> None:
    """Refused at once, slowly, or never answered: it is never active longer than allowed."""
    now_s, tries = 0.0, 0
    while still_held(0, now_s):
        now_s += pause_s(0, now_s)
        now_s += min(takes_s, patience_s(0, now_s))
        tries += 1
        assert now_s <= RENEW_DEADLINE_S
        assert tries < 20
    assert tries > 1
    assert pause_s(0, 0) == RENEW_S == patience_s(0, 0)
