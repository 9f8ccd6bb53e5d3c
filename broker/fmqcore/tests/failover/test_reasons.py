"""The text of `reason` for people: the awaited event, and lasting causes before momentary ones."""

from itertools import product

from fmqcore.tests.failover.expected_table import M, S, T, check
from fmqcore.zk.group_state import Mode


def test_why_names_the_awaited_event() -> None:
    reported = {
        (M, Mode.MASTER): ({"session": True, "held": True}, "g-0 serves as master"),
        (S, Mode.MASTER): ({"session": True}, "master g-0 is there"),
        (T, Mode.SLAVE_CONSUME): ({"session": True}, "g-1 is there and serves reads"),
        (M, Mode.SLAVE_CONSUME): ({"session": True}, "waits for reader g-1 to hand over"),
        (M, Mode.HANDOVER): ({}, "no live ZooKeeper session"),
    }
    for (me, mode), (f, words) in reported.items():
        assert words in check(me, mode, f).reason
    masked = check(M, Mode.MASTER, {"session": True, "held": True, "reads": False})
    assert "the administrator configured WRITE for g-0" in masked.reason
    fenced = check(S, Mode.MASTER, {"session": True, "masked": True})
    assert fenced.reason == "master g-0 is there (the administrator configured READ for g-1)"
    unclean = check(M, Mode.MASTER, {"session": True, "unclean": True})
    assert "g-1, g-2, g-3" in unclean.reason


def test_why_is_the_cause_that_lasts() -> None:
    """A person's decision is named before a momentary cause."""
    gone = {"session": True, "master_gone": True, "reader_gone": True, "reads": False}
    for mode, up in product((Mode.MASTER, Mode.SLAVE_CONSUME, Mode.HANDOVER), (False, True)):
        reason = check(T, mode, gone | {"in_isr": False, "upstream": up}).reason
        assert "administrator" in reason, mode
