"""A master whose start cut away what it could not read hears every in-sync slave that is there."""

from dataclasses import replace

import pytest

from fmqcore.cluster import Mode
from fmqcore.failover.evidence import Action
from fmqcore.failover.machine import decide
from fmqcore.policy import AckPolicy, Flush
from fmqcore.tests.test_failover_machine import NOW, PARAMS, M, S, T, U, config, evidence, state
from fmqcore.words import BrokerId

BACK = {"session": True, "fresh": True, "fits": True, "whole": True, "unclean": True}
FSYNC = AckPolicy(Flush.FSYNC)


@pytest.mark.parametrize(
    ("cut", "heard", "gone", "action"),
    [
        (False, (), (), Action.OPEN),  # it fsyncs: it lacks nothing of what it acknowledged
        (True, (), (), Action.WAIT),
        (True, (S,), (), Action.WAIT),
        (True, (S, T), (), Action.OPEN),
        (True, (S,), (T,), Action.OPEN),  # nobody waits for one that is not there
        (True, (), (S, T, U), Action.OPEN),
    ],
)
def test_who_is_heard(
    cut: bool, heard: tuple[BrokerId, ...], gone: tuple[BrokerId, ...], action: Action
) -> None:
    facts = BACK | {"reader_heard": S in heard, "t": T in heard}
    known = evidence(Mode.MASTER, facts)
    known = replace(
        known, tail_cut=cut, live={b: live for b, live in known.live.items() if b not in gone}
    )
    lenient = replace(config(facts), policy=FSYNC)
    assert decide(M, lenient, state(Mode.MASTER, facts), known, NOW, PARAMS).action is action
