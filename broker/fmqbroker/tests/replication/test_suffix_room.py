"""An emptied master makes room for a suffix that breaks off or is invalid."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.journal import truncation
from fmqbroker.replication.wire import epoch_starts
from fmqbroker.tests.replication.test_reconciliation import CACHED, shorter_master
from fmqbroker.tests.replication_harness import cluster, until
from fmqcore.ids import Epoch, Position
from fmqport.tests.call_context import CALL
from fmqproto.v1 import replication_pb2 as wire

SEGMENT = 256 * 1024


@pytest.mark.parametrize("known", [True, False], ids=["it finds that", "it sends it"])
async def test_damaged_slave_does_not_block_a_sound_slaves_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """A byte in a sealed segment has rotted, which no start reads; the other slave is sound."""
    async with cluster(tmp_path, 2, CACHED, dead_after_ms=60_000, segment_bytes=64 * 1024) as c:
        bad, good = c.slaves
        await c.equal()
        _, end = await shorter_master(c, lose="all")
        await good.reaches(end)
        await good.stop()
        (first, *_) = sorted(p for p in bad.path.iterdir() if p.stat().st_size == 64 * 1024)
        with first.open("r+b") as file:
            file.seek(20_000)
            was = file.read(1)
            file.seek(20_000)
            file.write(bytes([was[0] ^ 1]))
        reported: list[wire.Action] = []

        def note(message: wire.MasterMessage) -> list[wire.MasterMessage]:
            if message.HasField("welcome"):
                reported.append(message.welcome.action)
            return [message]

        bad.tap.change = note
        await c.master.start()
        await bad.start()
        if not known:
            monkeypatch.setattr(bad.journal, "read_sound", bad.journal.read)
        await until(lambda: reported)
        await good.start()
        await until(lambda: c.master.journal.end == end)
        assert wire.APPEND_FROM not in reported
        assert bool(bad.journal.damage) is known


class Says:
    """A slave's stream that sends Hello and then nothing."""

    peer = "test"

    def __init__(self, hello: wire.Hello) -> None:
        self._left = [wire.SlaveMessage(hello=hello)]
        self.reported: list[wire.Action] = []

    async def receive(self) -> Any:
        if not self._left:
            await asyncio.Event().wait()
        return self._left.pop(0)

    async def send(self, message: Any) -> None:
        self.reported.append(message.welcome.action)

    async def done_sending(self) -> None:
        """No reader waits for it."""

    def cancel(self) -> None:
        """No reader waits for it either."""


async def test_room_made_for_a_suffix_is_settled_despite_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 2, CACHED, in_sync=False, dead_after_ms=60_000) as c:
        for slave in c.slaves:
            await slave.stop()
        first, second = (slave.name for slave in c.slaves)
        state = replace(c.zoo.history[-1], isr=frozenset({second}), master=c.master.name)
        c.zoo.set_state(state)
        real, reached = truncation.reset, asyncio.Event()

        async def slow(*args: Any) -> None:
            reached.set()
            await asyncio.sleep(0.1)  # many files
            await real(*args)

        monkeypatch.setattr(truncation, "reset", slow)

        def hello(dial: int) -> wire.Hello:
            return wire.Hello(
                cluster="c",
                group="g1",
                broker=first,
                incarnation="x",
                connection_number=dial,
                epochs=epoch_starts([(Epoch(1), Position(SEGMENT + 200))]),
                journal_start=SEGMENT,
                durable_end=2 * SEGMENT,
                end=2 * SEGMENT,
            )

        serving = asyncio.create_task(c.master.master.serve(CALL, Says(hello(1))))
        await reached.wait()
        serving.cancel()  # as the server does when the peer is gone
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert (c.master.journal.journal_start, c.master.journal.end) == (SEGMENT, SEGMENT)
        again = Says(hello(2))
        serving = asyncio.create_task(c.master.master.serve(CALL, again))
        await until(lambda: again.reported)
        serving.cancel()
        await asyncio.wait([serving])
        assert again.reported == [wire.SEND_SUFFIX]
