"""The journal on a simulated kernel: faults that only a later power cut reveals."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import epoch, fill, settings
from fmqsim.adapters.clock import SimClock
from fmqsim.adapters.disk import Storage
from fmqsim.adapters.lifecycle import SimLifecycle
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process
from fmqsim.report.run import bury

SEEDS = range(20)


class Machine:
    """A machine on which a journal runs."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.node = Node(loop, "machine")
        self.storage = Storage(loop, "/sim/data")
        self.journal: Journal | None = None

    async def start(self) -> Journal:
        async def main(process: Process) -> None:
            disk = self.storage.disk(process)
            clock, life = SimClock(self.loop, process), SimLifecycle(self.loop, process)
            self.journal = await Journal.open(disk, settings(Path("/sim/data")), clock, life)
            await self.journal.run()

        self.journal = None
        self.node.start(main)
        async with asyncio.timeout(30):
            while self.journal is None:
                await asyncio.sleep(0.001)
        return self.journal

    async def until_dead(self) -> None:
        async with asyncio.timeout(30):
            while self.node.alive:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", SEEDS)
def test_cached_bytes_of_a_failed_fsync_are_durable_after_start(seed: int) -> None:
    loop = SimLoop(seed)
    loop.run_until_complete(fail_and_lose_power(Machine(loop)))
    bury(loop)


async def fail_and_lose_power(machine: Machine) -> None:
    journal = await machine.start()
    journal.append(epoch(1))
    fill(journal, 5)
    await journal.wait_durable(journal.end)
    kept = journal.end
    fill(journal, 5)
    machine.storage.files.failing_syncs = 1
    await machine.until_dead()  # D3
    journal = await machine.start()
    assert journal.durable_end == journal.end >= kept
    end_before = journal.end  # durable: other brokers may count on it from here on
    machine.node.crash("power")
    machine.storage.cut_power()
    journal = await machine.start()
    assert journal.end == end_before
