"""The terms in which slaves' grants count for a broker, as a table (F5)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.failover.evidence import Gatherer
from fmqbroker.replication.view import LinkView
from fmqcore.failover.term_rules import FOREVER
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import GroupState, Mode

M, S, T = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")
NOW = 1_000
MASTER = GroupState(Mode.MASTER, Epoch(4), master=M, reader=M)


def gatherer(state: GroupState, held: int, isr: set[BrokerId], **until_ms: int) -> Gatherer:
    """Return broker M's evidence; `until_ms`: how long each slave has granted."""
    views = {"s": S, "t": T}
    parts: Any = SimpleNamespace(
        me=M,
        group=SimpleNamespace(state=SimpleNamespace(value=state), widest_isr=frozenset(isr)),
        master=SimpleNamespace(
            links={views[k]: LinkView(lease_until_ms=ms) for k, ms in until_ms.items()}
        ),
    )
    terms: Any = SimpleNamespace(held=Epoch(held))
    clock: Any = SimpleNamespace(monotonic_ms=lambda: NOW)
    return Gatherer(parts, terms, clock, "i")


@pytest.mark.parametrize(
    ("state", "held", "until_ms"),
    [
        (MASTER, 4, FOREVER),  # no slave is in sync: they are unanimous
        (MASTER, 3, 0),  # this broker opened another one
        (MASTER, 5, 0),
        (MASTER, 0, 0),
        (replace(MASTER, master=S, reader=S), 4, 0),
        (replace(MASTER, mode=Mode.SLAVE_CONSUME, reader=S), 4, 0),
        (replace(MASTER, mode=Mode.HANDOVER, reader=S), 4, 0),
        (replace(MASTER, mode=Mode.SLAVE_CONSUME, master=S), 4, 0),  # this broker reads
    ],
)
def test_empty_set_is_unanimous_only_in_the_masters_own_term(
    state: GroupState, held: int, until_ms: int
) -> None:
    found = gatherer(state, held, set())
    assert found.granted_until() == until_ms
    assert found.granted_now() is bool(until_ms)


@pytest.mark.parametrize(
    ("granted", "until_ms"),
    [
        ({"s": NOW + 5, "t": NOW + 1}, NOW + 1),
        ({"s": NOW + 5, "t": NOW}, NOW),  # its grant has just run out
        ({"s": NOW + 5, "t": 0}, 0),
        ({"s": NOW + 5}, 0),
    ],
)
def test_every_slave_in_sync_must_have_granted(granted: dict[str, int], until_ms: int) -> None:
    found = gatherer(MASTER, 4, {S, T}, **granted)
    assert found.granted_until() == until_ms
    assert found.granted_now() is (until_ms > NOW)
