"""A group state that is older than a journal: what each member does in every mode, and reports.

ZooKeeper was restored from a backup. The journals decide, whatever the backup says about who
serves.
"""

from dataclasses import replace

import pytest

from fmqcore.failover.evidence import Action, Decision, LeaseRule
from fmqcore.failover.machine import decide
from fmqcore.ids import BrokerId, Epoch, Permission
from fmqcore.tests.failover.expected_table import (
    EPOCH,
    NOW,
    PARAMS,
    Facts,
    M,
    S,
    T,
    U,
    config,
    evidence,
    live,
    state,
)
from fmqcore.zk.group_state import Mode

WORDS = "holds a newer epoch than the group's state in ZooKeeper"
MODES = (Mode.MASTER, Mode.SLAVE_CONSUME, Mode.HANDOVER)
STARTED: Facts = {"session": True, "fresh": True, "t": True, "reader_heard": True}
AT_REST: Facts = STARTED | {"stream": True}
GONE: Facts = STARTED | {"master_gone": True, "reader_gone": True, "checked": True, "long": True}


def decision(
    me: BrokerId, mode: Mode, f: Facts, newest: BrokerId, epoch: int = EPOCH + 5
) -> Decision:
    """The decision of `me` while the journal of a live member, `newest`, ends in that epoch."""
    known = evidence(mode, f)
    known = replace(known, live={**known.live, newest: live(newest, epoch=epoch)})
    if newest == me:
        known = replace(known, journal_epoch=Epoch(epoch))
    return decide(me, config(f), state(mode, f, me), known, NOW, PARAMS)


@pytest.mark.parametrize("newest", [M, S, T, U])
@pytest.mark.parametrize("me", [M, S, T])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f", [STARTED, AT_REST, GONE, GONE | {"frozen": True}])
def test_every_member_waits_and_names_the_newer_journal(
    mode: Mode, me: BrokerId, newest: BrokerId, f: Facts
) -> None:
    made = decision(me, mode, f, newest)
    assert (made.action, made.permission, made.edit) == (Action.WAIT, Permission.NONE, None)
    assert f"{newest} {WORDS}" in made.reason
    assert "fmq cluster begin-again g says" in made.reason


@pytest.mark.parametrize("mode", MODES)
def test_newer_journal_counts_after_its_member_is_gone(mode: Mode) -> None:
    known = evidence(mode, GONE)
    others = {id: member for id, member in known.live.items() if id != T}
    known = replace(known, live=others, newer_gone={T: Epoch(EPOCH + 5)})
    made = decide(S, config(GONE), state(mode, GONE, S), known, NOW, PARAMS)
    assert (made.action, made.edit) == (Action.WAIT, None)
    assert f"{T} {WORDS}" in made.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("me", [M, S, T])
def test_cached_older_state_is_looked_at_before_it_is_reported(mode: Mode, me: BrokerId) -> None:
    """The cached state alone may be older: a term was opened since."""
    made = decision(me, mode, AT_REST | {"fresh": False}, me)
    assert (made.action, made.reason) == (Action.LOOK, "")
    cut_off = decision(me, mode, AT_REST | {"fresh": False, "session": False}, me)
    assert cut_off.action is not Action.LOOK
    assert WORDS not in cut_off.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("me", [M, S, T])
@pytest.mark.parametrize("f", [STARTED, GONE])
def test_unfinished_term_of_the_master_is_not_newer(mode: Mode, me: BrokerId, f: Facts) -> None:
    """Its EPOCH batch is durable before the state is set; no other member may have it."""
    assert WORDS not in decision(me, mode, f, M, EPOCH + 1).reason
    assert WORDS in decision(me, mode, f, M, EPOCH + 2).reason
    assert WORDS in decision(me, mode, f, S, EPOCH + 1).reason


def test_a_restarted_reader_claims_beside_an_unfinished_term() -> None:
    made = decision(S, Mode.SLAVE_CONSUME, STARTED, M, EPOCH + 1)
    assert made.action is Action.CLAIM


@pytest.mark.parametrize(
    ("me", "mode", "f", "permission", "lease"),
    [
        (M, Mode.MASTER, {"wish": True}, Permission.FULL, LeaseRule.ZOOKEEPER_OR_GRANTS),
        (S, Mode.SLAVE_CONSUME, {"stream": True}, Permission.READ, LeaseRule.ZOOKEEPER),
    ],
)
def test_holder_of_a_term_serves_on_and_names_the_newer_journal(
    me: BrokerId, mode: Mode, f: Facts, permission: Permission, lease: LeaseRule
) -> None:
    made = decision(me, mode, STARTED | f | {"held": True}, T)
    assert (made.action, made.permission, made.lease) == (Action.WAIT, permission, lease)
    assert f"{T} {WORDS}" in made.reason


def test_a_group_without_a_state_opens_above_its_journals() -> None:
    made = decision(M, Mode.NEW, STARTED | {"records": True}, M)
    assert made.edit is not None
    assert (made.action, made.edit.epoch) == (Action.OPEN, EPOCH + 6)
    assert WORDS not in decision(S, Mode.NEW, STARTED, S).reason
