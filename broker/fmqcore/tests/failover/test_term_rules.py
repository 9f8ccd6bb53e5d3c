"""Small rules beside the machine: rest of a tenure, counting grants, the best slave."""

from fmqcore.failover.evidence import Link
from fmqcore.failover.term_rules import (
    FOREVER,
    Tenure,
    after_announce,
    granted_until,
    is_best,
    is_claim,
    promise_ms,
    record_term,
)
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, Position
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker

TENURE = Tenure(Epoch(7), 1)


def test_a_tenure_ends_on_a_gap_of_the_live_node() -> None:
    assert after_announce(TENURE, 1, granted_now=False) == TENURE, "it stood throughout"
    assert after_announce(TENURE, 2, granted_now=False) is None, "somebody may have claimed"
    assert after_announce(TENURE, 2, granted_now=True) == Tenure(Epoch(7), 2), "no broker could"
    assert after_announce(None, 2, granted_now=True) is None


def test_a_grant_of_each_in_sync_slave_is_needed() -> None:
    one, two = BrokerId("g-1"), BrokerId("g-2")
    links = {one: Link(lease_until_ms=50), two: Link(lease_until_ms=40)}
    assert granted_until({one, two}, links) == 40
    assert granted_until({one, two}, {one: links[one]}) == 0, "it never granted"
    assert granted_until((), links) == FOREVER


def test_a_promise_outlasts_its_grant_by_more_than_clocks_differ() -> None:
    """Clocks may drift apart by some percent: a promise lasts longer than the grant serves."""
    for grant_ms in (100, 600, 3000, 60_000):
        assert promise_ms(grant_ms) >= grant_ms * 1.05


def test_best_slave_is_chosen_by_epoch_then_end_then_name() -> None:
    me, rival = BrokerId("g-1"), BrokerId("g-2")
    config = GroupConfig(
        GroupName("g"), BrokerId("g-0"), tuple(Member(BrokerId(f"g-{n}"), "a:1") for n in range(3))
    )
    state = GroupState(isr=frozenset({me, rival}))

    def best(epoch: int, end: int) -> bool:
        live = {rival: LiveBroker(rival, "i", "a:1", Epoch(4), Position(100))}
        return is_best(me, (Epoch(epoch), Position(end)), config, state, live)

    assert best(5, 10), "what is longer and older lacks the newer term"
    assert not best(3, 900)
    assert best(4, 108)
    assert not best(4, 92)
    assert best(4, 100), "the smaller name"
    assert is_best(me, (Epoch(1), Position(0)), config, state, {}), "no other broker is there"


def test_term_whose_record_is_handed_over() -> None:
    assert record_term(GroupState(Mode.SLAVE_CONSUME, Epoch(4))) == 4
    assert record_term(GroupState(Mode.HANDOVER, Epoch(5))) == 4
    assert record_term(GroupState(Mode.MASTER, Epoch(6))) == 0


def test_epochs_that_surely_belong_to_a_takeover() -> None:
    reported = {
        mode: [n for n in range(9) if is_claim(GroupState(mode, Epoch(5)), Epoch(n))]
        for mode in Mode
    }
    no_broker: list[int] = []
    assert reported == {
        Mode.NEW: no_broker,
        Mode.MASTER: no_broker,
        Mode.SLAVE_CONSUME: [5],
        Mode.HANDOVER: [4, 5],
    }


def test_slave_that_cannot_claim_is_no_rival() -> None:
    """It may be out of sync with a longer other history, or not permitted to serve reads.

    Waiting for it would leave the group without reads.
    """
    me, out, masked, away = (BrokerId(f"g-{n}") for n in range(1, 5))
    members = [Member(BrokerId("g-0"), "a:1"), *(Member(b, "a:1") for b in (me, out, away))]
    members.append(Member(masked, "a:1", permission=Permission.WRITE))
    config = GroupConfig(GroupName("g"), BrokerId("g-0"), tuple(members))
    state = GroupState(Mode.MASTER, Epoch(7), isr=frozenset({me, masked, away}))
    live = {b: LiveBroker(b, "i", "", Epoch(7), Position(99)) for b in (me, out, masked)}
    assert is_best(me, (Epoch(7), Position(1)), config, state, live)
    back = live | {away: LiveBroker(away, "i", "", Epoch(7), Position(2))}
    assert not is_best(me, (Epoch(7), Position(1)), config, state, back)
