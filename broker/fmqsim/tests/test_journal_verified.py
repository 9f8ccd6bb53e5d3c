"""Journals of brokers stopped, killed or powered off at any time: a check finds nothing.

Also beside a live broker. Only torn ends, which the start truncates, and leftovers of an
interrupted truncation or retention are warnings.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import epoch, records, settings
from fmqcore.ids import Position
from fmqcore.journal.findings import Code
from fmqcore.journal.segments import CHECKPOINT, index_name
from fmqcore.verify.directory import Verifier
from fmqsim.adapters.clock import SimClock
from fmqsim.adapters.disk import Storage
from fmqsim.adapters.lifecycle import SimLifecycle
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process
from fmqsim.report.run import bury
from fmqsim.tests.test_journal import Machine

SEEDS = range(12)
LIVES = 12
STEPS = 15
HARMLESS = {Code.J001, Code.J002, Code.J003, Code.J005, Code.M002, Code.I001}
"""As warnings only."""


def found(storage: Storage, *, live: bool) -> Verifier:
    """Return the findings of `fmq journal verify` for the directory."""
    files = {name: bytes(inode.data) for name, inode in storage.files.names.items()}
    listing = [(name, len(raw)) for name, raw in files.items()]
    verifier = Verifier(listing, files.get(CHECKPOINT), live=live)
    for file in verifier.segments:
        verifier.segment(file, files[file.name], files.get(index_name(file.base)))
    verifier.finish()
    for finding in verifier.findings:
        assert finding.severity.value == "warning", finding
        assert finding.code in HARMLESS, finding
    return verifier


class Broker(Machine):
    """A broker that also stops in order; its retention is small enough to run."""

    def __init__(self, loop: SimLoop, dice: Random) -> None:
        super().__init__(loop)
        self.dice = dice
        self.term = 0
        self.ends: list[Position] = []
        self.stopping = asyncio.Event()

    async def start(self) -> Journal:
        async def main(process: Process) -> None:
            disk = self.storage.disk(process)
            clock, life = SimClock(self.loop, process), SimLifecycle(self.loop, process)
            some = settings(Path("/sim/data"), retention_bytes=200_000)
            self.journal = await Journal.open(disk, some, clock, life)
            running = asyncio.create_task(self.journal.run())
            await self.stopping.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await self.journal.close()

        self.journal = None
        self.stopping = asyncio.Event()
        self.node.start(main)
        async with asyncio.timeout(30):
            while self.journal is None:
                await asyncio.sleep(0.001)
        return self.journal

    async def live(self) -> None:
        """Run one incarnation until it ends in one of the ways."""
        journal = await self.start()
        self.term += 1
        self.ends = [journal.append(epoch(self.term)).end]
        journal.set_flush(sync=self.dice.random() < 0.5, interval_ms=self.dice.choice([0, 20]))
        for _ in range(self.dice.randrange(STEPS)):
            await self.step(journal)
            found(self.storage, live=True)
        match self.dice.choice(["stop", "kill", "power", "power"]):
            case "stop":
                self.stopping.set()
                await self.until_dead()
                found(self.storage, live=False)
            case how:
                last = asyncio.ensure_future(self.dice.choice([self.shorter, self.step])(journal))
                await asyncio.sleep(self.dice.random() * 0.03)
                self.node.crash(how)
                last.cancel()
                if how == "power":
                    self.storage.cut_power()
                found(self.storage, live=False)

    async def step(self, journal: Journal) -> None:
        for _ in range(self.dice.choice([1, 3, 40])):
            size = self.dice.choice([10, 500, 3000])
            self.ends.append(journal.append(records(bytes([size % 251]) * size)).end)
        match self.dice.randrange(6):
            case 0:
                await journal.wait_durable(journal.end)
            case 1:
                journal.note_commit_end(journal.durable_end)
            case 2:
                journal.note_commit_end(journal.end)  # a slave's may be above the truncation
            case 3:
                await self.shorter(journal)
            case _:
                await asyncio.sleep(self.dice.random() * 0.05)

    async def shorter(self, journal: Journal) -> None:
        """Truncate above the commit end, reset, or remove the oldest part."""
        match self.dice.randrange(5):
            case 0:
                await journal.reset(Position(journal.end + 8 * self.dice.randrange(9000)))
                self.ends = [journal.append(epoch(journal.epoch + 1)).end]
                self.term = journal.epoch
            case 1 | 2:
                await journal.wait_durable(journal.end)
                await journal.retire(journal.durable_end, 0)
            case _:
                least = max(journal.known_commit_end, journal.journal_start)
                self.ends = [end for end in self.ends if least <= end <= journal.end]
                if self.ends:
                    place = self.dice.randrange(len(self.ends))
                    await journal.truncate(self.ends[place])
                    del self.ends[place + 1 :]
                    self.term = max(self.term, journal.epoch)


@pytest.mark.parametrize("seed", SEEDS)
def test_journal_verifies_clean_after_any_end_of_a_broker(seed: int) -> None:
    async def lives() -> None:
        broker = Broker(loop, Random(seed))
        for _ in range(LIVES):
            await broker.live()

    loop = SimLoop(seed)
    loop.run_until_complete(lives())
    bury(loop)
