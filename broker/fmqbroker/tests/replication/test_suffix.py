"""A suffix that breaks off, and a master that starts from lost data, are tried again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqbroker.failover.transitions import Terms
from fmqbroker.replication.view import LinkView
from fmqbroker.replication.wire import LinkBroken, epoch_starts
from fmqbroker.tests.journal_kit import running
from fmqbroker.tests.replication.test_reconciliation import CACHED, shorter_master
from fmqbroker.tests.replication_harness import cluster, until
from fmqcore.ids import Epoch, Position
from fmqcore.replication.frames import MAX_WORK, leading_work
from fmqcore.replication.reconciliation import Action, Decision
from fmqcore.zk.group_state import GroupState
from fmqport.tests.call_context import CALL
from fmqproto.v1 import replication_pb2 as wire

SEGMENT = 256 * 1024


@pytest.mark.parametrize("lost", ["tail", "all", "all, and the slave's log was deleted"])
async def test_a_slave_that_dies_in_the_middle_of_its_suffix(tmp_path: Path, lost: str) -> None:
    """By then an emptied master has made room for it, at the slave's log start."""
    async with cluster(tmp_path, 1, CACHED, dead_after_ms=300, retention_bytes=100_000) as c:
        slave = c.slaves[0]
        if "deleted" in lost:
            c.master.produce(600)
            await c.equal()
            await slave.journal.wait_durable(slave.journal.end)
            await slave.journal.retire(slave.journal.end, c.master.clock.wall_ms())
            assert slave.journal.journal_start > 0
        _, end = await shorter_master(c, lose=lost[:4].strip(","))
        await c.master.start()
        held: list[Any] = []

        def hang(message: Any) -> list[Any]:
            if message.HasField("welcome") and not held:
                held.append(message)
                slave.tap.open.clear()  # sends nothing more
            return [message]

        slave.tap.change = hang
        await slave.start()
        await until(lambda: held)
        await until(lambda: not c.master.master._streams.of(slave.name))
        slave.tap.open.set()
        await until(lambda: c.master.journal.durable_end == end)


async def test_suffix_comes_in_messages_of_one_short_turn_each(tmp_path: Path) -> None:
    """The master applies a message in one turn of the loop, as slaves do."""
    async with cluster(tmp_path, 1, CACHED) as c:
        slave = c.slaves[0]
        c.master.produce(2 * MAX_WORK, size=10)
        await c.equal()
        _, end = await shorter_master(c, lose="all")
        await c.master.start()
        await slave.start()
        await until(lambda: c.master.journal.durable_end == end)
        parts = [m.suffix for m in slave.tap.sent if m.HasField("suffix")]
        assert len(parts) > 2
        assert all(leading_work(part.batches) == part.batches for part in parts)
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_a_master_whose_state_was_lost_is_followed_all_the_same(tmp_path: Path) -> None:
    """Its journal knows newer terms than ZooKeeper and reports them: it is no old master."""
    async with cluster(tmp_path) as c:
        c.master.produce()
        await c.equal()
        for node in c.nodes:
            await node.stop()
        c.zoo.history[:] = [GroupState()]
        for node in c.nodes:
            await node.start()
        await until(lambda: c.slaves[0].slave.upstream.caught_up)


class LastWord:
    """A slave's stream whose last message is read as another broker becomes master."""

    peer = "test"

    def __init__(
        self,
        messages: list[wire.SlaveMessage],
        before_last: Callable[[], None] = lambda: None,
        on_send: Callable[[], None] = lambda: None,
    ) -> None:
        self._messages, self._before_last, self._on_send = messages, before_last, on_send

    async def receive(self) -> wire.SlaveMessage:
        message = self._messages.pop(0)
        if not self._messages:
            self._before_last()
        return message

    async def send(self, message: Any) -> None:
        """Accept everything."""
        self._on_send()

    async def done_sending(self) -> None:
        """Never asked for."""

    def cancel(self) -> None:
        """Bytes read before are already with the reader."""


async def test_former_master_pulls_no_suffix(tmp_path: Path) -> None:
    """R2: from then on the journal grows by what the new master sends."""
    async with cluster(tmp_path, 1, CACHED) as c:
        slave = c.slaves[0]
        kept, end = await shorter_master(c)
        async with running(slave.path, segment_bytes=SEGMENT) as journal:
            hello = wire.Hello(
                cluster="c",
                group="g1",
                broker=slave.name,
                epochs=epoch_starts(journal.state.epochs),
                end=end,
                last_header_crc=journal.last_header_crc,
            )
            suffix = wire.Suffix(
                position=kept, batches=await journal.read(Position(kept), SEGMENT), last=True
            )
        await c.master.start()
        messages = [wire.SlaveMessage(hello=hello), wire.SlaveMessage(suffix=suffix)]
        stream = LastWord(messages, lambda: c.master.group.acts_as_master(slave.name))
        with pytest.raises(LinkBroken):
            await c.master.master.serve(CALL, stream)
        assert c.master.journal.end == kept


async def test_former_master_makes_no_room_for_a_suffix(tmp_path: Path) -> None:
    """Its journal was empty when it requested the suffix; by now it starts at another's."""
    async with cluster(tmp_path, 1, CACHED) as c:
        slave = c.slaves[0]
        await shorter_master(c, lose="all")
        hello = wire.Hello(
            cluster="c",
            group="g1",
            broker=slave.name,
            epochs=epoch_starts([(Epoch(1), Position(SEGMENT))]),
            journal_start=SEGMENT,
            durable_end=2 * SEGMENT,
            end=2 * SEGMENT,
        )
        await c.master.start()
        stream = LastWord(
            [wire.SlaveMessage(hello=hello)],
            on_send=lambda: c.master.group.acts_as_master(slave.name),
        )
        with pytest.raises(LinkBroken):
            await c.master.master.serve(CALL, stream)
        assert (c.master.journal.journal_start, c.master.journal.end) == (0, 0)


async def test_room_for_a_suffix_ends_the_other_slaves_streams(tmp_path: Path) -> None:
    """Row 13 of reconcile: the others must send Hello again, to a different journal."""
    async with cluster(tmp_path, 2) as c:
        first, second = (slave.name for slave in c.slaves)
        c.master.produce()
        await c.committed()
        master, journal = c.master.master, c.master.journal
        master.close_writes()
        assert not master._yields_to(), "it was not emptied"
        journal.doubts.unproven = True
        assert not master._yields_to(), "R5: it knows some of what it has as committed"
        master._commit.commit_end = Position(0)
        assert master._yields_to() == c.isr == {first, second}
        c.zoo.set_state(replace(c.zoo.history[-1], isr=frozenset()))
        assert master._yields_to() == {first, second}, "no slave is known to have all"
        c.zoo.set_state(replace(c.zoo.history[-1], isr=frozenset(), reader=first))
        assert master._yields_to() == {first}
        decision = Decision(Action.SEND_SUFFIX, Position(64), instead=True)
        async with master.reconciling:
            for slave in c.slaves:
                slave.tap.open.clear()
            assert master.links[second].heard
            await master.make_room(master._streams._links[first], decision)
            assert (journal.journal_start, journal.end) == (64, 64)
            assert [link.broker for link in master._streams] == [first]
            assert master.links[first].heard
            assert not master.links[second].heard


async def test_no_term_opens_on_bytes_that_yielded() -> None:
    """The decision used bytes of one slave, which went while another's suffix was pulled."""
    heard = LinkView(heard=True)
    master = SimpleNamespace(links={"a": heard, "b": heard}, reconciling=asyncio.Lock())
    terms = Terms(cast(Any, SimpleNamespace(master=master)))
    async with master.reconciling:
        opening = asyncio.create_task(terms.open(GroupState(), 1))
        await asyncio.sleep(0)
        master.links["b"] = LinkView()
    assert await opening is False


async def test_conditions_that_forbid_a_pull(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave, master = c.slaves[0], c.master.master
        link = master._streams._links[slave.name]
        assert "a term was opened" in (master.pull_refusal(link) or "")
        master.close_writes()
        assert master.pull_refusal(link) is None
        c.master.group.acts_as_master(slave.name)
        assert "counts no more" in (master.pull_refusal(link) or "")
