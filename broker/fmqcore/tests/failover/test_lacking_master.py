"""A master that may lack what its slaves hold hears every live in-sync slave.

If it lacks records that a reader has delivered, it waits longer for that reader.
"""

from dataclasses import replace

import pytest

from fmqcore.failover.evidence import Action, Link, Remedy
from fmqcore.failover.machine import decide
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.tests.failover.expected_table import (
    EPOCH,
    NOW,
    PARAMS,
    M,
    S,
    T,
    U,
    config,
    evidence,
    state,
)
from fmqcore.zk.group_state import GroupState, Mode, begin_again_state

BACK = {"session": True, "fresh": True, "fits": True, "whole": True, "unclean": True}
FSYNC = AckPolicy(Flush.FSYNC)
FSYNC_ALL = AckPolicy(Flush.FSYNC, how_many=HowMany.ALL)
FSYNC_ALONE = AckPolicy(Flush.FSYNC, how_many=HowMany.NONE)
NO_SLAVE_ASKED = AckPolicy(Flush.OS_CACHE, how_many=HowMany.NONE)


@pytest.mark.parametrize(
    ("policy", "cut", "heard", "gone", "action"),
    [
        (FSYNC, False, (), (), Action.OPEN),  # it lacks nothing it acknowledged
        (FSYNC, True, (), (), Action.WAIT),
        (FSYNC, True, (S,), (), Action.WAIT),
        (FSYNC, True, (S, T), (), Action.OPEN),
        (FSYNC, True, (S,), (T,), Action.WAIT),  # one slave acknowledges: perhaps that one
        (FSYNC_ALL, True, (S,), (T,), Action.OPEN),  # each has all acknowledged records
        (FSYNC, True, (), (S, T, U), Action.WAIT),  # only they may have acknowledged records
        (FSYNC_ALONE, True, (), (S, T, U), Action.OPEN),  # no acknowledgement asked for one
        (NO_SLAVE_ASKED, False, (), (), Action.WAIT),  # they would stay ahead for ever
        (NO_SLAVE_ASKED, False, (S,), (), Action.WAIT),
        (NO_SLAVE_ASKED, False, (S, T), (), Action.OPEN),
        (NO_SLAVE_ASKED, False, (), (S, T, U), Action.OPEN),
    ],
)
def test_brokers_heard_before_a_term_opens(
    policy: AckPolicy,
    cut: bool,
    heard: tuple[BrokerId, ...],
    gone: tuple[BrokerId, ...],
    action: Action,
) -> None:
    facts = BACK | {"reader_heard": S in heard, "t": T in heard}
    known = evidence(Mode.MASTER, facts)
    known = replace(
        known, tail_lost=cut, live={b: live for b, live in known.live.items() if b not in gone}
    )
    lenient = replace(config(facts), policy=policy)
    assert decide(M, lenient, state(Mode.MASTER, facts), known, NOW, PARAMS).action is action


CACHED = AckPolicy(Flush.OS_CACHE, counts=SlaveCounts.RECEIVED)
CACHED_ALL = replace(CACHED, how_many=HowMany.ALL)
DURABLE_ALL = replace(CACHED_ALL, counts=SlaveCounts.DURABLE)


@pytest.mark.parametrize(
    ("policy", "heard", "whole", "action"),
    [
        (CACHED_ALL, (S,), (S,), Action.OPEN),  # each has all acknowledged records
        (CACHED_ALL, (S,), (), Action.WAIT),  # it lost power, too
        (CACHED_ALL, (S, T), (), Action.WAIT),
        (CACHED_ALL, (S, T), (T,), Action.OPEN),
        (CACHED_ALL, (S, T, U), (), Action.OPEN),  # no slave has it
        (DURABLE_ALL, (S,), (), Action.OPEN),  # it fsynced before it counted
        (CACHED, (S, T), (S, T), Action.WAIT),  # the third alone may have made an ack
        (CACHED, (S, T, U), (), Action.OPEN),
    ],
)
def test_broker_that_lost_power_too_proves_nothing_by_absence(
    policy: AckPolicy, heard: tuple[BrokerId, ...], whole: tuple[BrokerId, ...], action: Action
) -> None:
    """A broker that is not there yet may have kept what both of them lost."""
    known = evidence(Mode.MASTER, BACK)
    links = {b: Link(connected=b in heard, heard=b in heard, whole=b in whole) for b in (S, T, U)}
    live = {b: known.live[b] for b in known.live if b in (M, *heard)}
    known = replace(known, links=links, live=live)
    lenient = replace(config(BACK), policy=policy)
    assert decide(M, lenient, state(Mode.MASTER, BACK), known, NOW, PARAMS).action is action


GONE = {"session": True, "fresh": True, "fits": True, "reader_gone": True, "reader_heard": True}
WAIT_MS, SERVED_WAIT_MS = PARAMS.takeover_wait_ms, PARAMS.served_wait_ms


@pytest.mark.parametrize("mode", [Mode.SLAVE_CONSUME, Mode.HANDOVER])
@pytest.mark.parametrize(
    ("max_delivered_position", "gone_ms", "lenient", "action"),
    [
        (1, WAIT_MS - 1, True, Action.WAIT),
        (1, WAIT_MS, True, Action.OPEN),
        (50, WAIT_MS, True, Action.OPEN),  # everything is here
        (51, WAIT_MS, True, Action.WAIT),
        (51, SERVED_WAIT_MS - 1, True, Action.WAIT),
        (51, SERVED_WAIT_MS, True, Action.OPEN),
        (51, SERVED_WAIT_MS, False, Action.WAIT),  # a person decides
    ],
)
@pytest.mark.parametrize("tried", [False, True])
def test_how_long_a_reader_is_waited_for(
    mode: Mode,
    max_delivered_position: int,
    gone_ms: int,
    lenient: bool,
    action: Action,
    tried: bool,
) -> None:
    facts = GONE | {"t": True, "lenient": lenient}
    known = replace(
        evidence(mode, facts), kept_end=Position(50), reader_gone_since_ms=NOW - gone_ms
    )
    if tried:  # in vain: what it appended for that term is not what is missing
        known = replace(known, journal_end=Position(999))
    stands = replace(state(mode, facts), max_delivered_position=Position(max_delivered_position))
    decision = decide(M, config(facts), stands, known, NOW, PARAMS)
    assert decision.action is action
    if decision.edit is not None:
        taken_back = max_delivered_position > 50
        assert decision.edit.degraded
        assert decision.edit.max_delivered_position == (max_delivered_position if taken_back else 0)
        assert ("taken back" in decision.edit.reason) is taken_back
    elif lenient:
        wait_ms = SERVED_WAIT_MS if max_delivered_position > 50 else WAIT_MS
        assert decision.wake_ms == NOW - gone_ms + wait_ms


@pytest.mark.parametrize(
    ("mode", "served_before", "my_end", "max_delivered_position"),
    [
        (Mode.MASTER, 99, 50, 50),  # of another takeover
        (Mode.SLAVE_CONSUME, 99, 50, 99),  # the previous reader has shown more
        (Mode.SLAVE_CONSUME, 40, 50, 50),
        (Mode.HANDOVER, 99, 50, 99),
    ],
)
def test_claim_records_records_readers_may_have_delivered(
    mode: Mode, served_before: int, my_end: int, max_delivered_position: int
) -> None:
    facts = {"session": True, "fresh": True, "master_gone": True, "reader_gone": True}
    facts |= {"checked": True, "patient": True}
    known = replace(evidence(mode, facts), journal_end=Position(my_end))
    stands = replace(state(mode, facts, T), max_delivered_position=Position(served_before))
    decision = decide(T, config(facts), stands, known, NOW, PARAMS)
    assert decision.action is Action.CLAIM
    assert decision.edit is not None
    assert decision.edit.max_delivered_position == max_delivered_position


@pytest.mark.parametrize(
    ("heard", "lacking_ms", "lenient", "action"),
    [
        (True, 0, True, Action.OPEN),  # all are heard: no slave has it
        (False, SERVED_WAIT_MS - 1, True, Action.WAIT),
        (False, SERVED_WAIT_MS, True, Action.OPEN),
        (False, SERVED_WAIT_MS, False, Action.WAIT),
    ],
)
@pytest.mark.parametrize("mode", [Mode.SLAVE_CONSUME, Mode.HANDOVER])
def test_reader_behind_its_predecessor_delays_the_hand_over(
    mode: Mode, heard: bool, lacking_ms: int, lenient: bool, action: Action
) -> None:
    facts = GONE | {"record": True, "reader_gone": False, "t": heard, "lenient": lenient}
    known = replace(evidence(mode, facts), lacking_since_ms=NOW - lacking_ms)
    stands = replace(state(mode, facts), max_delivered_position=Position(2))
    decision = decide(M, config(facts), stands, known, NOW, PARAMS)
    assert decision.action is action
    if action is Action.WAIT and lenient:
        assert decision.wake_ms == NOW - lacking_ms + SERVED_WAIT_MS
        assert "a reader before" in decision.reason


def test_whole_master_forgets_delivered_records() -> None:
    facts = GONE | {"record": True, "reader_gone": False, "t": True}
    stands = replace(state(Mode.HANDOVER, facts), max_delivered_position=Position(1))
    known = evidence(Mode.HANDOVER, facts)
    edit = decide(M, config(facts), stands, known, NOW, PARAMS).edit
    assert edit is not None
    assert (edit.degraded, edit.max_delivered_position) == (False, 0)
    # the reader came back with an empty disk
    stands = replace(stands, max_delivered_position=Position(2))
    edit = decide(M, config(facts), stands, known, NOW, PARAMS).edit
    assert edit is not None, "every slave in sync is heard: no slave has it"
    assert edit is not None
    assert (edit.degraded, edit.max_delivered_position, edit.offsets) == (True, 2, "")
    assert "taken back" in edit.reason


@pytest.mark.parametrize("mode", [Mode.SLAVE_CONSUME, Mode.HANDOVER])
@pytest.mark.parametrize(
    ("opened", "journal", "all_heard", "action"),
    [
        (6, 6, False, Action.OPEN),
        (6, 5, False, Action.WAIT),  # a copy of long ago in its place
        (6, 0, False, Action.WAIT),  # an empty disk, started and stopped in good order since
        (6, 0, True, Action.WAIT),  # they had nothing either: a person decides
        (6, 4, True, Action.OPEN),  # they gave back all there is
        (0, 1, False, Action.OPEN),  # a state of an older version does not say
        (0, 0, False, Action.WAIT),
    ],
)
def test_master_with_new_disk_waits_for_its_long_lost_reader(
    mode: Mode, opened: int, journal: int, all_heard: bool, action: Action
) -> None:
    """Acknowledged records are with the reader, or nowhere (I2)."""
    facts = {"session": True, "fresh": True, "reader_gone": True, "long": True, "t": True}
    facts["reader_heard"] = all_heard  # its stream is up, its node in ZooKeeper is not
    facts["away"] = not all_heard
    known = replace(evidence(mode, facts), journal_epoch=Epoch(journal))
    stands = replace(state(mode, facts), last_opened_epoch=Epoch(opened))
    decision = decide(M, config(facts), stands, known, NOW, PARAMS)
    assert decision.action is action
    if action is Action.WAIT:
        assert "lost or replaced" in decision.reason


@pytest.mark.parametrize(
    ("mode", "journal", "action"),
    [
        (Mode.MASTER, EPOCH, Action.OPEN),
        (Mode.MASTER, EPOCH - 1, Action.WAIT),
        (Mode.SLAVE_CONSUME, EPOCH - 1, Action.OPEN),  # its successor died before it claimed
        (Mode.SLAVE_CONSUME, EPOCH - 2, Action.WAIT),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["it says", "an older version's"])
def test_term_reopens_over_a_previous_term_the_state_lacks(
    mode: Mode, journal: int, action: Action, known: bool
) -> None:
    facts = {"session": True, "fresh": True, "reader_gone": True, "unclaimed": True}
    facts |= {"t": True, "away": True}
    found = replace(evidence(mode, facts), journal_epoch=Epoch(journal))
    stands = state(mode, facts)
    stands = stands if known else replace(stands, last_opened_epoch=Epoch(0))
    decision = decide(M, config(facts), stands, found, NOW, PARAMS)
    assert decision.action is action
    if action is Action.WAIT:
        assert "was lost or replaced" in decision.reason


@pytest.mark.parametrize("mode", [Mode.MASTER, Mode.SLAVE_CONSUME])
def test_empty_in_sync_set_has_returned_nothing(mode: Mode) -> None:
    """An empty set is not unanimous here: the journal was lost, and no slave has another."""
    facts = {"session": True, "fresh": True, "reader_gone": True, "unclaimed": True, "long": True}
    lost = replace(evidence(mode, facts), journal_epoch=Epoch(0), links={})
    stands = replace(state(mode, facts), isr=frozenset())
    decision = decide(M, config(facts), stands, lost, NOW, PARAMS)
    assert decision.action is Action.WAIT
    assert "with none of them left" in decision.reason


def test_successor_with_the_whole_journal_waits_for_no_broker() -> None:
    """The master gave way to it; since then no journal has opened either of the two terms."""
    facts = {"session": True, "fresh": True, "away": True}
    found = replace(evidence(Mode.MASTER, facts), journal_epoch=Epoch(EPOCH - 2))
    stands = replace(
        state(Mode.MASTER, facts),
        required_epoch=Epoch(EPOCH - 2),
        last_opened_epoch=Epoch(EPOCH - 2),
    )
    assert decide(M, config(facts), stands, found, NOW, PARAMS).action is Action.OPEN


@pytest.mark.parametrize(
    ("policy", "lost", "heard", "action"),
    [
        (FSYNC_ALL, S, "T", Action.WAIT),
        (FSYNC_ALL, S, "TU", Action.OPEN),  # each has what was acknowledged
        (FSYNC, S, "TU", Action.WAIT),  # S and M alone may have acknowledged: a person decides
        (FSYNC, "", "TU", Action.OPEN),  # the master gave way in good order, and is heard
    ],
)
def test_emptied_successor_hears_all_but_the_lost_broker(
    policy: AckPolicy, lost: str, heard: str, action: Action
) -> None:
    """The first slave may have the term that it started from, and little more (I1, ADR 0043)."""
    facts = {"session": True, "fresh": True, "away": True}
    links = {b: Link(connected=True, heard=b == T or "U" in heard) for b in (T, U)}
    if not lost:
        links[S] = Link(connected=True, heard=True)
    facts["unclean"] = True
    found = replace(evidence(Mode.MASTER, facts), journal_epoch=EPOCH, unproven=True, links=links)
    stands = replace(
        state(Mode.MASTER, facts), required_epoch=Epoch(EPOCH - 2), declared_lost=BrokerId(lost)
    )
    stands = replace(stands, isr=frozenset({T, U} if lost else {S, T, U}))
    decision = decide(M, replace(config(facts), policy=policy), stands, found, NOW, PARAMS)
    assert decision.action is action, decision.reason
    if policy is FSYNC and lost:
        assert f"so was that of {lost}: " in decision.reason
        whole = replace(found, may_lack=False)  # made whole, but not durably before it took over
        decision = decide(M, replace(config(facts), policy=policy), stands, whole, NOW, PARAMS)
        assert decision.action is Action.OPEN


@pytest.mark.parametrize(
    ("policy", "isr", "heard", "unproven", "action"),
    [
        (FSYNC, "", "S", False, Action.OPEN),  # it is its own journal
        (FSYNC, "", "S", True, Action.WAIT),  # T or U may have what S missed
        (FSYNC, "", "ST", True, Action.WAIT),
        (FSYNC, "", "STU", True, Action.OPEN),
        (FSYNC, "ST", "S", True, Action.WAIT),
        (FSYNC, "ST", "ST", True, Action.OPEN),
        (FSYNC_ALL, "ST", "S", True, Action.OPEN),  # each has all acknowledged records
        (FSYNC_ALONE, "S", "TU", True, Action.WAIT),  # it was in sync, they were not
        (FSYNC_ALONE, "S", "S", True, Action.OPEN),
        (FSYNC_ALONE, "S", "TU", False, Action.OPEN),
    ],
)
def test_bytes_from_a_stale_slave_prove_nothing(
    policy: AckPolicy, isr: str, heard: str, unproven: bool, action: Action
) -> None:
    """A slave long out of sync has the newest term, too (I1, ADR 0043)."""
    names = {"S": S, "T": T, "U": U}
    known = evidence(Mode.MASTER, BACK)
    links = {b: Link(connected=n in heard, heard=n in heard) for n, b in names.items()}
    live = {b: known.live[b] for b in known.live if b == M or links[b].heard}
    known = replace(known, links=links, live=live, unproven=unproven, tail_lost=unproven)
    stands = replace(state(Mode.MASTER, BACK), isr=frozenset(names[n] for n in isr))
    decision = decide(M, replace(config(BACK), policy=policy), stands, known, NOW, PARAMS)
    assert decision.action is action


@pytest.mark.parametrize(
    ("policy", "isr", "emptied", "action"),
    [
        (FSYNC, "ST", "", Action.OPEN),
        (FSYNC, "ST", "T", Action.WAIT),  # it may have been the one that acknowledged
        (FSYNC, "ST", "ST", Action.WAIT),
        (FSYNC, "ST", "U", Action.OPEN),  # it was not in sync
        (FSYNC_ALL, "ST", "T", Action.OPEN),  # S has what was acknowledged
        (FSYNC_ALONE, "ST", "T", Action.WAIT),
        (FSYNC, "", "", Action.OPEN),
        (FSYNC, "", "U", Action.WAIT),  # it may have been the last one in sync
    ],
)
def test_who_lost_its_journal_too_gives_nothing_back(
    policy: AckPolicy, isr: str, emptied: str, action: Action
) -> None:
    """A volume that is lost comes back empty by itself: that is no person's decision."""
    names = {"S": S, "T": T, "U": U}
    known = evidence(Mode.MASTER, BACK)
    links = {
        b: Link(connected=True, heard=True, whole=n not in emptied, emptied=n in emptied)
        for n, b in names.items()
    }
    known = replace(known, links=links, unproven=True, tail_lost=True)
    stands = replace(state(Mode.MASTER, BACK), isr=frozenset(names[n] for n in isr))
    decision = decide(M, replace(config(BACK), policy=policy), stands, known, NOW, PARAMS)
    assert decision.action is action, decision.reason
    if action is Action.WAIT:
        assert "`fmq cluster begin-again g --epoch 7`" in decision.reason
        lost = ", ".join(names[n] for n in emptied)
        assert f"so was that of {lost}: " in decision.reason
    own = replace(known, unproven=False, tail_lost=False)
    decision = decide(M, replace(config(BACK), policy=policy), stands, own, NOW, PARAMS)
    assert decision.action is Action.OPEN, "its own journal suffices"


def test_an_emptied_group_waits_until_a_person_begins_again() -> None:
    """Every member lost its journal while ZooKeeper kept the state; the epochs go on."""
    known = evidence(Mode.MASTER, BACK)
    links = {b: Link(connected=True, heard=True, emptied=True) for b in (S, T, U)}
    live = {b: replace(broker, epoch=Epoch(0)) for b, broker in known.live.items()}
    known = replace(known, links=links, live=live, unproven=True, journal_epoch=Epoch(0))
    stands = state(Mode.MASTER, BACK)
    decision = decide(M, config(BACK), stands, known, NOW, PARAMS)
    assert (decision.action, decision.remedy) == (Action.WAIT, Remedy.BEGIN_AGAIN)
    decision = decide(M, config(BACK), begin_again_state(stands), known, NOW, PARAMS)
    assert (decision.action, decision.remedy) == (Action.OPEN, Remedy.NONE), decision.reason
    assert decision.edit is not None
    assert decision.edit.epoch == stands.epoch + 1


def test_a_group_begins_again_once_every_slave_is_heard() -> None:
    """A slave that is not started may have what the master lost: no journal is given up unseen."""
    known = evidence(Mode.MASTER, BACK)
    known = replace(known, unproven=True, journal_epoch=Epoch(0), live={M: known.live[M]})
    stands = begin_again_state(state(Mode.MASTER, BACK))
    heard = Link(connected=True, heard=True, emptied=True)
    decision = decide(M, config(BACK), stands, replace(known, links={S: heard}), NOW, PARAMS)
    assert decision.action is Action.WAIT
    assert "take it out of the configuration" in decision.reason
    links = dict.fromkeys((S, T, U), heard)
    decision = decide(M, config(BACK), stands, replace(known, links=links), NOW, PARAMS)
    assert decision.action is Action.OPEN
    alone = replace(config(BACK), members=config(BACK).members[:1])
    decision = decide(M, alone, stands, replace(known, links={}), NOW, PARAMS)
    assert decision.action is Action.OPEN, "all others were taken out of the configuration"


def test_a_new_state_waits_for_a_slave_that_has_a_journal() -> None:
    """ZooKeeper lost its data and the master its disk: the slave has what there is."""
    known = evidence(Mode.NEW, {"session": True, "fresh": True})
    live = {M: known.live[M], S: replace(known.live[S], epoch=EPOCH)}
    decision = decide(M, config({}), GroupState(), replace(known, live=live), NOW, PARAMS)
    assert decision.action is Action.WAIT
    assert "or of a slave, has records" in decision.reason


@pytest.mark.parametrize("mode", [Mode.SLAVE_CONSUME, Mode.HANDOVER])
@pytest.mark.parametrize(("heard", "action"), [("S", Action.WAIT), ("ST", Action.OPEN)])
def test_hand_over_proves_nothing_if_no_slave_had_to_acknowledge(
    mode: Mode, heard: str, action: Action
) -> None:
    """T may be ahead of the reader that hands over, and would be refused for ever (R5)."""
    facts = BACK | {"record": True, "reader_heard": True, "t": "T" in heard}
    known = replace(evidence(mode, facts), unproven=True, tail_lost=True)
    known = replace(known, live={b: known.live[b] for b in (M, S)})
    stands = replace(state(mode, facts), isr=frozenset({S, T}))
    decision = decide(M, replace(config(facts), policy=FSYNC_ALONE), stands, known, NOW, PARAMS)
    assert decision.action is action
