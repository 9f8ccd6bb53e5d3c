"""A master that may lack what its slaves hold hears every in-sync slave that is there."""

from dataclasses import replace

import pytest

from fmqcore.cluster import Mode
from fmqcore.failover.evidence import Action
from fmqcore.failover.machine import decide
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.tests.test_failover_machine import NOW, PARAMS, M, S, T, U, config, evidence, state
from fmqcore.words import BrokerId

BACK = {"session": True, "fresh": True, "fits": True, "whole": True, "unclean": True}
FSYNC = AckPolicy(Flush.FSYNC)
FSYNC_ALL = AckPolicy(Flush.FSYNC, how_many=HowMany.ALL)
FSYNC_ALONE = AckPolicy(Flush.FSYNC, how_many=HowMany.NONE)
NOBODY_ASKED = AckPolicy(Flush.OS_CACHE, how_many=HowMany.NONE)


@pytest.mark.parametrize(
    ("policy", "cut", "heard", "gone", "action"),
    [
        (FSYNC, False, (), (), Action.OPEN),  # it lacks nothing of what it acknowledged
        (FSYNC, True, (), (), Action.WAIT),
        (FSYNC, True, (S,), (), Action.WAIT),
        (FSYNC, True, (S, T), (), Action.OPEN),
        (FSYNC, True, (S,), (T,), Action.WAIT),  # one slave acknowledges: it may have been that one
        (FSYNC_ALL, True, (S,), (T,), Action.OPEN),  # each has what was acknowledged
        (FSYNC, True, (), (S, T, U), Action.WAIT),  # what was acknowledged may be only with them
        (FSYNC_ALONE, True, (), (S, T, U), Action.OPEN),  # no acknowledgement asked for one
        (NOBODY_ASKED, False, (), (), Action.WAIT),  # they would stay ahead for ever
        (NOBODY_ASKED, False, (S,), (), Action.WAIT),
        (NOBODY_ASKED, False, (S, T), (), Action.OPEN),
        (NOBODY_ASKED, False, (), (S, T, U), Action.OPEN),
    ],
)
def test_who_is_heard(
    policy: AckPolicy,
    cut: bool,
    heard: tuple[BrokerId, ...],
    gone: tuple[BrokerId, ...],
    action: Action,
) -> None:
    facts = BACK | {"reader_heard": S in heard, "t": T in heard}
    known = evidence(Mode.MASTER, facts)
    known = replace(
        known, tail_cut=cut, live={b: live for b, live in known.live.items() if b not in gone}
    )
    lenient = replace(config(facts), policy=policy)
    assert decide(M, lenient, state(Mode.MASTER, facts), known, NOW, PARAMS).action is action
