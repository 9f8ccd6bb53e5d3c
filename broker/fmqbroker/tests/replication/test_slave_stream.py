"""A slave ignores messages of a master that is no longer master (D10)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.slave_stream import Upstream
from fmqbroker.replication.view import UpstreamView
from fmqbroker.replication.wire import LinkBroken
from fmqbroker.runtime.notifier import Signal
from fmqcore.ids import BrokerId, Epoch
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

    def append_replica(self, position: int, _: bytes) -> None:
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
