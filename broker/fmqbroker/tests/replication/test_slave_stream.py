"""A slave ignores messages of a master that is no longer master (D10)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.journal.drafts import LONG_SNAP
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.slave_stream import Upstream
from fmqbroker.replication.view import UpstreamView
from fmqbroker.replication.wire import LinkBroken
from fmqbroker.runtime.notifier import Signal
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.journal.segments import snap_batch
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqproto.v1 import replication_pb2 as wire

MASTER = Member(BrokerId("g1-0"), "h:1")


class Journal:
    """Records the changes made to it."""

    epoch, journal_start, end = 1, 0, 100

    def __init__(self) -> None:
        self.did: list[str] = []

    async def truncate(self, position: int) -> None:
        self.did.append(f"truncate {position}")

    async def reset(self, position: int) -> None:
        self.did.append(f"reset {position}")

    def append_replica(self, position: int, _: bytes, __: object) -> None:
        self.did.append(f"append {position}")


class OneMessage:
    """A stream that delivers these messages; `then` runs before they are handled."""

    def __init__(self, message: wire.MasterMessage, then: Any = None) -> None:
        self.message, self.then = message, then
        self.cancelled = False

    async def receive(self) -> wire.MasterMessage:
        if self.then is not None:
            self.then()
        return self.message

    def cancel(self) -> None:
        self.cancelled = True


def upstream_of(journal: Journal, cutting: asyncio.Lock) -> Upstream:
    state = Versioned(GroupState(Mode.MASTER, Epoch(1), MASTER.id, MASTER.id), 1)
    parts: dict[str, Any] = {
        "settings": SimpleNamespace(broker="g1-1", dead_after_ms=5000),
        "clock": SystemClock(),
        "journal": journal,
        "commit": CommitFrontier(),
        "group": SimpleNamespace(state=state),
        "view": UpstreamView(),
        "changed": Signal(),
        "master": MASTER,
        "incarnation": "i",
        "dial": 1,
        "cutting": cutting,
        "report": lambda *_: None,
    }
    return Upstream(**parts)


@pytest.mark.parametrize(
    ("action", "done"), [(wire.TRUNCATE_TO, "truncate 64"), (wire.RESET_TO, "reset 64")]
)
@pytest.mark.parametrize("own", [False, True])
async def test_slave_becoming_master_while_waiting_truncates_nothing(
    action: Any, done: str, own: bool
) -> None:
    """This broker opened a term meanwhile, and would lose what is appended for it."""
    journal, cutting = Journal(), asyncio.Lock()
    upstream = upstream_of(journal, cutting)
    welcome = wire.MasterMessage(welcome=wire.Welcome(action=action, position=64), epoch=1)
    async with cutting:
        agreeing = asyncio.create_task(upstream._agree(OneMessage(welcome)))  # type: ignore[arg-type]
        for _ in range(9):
            await asyncio.sleep(0)
        assert journal.did == [], "it waits"
        if own:
            upstream.leave()
    if own:
        with pytest.raises(LinkBroken, match="is no longer the master"):
            await agreeing
        assert journal.did == []
    else:
        await agreeing
        assert journal.did == [done]


async def test_bytes_in_flight_are_dropped_when_acting_master_changes() -> None:
    journal = Journal()
    upstream = upstream_of(journal, asyncio.Lock())
    append = wire.Append(epoch=1, position=100, batches=b"x")
    stream = OneMessage(wire.MasterMessage(append=append, epoch=1), upstream.leave)
    with pytest.raises(LinkBroken, match="is no longer the master"):
        await upstream._receive(stream)  # type: ignore[arg-type]
    assert journal.did == []


class Unpacking(Journal):
    """Decodes a long SNAP until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def unpack(self, data: bytes) -> dict[int, object]:
        if data:
            self.did.append("unpack")
            await self.go.wait()
        return {}

    def append_replica(self, position: int, _: bytes, __: object) -> None:
        self.did.append(f"append {position}")
        self.epoch = 2

    def note_commit_end(self, position: int) -> None:
        self.did.append(f"commit {position}")


class Messages:
    """A stream that delivers these messages and then nothing."""

    def __init__(self, *messages: wire.MasterMessage) -> None:
        self.left = list(messages)
        self.read = asyncio.Event()

    async def receive(self) -> wire.MasterMessage:
        if not self.left:
            self.read.set()
            await asyncio.Event().wait()
        return self.left.pop(0)


def long_snap_and_more() -> Messages:
    at: dict[str, Any] = {"base": Position(0), "segment_bytes": 1 << 20, "prev_header_crc": 0}
    snap, _ = snap_batch(epoch=Epoch(2), payload=bytes(LONG_SNAP), store_ms=1, **at)
    append = wire.Append(position=100, epoch=2, batches=snap)
    first = wire.MasterMessage(epoch=2, append=append, end=200)
    return Messages(first, wire.MasterMessage(epoch=2, commit_end=100, end=200))


async def test_later_messages_wait_for_a_long_snap_but_are_heard() -> None:
    journal, stream = Unpacking(), long_snap_and_more()
    upstream = upstream_of(journal, asyncio.Lock())
    upstream._view.caught_up = True
    receiving = asyncio.create_task(upstream._receive(stream))  # type: ignore[arg-type]
    unpacking = asyncio.create_task(upstream._unpack())
    async with asyncio.timeout(20):
        await stream.read.wait()
    assert (journal.did, upstream._view.heard_master) == (["unpack"], MASTER.id)
    assert not upstream._view.caught_up, "what waits is not in its journal"
    journal.go.set()
    async with asyncio.timeout(20):
        while len(journal.did) < 3:
            await asyncio.sleep(0)
    assert [each.split()[0] for each in journal.did] == ["unpack", "append", "commit"]
    assert not upstream._unread
    for task in (receiving, unpacking):
        task.cancel()
    await asyncio.gather(receiving, unpacking, return_exceptions=True)


async def test_a_long_snap_of_an_ended_term_is_not_appended() -> None:
    """The term may end while the SNAP is decoded: this broker may have claimed the reads."""
    journal, stream = Unpacking(), long_snap_and_more()
    upstream = upstream_of(journal, asyncio.Lock())
    receiving = asyncio.create_task(upstream._receive(stream))  # type: ignore[arg-type]
    unpacking = asyncio.create_task(upstream._unpack())
    async with asyncio.timeout(20):
        await stream.read.wait()
    state = GroupState(Mode.SLAVE_CONSUME, Epoch(3), MASTER.id, BrokerId("g1-1"))
    upstream._group.state = Versioned(state, 2)
    journal.go.set()
    with pytest.raises(LinkBroken, match="appends in epoch 2, but this slave knows epoch 3"):
        await unpacking
    assert journal.did == ["unpack"]
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
