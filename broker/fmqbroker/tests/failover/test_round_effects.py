"""Effects of each failover round on gate, grants and lease, before any step.

All parts are stand-ins; no ZooKeeper, no time.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.failover.evidence import Gatherer
from fmqbroker.failover.loop import Failover
from fmqbroker.failover.transitions import Frozen
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.state_log import StateLog
from fmqbroker.serving.gate import Gate
from fmqcore.errors import Unavailable
from fmqcore.failover.evidence import Action, Decision, LeaseRule, Params, Part
from fmqcore.failover.term_rules import FOREVER, Tenure
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode

ME, OTHER, THIRD = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")


class Terms:
    """The broker's term; `did` records the calls."""

    frozen = None

    def __init__(self, tenure: Tenure | None) -> None:
        self.tenure = tenure
        self.did: list[str] = []

    @property
    def held(self) -> Epoch:
        return self.tenure.epoch if self.tenure else Epoch(0)

    def drop(self, reason: str) -> None:
        self.did.append(f"drop: {reason}")
        self.tenure = None


def driver(
    epoch: int, tenure: Tenure | None = None, *, unsettled: bool = False, **more: Any
) -> tuple[Any, Terms]:
    """Return a failover in a state of that epoch, with only the parts these tests need."""
    state = GroupState(Mode.MASTER, Epoch(epoch), OTHER, OTHER)
    failover, terms = Failover.__new__(Failover), Terms(tenure)
    parts = {
        "_me": ME,
        "_clock": SystemClock(),
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
    """F3: the claim has no answer; bound to its master, the slave would serve beside it."""
    failover, _ = driver(3, unsettled=unsettled)
    failover._set_gate(decided(may_grant=may_grant))
    assert failover._slave.upstream.claiming is claiming


@pytest.mark.parametrize(
    ("lease", "granted_until_ms", "serves"),
    [
        (LeaseRule.ZOOKEEPER_OR_GRANTS, FOREVER, True),
        (LeaseRule.ZOOKEEPER_OR_GRANTS, 0, False),
        (LeaseRule.ZOOKEEPER, FOREVER, False),  # grants bind slaves to a master, not to a reader
    ],
)
def test_a_round_sets_the_gate_as_decided(
    lease: LeaseRule, granted_until_ms: int, serves: bool
) -> None:
    gatherer = SimpleNamespace(granted_until=lambda: granted_until_ms)
    noted: list[object] = []
    log = SimpleNamespace(note=lambda *given: noted.append(given))
    failover, terms = driver(4, _clock=CLOCK, _gatherer=gatherer, _state_log=log)
    decision = replace(decided(), permission=Permission.FULL, lease=lease)
    failover._set_gate(decision)
    gate: Gate = failover._gate
    assert (gate.mode, gate.epoch, gate.master, gate.reader) == (Mode.MASTER, 4, OTHER, OTHER)
    assert gate.permission() is (Permission.FULL if serves else Permission.NONE)
    assert (gate.reason == decision.reason) is serves
    assert noted == [(decision, 4, NOW_MS)]
    assert terms.did == [], "there is no term to drop"


@pytest.mark.parametrize("held", [3, 4])
def test_a_term_is_dropped_once_another_stands(held: int) -> None:
    failover, terms = driver(4, Tenure(Epoch(held), 1))
    failover._set_gate(decided())
    assert terms.did == ([] if held == 4 else ["drop: the state says so"])


@pytest.mark.parametrize("granted_now", [False, True])
def test_continuing_term_is_renewed_for_the_current_live_node(
    granted_now: bool,
) -> None:
    """F13: a renewal under the previous node's number would let the lease end."""
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
        assert terms.did == ["drop: ZooKeeper session lost: another broker may have taken over"]


@pytest.mark.parametrize(("standing", "tenure"), [(0, Tenure(Epoch(3), 1)), (2, None)])
def test_without_a_term_or_a_live_node_there_is_none_to_inherit(
    standing: int, tenure: Tenure | None
) -> None:
    """While the node is away the lease alone ends the term: nothing has shown that it is over."""
    failover, terms = driver(3, tenure, _gatherer=SimpleNamespace(granted_now=lambda: False))
    failover._group.standing = standing
    failover._inherit_tenure()
    assert (terms.did, terms.tenure) == ([], tenure)


def test_each_reader_is_waited_for_by_itself() -> None:
    """Otherwise the second is not waited for, and its consumed records are redelivered."""
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


def test_commit_end_never_falls_when_the_set_changes() -> None:
    """R4: even under ALL, with a set that has shrunk or grown since."""
    commit = CommitFrontier()
    commit.advance(Position(80), Position(70))
    commit.advance(Position(60), Position(50))
    assert (commit.commit_end, commit.all_end) == (80, 70)
    commit.refuse("no slave is in sync", Position(90))
    commit.refuse("no slave is in sync", Position(40))
    assert commit.failed_below == 90


# ---- what it remembers from round to round
NOW_MS = 1000
CLOCK = SimpleNamespace(monotonic_ms=lambda: NOW_MS)
EDIT = GroupState(Mode.SLAVE_CONSUME, Epoch(4), OTHER, ME)


def step(action: Action, **more: Any) -> Decision:
    return replace(decided(), action=action, **more)


@pytest.mark.parametrize(
    ("action", "checking", "after"),
    [
        (Action.CHECK, True, (3, NOW_MS + 250)),
        (Action.CLAIM, True, (2, 50)),
        (Action.WAIT, True, (2, 50)),  # between two checks
        (Action.LOOK, True, (2, 50)),
        (Action.WAIT, False, (0, 0)),
        (Action.LOOK, False, (0, 0)),
    ],
)
def test_a_bad_check_begins_the_count_again(
    action: Action, checking: bool, after: tuple[int, int]
) -> None:
    failover, _ = driver(
        3, _clock=CLOCK, _params=Params(2, 250, 10_000), _checks=2, _next_check_ms=50
    )
    failover._count(step(action, checking=checking))
    assert (failover._checks, failover._next_check_ms) == after


@pytest.mark.parametrize(
    ("decision", "timeout_s"),
    [
        (step(Action.CLAIM, edit=EDIT, wake_ms=NOW_MS), 0.2),  # it did not succeed
        (step(Action.CHECK, wake_ms=NOW_MS + 9), 0.25),
        (step(Action.WAIT), None),
        (step(Action.WAIT, wake_ms=NOW_MS + 500), 0.5),
        (step(Action.WAIT, wake_ms=NOW_MS - 1), 0),
    ],
)
def test_when_it_decides_again_if_nothing_happens(
    decision: Decision, timeout_s: float | None
) -> None:
    failover, _ = driver(3, _clock=CLOCK, _next_check_ms=NOW_MS + 250)
    assert failover._timeout_s(decision) == timeout_s


@pytest.mark.parametrize("action", [Action.CLAIM, Action.WAIT, Action.LOOK])
def test_grants_stop_before_the_last_check_of_a_claim(action: Action) -> None:
    """F3: a grant given after the check would bind a master that the claim takes the reads from."""
    failover, _ = driver(3)
    seen = []

    def decide(*, fresh: bool) -> Decision:
        seen.append((fresh, failover._slave.upstream.claiming))
        return step(action)

    failover._decide = decide
    assert failover._may_still_claim() is (action is Action.CLAIM)
    assert seen == [(True, True)]


@pytest.mark.parametrize(
    ("mode", "reader", "term", "kept"),
    [
        (Mode.SLAVE_CONSUME, ME, 4, True),
        (Mode.HANDOVER, ME, 3, True),
        (Mode.SLAVE_CONSUME, ME, 3, False),  # its next term as a reader has another record
        (Mode.SLAVE_CONSUME, OTHER, 4, False),
        (Mode.MASTER, ME, 4, False),
    ],
)
def test_a_frozen_record_is_kept_for_its_own_term_alone(
    mode: Mode, reader: BrokerId, term: int, kept: bool
) -> None:
    failover, terms = driver(4)
    failover._group.state = Versioned(GroupState(mode, Epoch(4), OTHER, reader), 1)
    forgotten: list[bool] = []
    changes: Any = terms
    changes.frozen = Frozen(Epoch(term), b"x", "eA==")
    changes.forget_record = lambda: forgotten.append(True)
    failover._set_gate(decided())
    assert forgotten == ([] if kept else [True])


async def test_each_vain_move_waits_longer_for_the_next() -> None:
    """Each costs a moment without a master."""
    answers = [False, False, False, False, False, False, True, False]

    async def move(edit: GroupState, version: int, within_s: float) -> bool:
        assert (edit, version, within_s) == (EDIT, 3, 1.0)
        return answers.pop(0)

    failover, terms = driver(
        3,
        _clock=CLOCK,
        _settings=SimpleNamespace(heartbeat_ms=500, dead_after_ms=2000),
        _move_pause_ms=500,
    )
    cast(Any, terms).move = move
    pauses = []
    while answers:
        assert await failover._move(EDIT, 3)
        pauses.append(failover._next_move_ms and failover._next_move_ms - NOW_MS)
    assert pauses == [500, 1000, 2000, 4000, 8000, 10_000, 0, 500]


@pytest.mark.parametrize(
    ("held", "connected", "action", "given"),
    [
        (3, True, Action.YIELD, True),
        (3, True, Action.MOVE, False),  # F16: a move rests on more than a stop does
        (3, True, Action.WAIT, False),
        (3, False, Action.YIELD, False),
        (0, True, Action.YIELD, False),
        (3, True, Action.HAND_OVER, True),
        (0, True, Action.HAND_OVER, False),
    ],
)
async def test_a_stop_gives_the_reads_away_by_a_yield_alone(
    held: int, connected: bool, action: Action, given: bool
) -> None:
    failover, terms = driver(3, Tenure(Epoch(held), 1) if held else None)
    did: list[object] = []

    async def note(*given: object) -> None:
        did.append(given)

    cast(Any, terms).leave = note
    failover._group.connected, failover._group.refresh = connected, note
    failover._offsets = SimpleNamespace(checkpoint=note)
    failover._decide = lambda *, fresh: step(action, edit=EDIT if fresh else None)
    await failover._leave()
    looks = [(), ()] if held and connected else []
    assert did == [*looks, (EDIT if given else None, 1, "this broker is being stopped")]


@pytest.mark.parametrize("error", [Unavailable("cut"), TimeoutError()])
async def test_a_stop_that_cannot_leave_in_order_serves_no_more(error: Exception) -> None:
    async def leave(*_: object) -> None:
        raise error

    failover, terms = driver(3)
    cast(Any, terms).leave = leave
    await failover._leave()
    assert terms.did == ["drop: this broker is being stopped"]


@pytest.mark.parametrize(
    ("frozen", "handed_over", "busy", "sends"),
    [
        (None, 0, None, False),
        (4, 0, None, True),
        (4, 3, None, True),
        (4, 4, None, False),  # its master has installed it: the new state is awaited
        (4, 0, True, False),
        (4, 0, False, True),
    ],
)
def test_a_record_is_sent_once_at_a_time_until_it_is_installed(
    frozen: int | None, handed_over: int, busy: bool | None, sends: bool
) -> None:
    sending = None if busy is None else SimpleNamespace(done=lambda: not busy)
    failover, terms = driver(4, _sending=sending, _handed_over=Epoch(handed_over))
    cast(Any, terms).frozen = None if frozen is None else Frozen(Epoch(frozen), b"x", "eA==")
    failover._send_record = lambda record: record
    made: list[object] = []
    failover._send(SimpleNamespace(create_task=made.append))
    assert made == ([terms.frozen] if sends else [])


@pytest.mark.parametrize(
    ("answer", "installed"), [("", True), ("not yet", False), (Unavailable("cut"), False)]
)
async def test_a_record_counts_as_handed_over_once_its_master_says_so(
    answer: str | Unavailable, installed: bool
) -> None:
    async def hand_over(term: Epoch, payload: bytes, timeout_s: float) -> str:
        assert (term, payload, timeout_s) == (4, b"x", 2.0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    failover, _ = driver(
        4,
        _settings=SimpleNamespace(dead_after_ms=2000),
        _clock=SimpleNamespace(sleep=sleep),
        _wake=Signal(),
        _handed_over=Epoch(0),
    )
    failover._slave.hand_over = hand_over
    await failover._send_record(Frozen(Epoch(4), b"x", "eA=="))
    assert failover._handed_over == (4 if installed else 0)
    assert pauses == ([] if installed else [0.2])
    assert failover._wake.count == 1


@pytest.mark.parametrize(
    ("me", "connected", "mode", "grew", "announces"),
    [
        (OTHER, False, Mode.MASTER, True, True),
        (OTHER, False, Mode.SLAVE_CONSUME, True, True),  # the reader
        (THIRD, False, Mode.SLAVE_CONSUME, True, True),
        (OTHER, False, Mode.MASTER, False, False),
        (OTHER, True, Mode.MASTER, True, False),
        (ME, False, Mode.MASTER, True, False),
    ],
)
async def test_a_slave_announces_its_end_to_its_rivals(
    me: BrokerId, connected: bool, mode: Mode, grew: bool, announces: bool
) -> None:
    """Else a less advanced one claims, and readers lose sight of what they were shown."""
    members = tuple(Member(broker, f"{broker}:1") for broker in (ME, OTHER, THIRD))
    announced: list[Any] = []

    async def announce(live: object) -> None:
        announced.append(live)

    failover, _ = driver(4)
    failover._me, failover._incarnation = me, "i"
    failover._group.config = GroupConfig(GroupName("g1"), ME, members)
    failover._group.state = Versioned(GroupState(mode, Epoch(4), ME, OTHER), 1)
    failover._group.announce = announce
    failover._slave.upstream.connected = connected
    lacks = SimpleNamespace(lacks=False)
    failover._journal = SimpleNamespace(epoch=Epoch(4), end=Position(80), doubts=lacks)
    failover._announced = failover._live()
    failover._journal.end = Position(90 if grew else 80)
    await failover._announce_end()
    await failover._announce_end()
    assert [(live.id, live.end, live.clean, live.supports_switchover) for live in announced] == (
        [(me, 90, True, True)] if announces else []
    )
