"""What each round of failover does to the gate, the grants and the lease, before any step.

By itself: its parts are stand-ins; no ZooKeeper, no time.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.failover.evidence import Gatherer
from fmqbroker.failover.loop import Failover
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.state_log import StateLog
from fmqbroker.serving.gate import Gate
from fmqcore.failover.evidence import Action, Decision, LeaseRule, Part
from fmqcore.failover.term_rules import Tenure
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode

ME, OTHER, THIRD = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")


class Terms:
    """The term that I hold; `did` is what it was told."""

    frozen = None

    def __init__(self, tenure: Tenure | None) -> None:
        self.tenure = tenure
        self.did: list[str] = []

    @property
    def held(self) -> Epoch:
        return self.tenure.epoch if self.tenure else Epoch(0)

    def drop(self, why: str) -> None:
        self.did.append(f"drop: {why}")
        self.tenure = None


def driver(
    epoch: int, tenure: Tenure | None = None, *, unsettled: bool = False, **more: Any
) -> tuple[Any, Terms]:
    """Failover in a state of that epoch, of which it has only what it looks at here."""
    state = GroupState(Mode.MASTER, Epoch(epoch), OTHER, OTHER)
    failover, terms = Failover.__new__(Failover), Terms(tenure)
    parts = {
        "_me": ME,
        "_gate": Gate(SystemClock()),
        "_group": SimpleNamespace(state=Versioned(state, 1), unsettled=unsettled, standing=2),
        "_terms": terms,
        "_gatherer": SimpleNamespace(granted_until=lambda: 0),
        "_state_log": StateLog(),
        "_slave": SimpleNamespace(upstream=SimpleNamespace(claiming=None)),
    }
    for name, part in (parts | more).items():
        setattr(failover, name, part)
    return failover, terms


def decided(*, may_grant: bool = True) -> Decision:
    nothing = Permission.NONE, LeaseRule.NONE
    return Decision(Action.WAIT, Part.SLAVE, *nothing, "the state says so", may_grant)


@pytest.mark.parametrize(
    ("may_grant", "unsettled", "claiming"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
def test_nothing_is_granted_while_a_claim_may_stand(
    may_grant: bool, unsettled: bool, claiming: bool
) -> None:
    """F3: it got no answer; bound to its master, its slave would serve beside it."""
    failover, _ = driver(3, unsettled=unsettled)
    failover._set_gate(decided(may_grant=may_grant))
    assert failover._slave.upstream.claiming is claiming


@pytest.mark.parametrize("held", [3, 4])
def test_a_term_is_dropped_once_another_stands(held: int) -> None:
    failover, terms = driver(4, Tenure(Epoch(held), 1))
    failover._set_gate(decided())
    assert terms.did == ([] if held == 4 else ["drop: the state says so"])


@pytest.mark.parametrize("granted_now", [False, True])
def test_a_term_that_goes_on_is_renewed_for_the_live_node_that_stands_now(
    granted_now: bool,
) -> None:
    """F13: its lease would end, being asked for by the number of the one before."""
    held: list[Tenure] = []
    failover, terms = driver(
        3,
        Tenure(Epoch(3), 1),
        _gatherer=SimpleNamespace(granted_now=lambda: granted_now),
        _lease=SimpleNamespace(hold=held.append),
    )
    failover._inherit_tenure()
    if granted_now:
        assert terms.tenure == Tenure(Epoch(3), 2)
        assert held == [terms.tenure]
    else:
        assert terms.did == ["drop: my ZooKeeper session was lost: somebody may have taken over"]


def test_each_reader_is_waited_for_by_itself() -> None:
    """Else the second is not waited for at all, and what was consumed from it comes again."""
    clock = SimpleNamespace(now_ms=1000)
    clock.monotonic_ms = lambda: clock.now_ms
    group = SimpleNamespace(live={})
    parts: Any = SimpleNamespace(group=group)
    gatherer = Gatherer(parts, cast(Any, None), cast(Any, clock), "i")

    def gone_since(reader: BrokerId, after_ms: int) -> int | None:
        clock.now_ms += after_ms
        group.state = Versioned(GroupState(Mode.SLAVE_CONSUME, Epoch(4), ME, reader), 1)
        return gatherer._reader_gone_since_ms()

    assert (gone_since(OTHER, 0), gone_since(OTHER, 50)) == (1000, 1000)
    assert (gone_since(THIRD, 50), gone_since(THIRD, 50)) == (1100, 1100)
    group.live[THIRD] = object()
    assert gone_since(THIRD, 50) is None
    del group.live[THIRD]
    assert gone_since(THIRD, 50) == 1250


def test_what_was_once_stored_is_so_for_ever() -> None:
    """R4: also with all of a set that has shrunk, or grown, since."""
    commit = CommitFrontier()
    commit.advance(Position(80), Position(70))
    commit.advance(Position(60), Position(50))
    assert (commit.commit_end, commit.all_end) == (80, 70)
    commit.refuse("nobody is in sync", Position(90))
    commit.refuse("nobody is in sync", Position(40))
    assert commit.failed_below == 90
