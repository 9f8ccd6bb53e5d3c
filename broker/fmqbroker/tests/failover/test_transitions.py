"""Steps from one term to the next: each effect in order, none after a failed one.

All parts are stand-ins that record their calls; no ZooKeeper, no disk, no time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.failover.transitions import Frozen, Received, Terms
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.control import encode_offsets
from fmqcore.errors import StorageFull
from fmqcore.failover.evidence import Record
from fmqcore.failover.term_rules import Tenure
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import AckPolicy, SlaveCounts
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode

ME, OTHER = BrokerId("g1-0"), BrokerId("g1-1")
EMPTY = encode_offsets({})
END, DURABLE = 800, 600
OPENED = ["made whole", "become master", "open for 7", "hold 7", "renew"]


class Stage:
    """The parts of a broker; `did` records what they did."""

    def __init__(self, state: GroupState, counts: SlaveCounts = SlaveCounts.DURABLE) -> None:
        self.did: list[str] = []
        self.wins = True  # its compare-and-set does
        self.state = Versioned(state, 3)
        self.standing, self.me = 9, ME
        self.node_recreated = False  # its live node, while its compare-and-set is in flight
        self.config = SimpleNamespace(policy=AckPolicy(counts=counts))
        self.journal_epoch, self.end, self.durable_end = Epoch(5), END, DURABLE
        self.commit = CommitFrontier()
        self.slave = SimpleNamespace(upstream=SimpleNamespace(claiming=True))
        self.links: dict[BrokerId, LinkView] = {}
        self.changed, self.reconciling = Signal(), asyncio.Lock()
        self.frozen, self.breaks = EMPTY, ""
        self.gate = self.group = self.journal = self.offsets = self.master = self.lease = (
            self.doubts
        ) = self
        self.terms = Terms(self)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Record a call without an answer by its name and its numeric arguments."""
        if name.startswith("_"):
            raise AttributeError(name)

        def note(*given: Any) -> None:
            numbers = [str(each) for each in given if isinstance(each, int)]
            self.did.append(" ".join([name.replace("_", " "), *numbers]))

        return note

    @property
    def epoch(self) -> Epoch:
        return self.journal_epoch

    def append(self, _: object) -> None:
        self.did.append("append")
        self.journal_epoch, self.end = Epoch(7), self.end + 8

    async def wait_durable(self, position: int) -> None:
        self.did.append("durable" if position == self.end else f"durable {position}")

    async def change(self, edit: Any, version: int) -> GroupState | None:
        assert version == self.state.version
        self.did.append("set")
        self.standing += self.node_recreated
        return edit(self.state.value) if self.wins else None

    async def withdraw(self) -> None:
        self.did.append("withdraw")

    async def install(self, payload: bytes, *, lacking: bool) -> None:
        self.did.append(f"install {len(payload)}{' lacking' if lacking else ''}")
        self.end += 8

    async def install_own(self, opened: Epoch, *, lacking: bool) -> None:
        self.did.append(f"install own {opened}{' lacking' if lacking else ''}")
        self.end += 8

    async def become_master(self) -> None:
        self.did.append("become master")
        if self.breaks:
            raise StorageFull(self.breaks)

    async def become_taker(self, record: str, committed: Position) -> None:
        self.did.append(f"taker of {record!r} above {committed}")

    async def freeze(self) -> bytes:
        self.did.append("freeze")
        return self.frozen

    def hold(self, tenure: Tenure | None) -> None:
        self.did.append(f"hold {tenure.epoch if tenure else 0}")

    async def renew(self) -> None:
        self.did.append("renew")


def state_of(mode: Mode = Mode.MASTER, master: BrokerId = ME, **more: Any) -> GroupState:
    return GroupState(mode, Epoch(6), master=master, reader=more.pop("reader", ME), **more)


def opened(stage: Stage, **more: Any) -> GroupState:
    state = stage.state.value
    return replace(state, mode=Mode.MASTER, epoch=Epoch(7), master=ME, reader=ME, **more)


async def test_term_is_durable_before_it_is_set_and_reported_after() -> None:
    stage = Stage(state_of())
    assert await stage.terms.open(opened(stage), 3)
    assert stage.did == ["close", "append", "install own 0", "durable", "set", *OPENED]
    assert stage.terms.tenure == Tenure(Epoch(7), 9)


async def test_reopening_a_term_appends_no_second_epoch() -> None:
    stage = Stage(state_of())
    stage.journal_epoch = Epoch(7)
    assert await stage.terms.open(opened(stage), 3)
    assert stage.did == ["close", "install own 0", "durable", "set", *OPENED]


@pytest.mark.parametrize("reason", ["lost the race", "no live node", "another's", "newer journal"])
async def test_failed_open_leaves_no_tenure(reason: str) -> None:
    stage = Stage(state_of(master=OTHER if reason == "another's" else ME))
    stage.wins = reason != "lost the race"
    stage.standing = 0 if reason == "no live node" else 9
    stage.journal_epoch = Epoch(8) if reason == "newer journal" else Epoch(5)
    assert not await stage.terms.open(opened(stage), 3)
    assert stage.terms.tenure is None
    assert not set(stage.did) & {
        *OPENED,
        "append" if reason in ("another's", "newer journal") else "",
    }


async def test_open_installs_only_the_awaited_record() -> None:
    taken = state_of(Mode.SLAVE_CONSUME, reader=OTHER, offsets="AAAA")
    for term, size in ((6, 5), (4, 3)):
        stage = Stage(taken)
        stage.terms.received = Received(Record(OTHER, Epoch(term)), b"12345")
        assert await stage.terms.open(opened(stage), 3)
        installed = [f"install {size}", "install own 0"]
        assert stage.did[:5] == ["close", "append", *installed, "durable"]
        assert stage.terms.received is None
        assert stage.terms.installed == (Record(OTHER, Epoch(6)) if size == 5 else None)


@pytest.mark.parametrize("lacking", ["", " lacking"])
@pytest.mark.parametrize("claimed", [False, True])
async def test_reader_becoming_master_installs_its_side_journal(
    claimed: bool, lacking: str
) -> None:
    """Even if it ended before it opened its term and another broker claimed meanwhile."""
    more: dict[str, Any] = {"mode": Mode.HANDOVER, "reader": OTHER} if claimed else {}
    stage = Stage(
        state_of(required_epoch=Epoch(6), offsets="AAAA", last_opened_epoch=Epoch(4), **more)
    )
    edit = opened(stage, max_delivered_position=Position(900) if lacking else Position(0))
    assert await stage.terms.open(edit, 3)
    installed = [f"install 3{lacking}", f"install own 4{lacking}"]
    assert stage.did == ["close", "append", *installed, "durable", "set", *OPENED]


async def test_term_that_cannot_store_offsets_is_not_opened() -> None:
    stage = Stage(state_of())
    stage.breaks = "no room"
    with pytest.raises(StorageFull):
        await stage.terms.open(opened(stage), 3)
    assert stage.terms.tenure is None
    assert stage.did[5:] == [
        "made whole",
        "become master",
        "close",
        "hold 0",
        "close writes",
        "retire",
    ]


async def test_claim_is_set_before_serving_and_serves_only_durable() -> None:
    stage = Stage(state_of(master=OTHER, reader=OTHER, offsets="AAAA"))
    stage.terms.frozen = Frozen.of(Epoch(4), b"")
    edit = replace(stage.state.value, mode=Mode.SLAVE_CONSUME, epoch=Epoch(7), reader=ME)
    assert await stage.terms.claim(edit, 3)
    noted = f"note commit end {DURABLE}"
    taker = "taker of 'AAAA' above 0"  # if its side journal is there before its end counts as shown
    assert stage.did == ["close", "set", taker, noted, "hold 7", "renew"]
    assert stage.commit.commit_end == DURABLE
    assert stage.terms.tenure == Tenure(Epoch(7), 9)
    assert stage.terms.frozen is None, "it is of no term that stands"


@pytest.mark.parametrize("standing", [0, 9])
async def test_failed_claim_serves_nothing(standing: int) -> None:
    stage = Stage(state_of(master=OTHER, reader=OTHER))
    stage.standing, stage.wins = standing, False
    assert not await stage.terms.claim(stage.state.value, 3)
    assert (stage.terms.tenure, stage.commit.commit_end) == (None, 0)
    assert stage.did == ["close", "set"] if standing else ["close"]


@pytest.mark.parametrize("step", ["open", "claim"])
async def test_term_belongs_to_the_live_node_from_before_it_was_set(step: str) -> None:
    """F13: another broker may have looked in the gap, and be about to claim."""
    stage = Stage(state_of())
    stage.node_recreated = True
    assert await getattr(stage.terms, step)(opened(stage), 3)
    assert stage.terms.tenure == Tenure(Epoch(7), 9)
    assert stage.standing == 10


ALL = LinkView(connected=True, incarnation="successor", durable_end=Position(END))


@pytest.mark.parametrize(
    ("counts", "link", "moves"),
    [
        (SlaveCounts.DURABLE, ALL, True),
        (SlaveCounts.DURABLE, replace(ALL, durable_end=Position(END - 8)), False),
        (
            SlaveCounts.DURABLE,
            replace(ALL, durable_end=Position(DURABLE), received_end=Position(END)),
            False,
        ),
        (
            SlaveCounts.RECEIVED,
            replace(ALL, durable_end=Position(DURABLE), received_end=Position(END)),
            True,
        ),
        (SlaveCounts.DURABLE, replace(ALL, incarnation="restarted"), False),
        (SlaveCounts.DURABLE, replace(ALL, connected=False), False),
    ],
)
async def test_mastership_moves_once_the_named_process_has_all(
    counts: SlaveCounts, link: LinkView, moves: bool
) -> None:
    stage = Stage(state_of(), counts)
    stage.terms.tenure = Tenure(Epoch(6), 9)
    stage.links[OTHER] = link
    edit = replace(
        opened(stage), mode=Mode.SLAVE_CONSUME, reader=OTHER, successor_incarnation="successor"
    )
    assert await stage.terms.move(edit, 3, 0.05) is moves
    dropped = ["close", "hold 0", "close writes", "retire"]
    assert stage.did == [*dropped, "durable", *(["set"] if moves else [])]
    assert stage.terms.tenure is None


async def test_successor_fsyncs_everything_before_it_takes_over() -> None:
    stage = Stage(state_of(Mode.SLAVE_CONSUME, master=OTHER))
    assert await stage.terms.take_over(opened(stage), 3)
    assert stage.did == ["close", "durable", "set"]
    assert stage.terms.tenure is None, "that is no term"


@pytest.mark.parametrize("gives", [False, True])
async def test_leaving_master_stops_and_flushes_before_state_change(
    gives: bool,
) -> None:
    stage = Stage(state_of())
    stage.terms.tenure = Tenure(Epoch(6), 9)
    await stage.terms.leave(opened(stage) if gives else None, 3, "stopped")
    dropped = ["close", "hold 0", "close writes", "retire"]
    assert stage.did == [*dropped, "durable", "withdraw", *(["set"] if gives else [])]


async def test_a_reader_serves_nothing_before_its_record_is_frozen() -> None:
    stage = Stage(state_of(Mode.SLAVE_CONSUME, master=OTHER, offsets="AAAA"))
    stage.terms.tenure = Tenure(Epoch(6), 9)
    await stage.terms.freeze(Epoch(6), "the master is back")
    assert stage.did == ["close", "hold 0", "freeze"]
    assert stage.terms.tenure is None
    assert stage.terms.frozen == Frozen.of(Epoch(6), EMPTY)


async def test_restarted_reader_also_freezes_checkpointed_progress() -> None:
    stage = Stage(state_of(Mode.SLAVE_CONSUME, master=OTHER, offsets="AAAA"))
    await stage.terms.freeze(Epoch(6), "the master is back")
    assert stage.did == ["close", "hold 0", "taker of 'AAAA' above 0", "freeze"]


async def test_broker_without_a_role_only_closes_its_gate() -> None:
    stage = Stage(state_of())
    stage.terms.drop("why not")
    assert stage.did == ["close"]
