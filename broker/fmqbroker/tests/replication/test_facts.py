"""What replication gives to the pure core: each fact of a Hello, of a link and of the journal."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.replication.commit_end import slave_ends
from fmqbroker.replication.master import MasterReplication
from fmqbroker.replication.view import LinkView
from fmqbroker.replication.wire import slave_view, welcome
from fmqbroker.runtime.notifier import Signal
from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.policy import AckPolicy, Flush, SlaveCounts, SlaveEnds
from fmqcore.replication.in_sync_set import LinkFacts
from fmqcore.replication.reconciliation import Action, Decision, MasterView, SlaveView
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqproto.v1 import replication_pb2 as wire

ME, A, B = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")
EPOCHS = [(Epoch(3), Position(8)), (Epoch(4), Position(70)), (Epoch(6), Position(90))]
WIRE_EPOCHS = [wire.EpochStart(epoch=epoch, start=start) for epoch, start in EPOCHS]
CONFIG = GroupConfig(
    GroupName("g1"), ME, tuple(Member(broker, f"{broker}:1") for broker in (ME, A, B))
)


def test_every_field_of_a_hello_reaches_the_decision() -> None:
    hello = wire.Hello(
        cluster="c", group="g1", broker=A, epochs=WIRE_EPOCHS, journal_start=1, end=2,
        durable_end=3,
        clean=True, commit_end=4, is_reader=True, last_header_crc=5, tail_lost=True,
        emptied=True,
    )  # fmt: skip
    found = slave_view(hello)
    assert found == SlaveView(
        "c", GroupName("g1"), A, EPOCHS, Position(1), Position(2), Position(3), Position(4), True,
        5, True, True, True,
    )  # fmt: skip
    nothing = slave_view(wire.Hello(emptied=False))
    assert all(getattr(found, f.name) != getattr(nothing, f.name) for f in fields(found))


def test_every_field_of_a_decision_reaches_the_slave() -> None:
    decision = Decision(Action.TRUNCATE_TO, Position(9), "the journals part")
    assert welcome(decision, EPOCHS, Epoch(7), ME, "i") == wire.Welcome(
        action=wire.TRUNCATE_TO, position=9, epochs=WIRE_EPOCHS, reason="the journals part",
        epoch=7, master=ME, incarnation="i",
    )  # fmt: skip


def master(epoch: int = 6, **changes: Any) -> Any:
    """A master's half in the term `epoch` (0: none), of which it has only what it looks at here."""
    made = MasterReplication.__new__(MasterReplication)
    state = GroupState(Mode.MASTER, Epoch(6), ME, ME, frozenset({A}))
    parts = {
        "_epoch": Epoch(epoch),
        "_group": SimpleNamespace(config=CONFIG, state=Versioned(state, 1)),
        "_settings": SimpleNamespace(cluster="c"),
        "_me": ME,
        "_journal": SimpleNamespace(
            end=Position(120),
            journal_start=Position(8),
            state=SimpleNamespace(epochs=EPOCHS),
            doubts=SimpleNamespace(unproven=False),
        ),
        "_settled": SimpleNamespace(
            look_back=lambda: None, left_over=lambda: False, end=Position(90)
        ),
        "_commit": SimpleNamespace(commit_end=Position(8)),
        "_isr": SimpleNamespace(leaving=False),
        "_lost": set(),
        "_streams": SimpleNamespace(of={}.get),
        "links": {},
    }
    for name, part in (parts | changes).items():
        setattr(made, name, part)
    return made


@pytest.mark.parametrize(
    ("epoch", "left_over", "epochs", "end"),
    [(6, False, EPOCHS, 120), (0, False, EPOCHS, 120), (0, True, EPOCHS[:2], 90),
     (6, True, EPOCHS, 120)],
)  # fmt: skip
def test_leftovers_of_a_void_term_are_not_the_masters(
    epoch: int, left_over: bool, epochs: list[tuple[Epoch, Position]], end: int
) -> None:
    """Else a slave would get it, and keep it though the term was never set."""
    looked: list[bool] = []
    settled = SimpleNamespace(
        look_back=lambda: looked.append(True), left_over=lambda: left_over, end=Position(90)
    )
    found = master(epoch, _settled=settled).master_view(5, suffix_fits=False)
    assert found == MasterView(
        "c", CONFIG, ME, Epoch(6), epochs, Position(8), Position(end), not epoch, 5,
        suffix_fits=False,
    )  # fmt: skip
    assert looked == ([] if epoch else [True])


@pytest.mark.parametrize(("newest", "known"), [(4, 6), (6, 6), (7, 7)])
def test_master_knows_the_newest_epoch_of_journal_and_state(newest: int, known: int) -> None:
    one = master()
    one._journal.state.epochs = [*EPOCHS[:1], (Epoch(newest), Position(70))]
    assert one.master_view(None, suffix_fits=True).epoch == known


@pytest.mark.parametrize(
    ("epoch", "emptied", "commit_end", "isr", "reader", "yields_to"),
    [
        (0, True, 8, {A}, B, {A, B}),
        (0, True, 8, {A, ME}, ME, {A}),
        (
            0,
            True,
            8,
            set(),
            ME,
            {A, B},
        ),  # without a slave in sync any may have what it acknowledged
        (0, True, 8, set(), "", {A, B}),
        (6, True, 8, {A}, B, set()),  # its term is open
        (0, False, 8, {A}, B, set()),  # its disk is its own
        (0, True, 9, {A}, B, set()),  # R5: it knows what it was given as committed
    ],
)
def test_an_emptied_master_yields_to_those_that_have_all(
    epoch: int,
    emptied: bool,
    commit_end: int,
    isr: set[BrokerId],
    reader: BrokerId,
    yields_to: set[BrokerId],
) -> None:
    one = master(epoch, _commit=SimpleNamespace(commit_end=Position(commit_end)))
    one._journal.doubts.unproven = emptied
    state = GroupState(Mode.SLAVE_CONSUME, Epoch(6), ME, reader, frozenset(isr))
    one._group.state = Versioned(state, 1)
    assert one.master_view(None, suffix_fits=True).yields_to == yields_to


def test_every_fact_of_a_link_reaches_the_in_sync_set() -> None:
    view = LinkView(
        connected=True, sent_end=Position(4), received_end=Position(3), durable_end=Position(2),
        epoch=Epoch(6),
    )  # fmt: skip
    stream = SimpleNamespace(ready=True, lag_ms=7)
    one = master(_lost={A}, _streams=SimpleNamespace(of={A: stream}.get), links={A: view})
    found = one._facts()
    assert found == {
        A: LinkFacts(True, True, True, True, Position(2), 7, Position(2)),
        B: LinkFacts(),  # it never came
    }
    assert one._lost == {A}
    stream.ready = False
    assert not one._facts()[A].ready
    view.epoch = Epoch(5)
    assert not one._facts()[A].current, "its ack is of another term"
    received = AckPolicy(counts=SlaveCounts.RECEIVED)
    one._group.config = GroupConfig(GroupName("g1"), ME, CONFIG.members, policy=received)
    assert one._facts()[A].counted_end == 3
    assert slave_ends(view, "z") == SlaveEnds(Position(4), Position(3), Position(2), Epoch(5), "z")


@pytest.mark.parametrize(("leaving", "flush"), [(False, Flush.INTERVAL), (True, Flush.FSYNC)])
def test_while_a_slave_leaves_the_masters_own_disk_counts(leaving: bool, flush: Flush) -> None:
    """R6: its copy may soon be the only one."""
    one = master(_isr=SimpleNamespace(leaving=leaving))
    policy = AckPolicy(Flush.INTERVAL, 50, SlaveCounts.RECEIVED)
    one._group.config = GroupConfig(GroupName("g1"), ME, CONFIG.members, policy=policy)
    assert one._policy() == AckPolicy(flush, 50, SlaveCounts.RECEIVED)


@pytest.mark.parametrize(("in_sync", "reports"), [(True, 0), (False, 1)])
def test_report_of_a_slave_out_of_sync_has_a_signal(in_sync: bool, reports: int) -> None:
    """An ordered ack waits for it, and no commit end moves."""
    isr = SimpleNamespace(
        awaited=None,
        current={A} if in_sync else set(),
        recheck=lambda: None,
        sets=list,
        leaving=False,
    )
    one = master(_isr=isr, reported=Signal(), _ends=SimpleNamespace(compute=lambda *_: None))
    one._streams.counts = lambda _: True
    one._clock, one._notified_ms = SimpleNamespace(monotonic_ms=lambda: 0), 0
    one._settings.heartbeat_ms = 200
    link: Any = SimpleNamespace(broker=A)
    one.acked(link, news=False)
    assert one.reported.count == reports
