"""Long turns of a simulated broker's loop take time, and fail the run."""

import asyncio
from collections.abc import Mapping

import pytest

from e2e.checks.verdict import Outcome
from fmqbroker.consume.offsets.append import append_offsets
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.offsets.write_round import Round
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import Offset, TopicId
from fmqcore.zk.group_state import Mode
from fmqsim.engine.loop import FREE_STEPS, MOST_STEPS, SimLoop
from fmqsim.engine.node import Node, Process
from fmqsim.engine.steps import STEP_S, read_steps
from fmqsim.report import run
from fmqsim.tests.directed import MASTER, SLAVE, Stage, play

ENTRIES = 6000


def test_a_long_turn_holds_its_machine_and_no_other() -> None:
    loop, seen = SimLoop(), list[tuple[str, float]]()
    loop.charge_for(read_steps)

    async def main(process: Process) -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
            if process.node.name == "slow" and all(who != "slow" for who, _ in seen):
                for _ in range(4 * MOST_STEPS):
                    read_steps()
            seen.append((process.node.name, loop.now))

    async def both() -> None:
        for name in ("slow", "fast"):
            Node(loop, name).start(main)
        await asyncio.sleep(1)

    loop.run_until_complete(both())
    assert loop.longest_turn >= 4 * MOST_STEPS
    assert len(loop.problems) == 1
    assert "slow#1: a turn of" in loop.problems[0]
    slow, fast = ([at for who, at in seen if who == name] for name in ("slow", "fast"))
    assert max(fast) < 0.004
    assert slow[0] < 0.002, "its effects came at the turn's beginning"
    assert slow[1] >= 0.001 + 4 * MOST_STEPS * STEP_S
    assert len(slow) == len(fast) == 3


def test_short_turns_take_no_time_and_dead_processes_none() -> None:
    loop = SimLoop()
    loop.charge_for(read_steps)

    async def main(process: Process) -> None:
        for _ in range(FREE_STEPS - 10):
            read_steps()
        await asyncio.sleep(0)
        for _ in range(3 * FREE_STEPS):
            read_steps()
        process.node.crash("in a long turn")

    async def both() -> None:
        node = Node(loop, "a")
        node.start(main)
        await asyncio.sleep(0.1)
        assert not node.alive
        node.start(main)
        await asyncio.sleep(0.1)
        assert not node.alive

    loop.run_until_complete(both())
    assert (loop.longest_turn, loop.problems) == (0, [])


async def _with_much_progress(stage: Stage) -> None:
    """6,000 entries, then the master is lost, a slave takes the reads over, and hands over."""
    keys = [OffsetKey(f"g{n % 6}", TopicId(900), n // 6) for n in range(ENTRIES)]
    process = stage.brokers[MASTER].node.process
    assert process is not None
    entries = dict.fromkeys(keys, OffsetEntry(1 << 32, Offset(0)))
    work = append_offsets(stage.journal(MASTER), entries)
    end = await stage.loop.spawn(process, work)
    await stage.comes(lambda: stage.commit(MASTER).commit_end >= end, "committed")
    await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
    master = stage.down(MASTER)
    await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "taken over")
    master.let_go()
    await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "handed over")


@pytest.mark.parametrize("planted", [False, True])
def test_an_unbounded_loop_fails_the_run(monkeypatch: pytest.MonkeyPatch, *, planted: bool) -> None:
    settings, accept = {"segment_bytes": 1 << 22}, OffsetStore.accept
    if not planted:
        play(_with_much_progress, settings=settings, charged=True)
        return

    sizes: list[int] = []

    def walking(self: OffsetStore, entries: Mapping[OffsetKey, OffsetEntry]) -> Round:
        """Look through all progress at each ack."""
        sizes.append(len(list(self._journal.state.offsets.by_topic())))
        return accept(self, entries)

    monkeypatch.setattr(OffsetStore, "accept", walking)
    with pytest.raises(AssertionError, match=r"a turn of [0-9]+ steps, at most 5000"):
        play(_with_much_progress, settings=settings, charged=True)


def test_a_seed_with_counted_steps_is_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter goes on from one simulation to the next."""
    monkeypatch.setattr(run, "_charging", [])
    run.charge_for_turns()
    first, second = run.forked([7, 7], 1)
    assert first.outcome is Outcome.OK
    assert first.trace_hash == second.trace_hash
