"""The simulated event loop: virtual time, dying or stopped processes, full determinism."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fmqsim.engine.loop import SimLoop, Stuck
from fmqsim.engine.node import Node, Process


def here() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


async def test_time_is_virtual_and_starts_at_zero() -> None:
    before = time.monotonic()
    await asyncio.sleep(86_400)
    assert 86_400 <= here().now < 86_401
    assert time.monotonic() - before < 60


async def test_asyncio_functions_work() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    event, order = asyncio.Event(), []

    async def put() -> None:
        for number in range(3):
            await queue.put(number)
        event.set()

    async def fail() -> None:
        await asyncio.sleep(2)
        raise ValueError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(3600))

    async with asyncio.TaskGroup() as group:
        group.create_task(put())
        order += [await queue.get() for _ in range(3)]
        await event.wait()
    assert order == [0, 1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.sleep(5)
    with pytest.raises(ExceptionGroup):
        await both()
    assert here().now < 4


async def test_crash_runs_no_finally_and_drops_pending_callbacks() -> None:
    loop, ran = here(), []

    async def main(process: Process) -> None:
        async def beside() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ran.append("beside")

        asyncio.get_running_loop().call_later(5, ran.append, "later")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(beside())
        finally:
            ran.append("main")

    node = Node(loop, "a")
    process = node.start(main)
    await asyncio.sleep(1)
    node.crash("kill -9")
    await asyncio.sleep(7200)
    assert ran == []
    assert (process.alive, process.ended, node.alive) == (False, "kill -9", False)
    assert node.start(main).incarnation == 2


async def test_stopped_process_runs_everything_late_and_in_order() -> None:
    loop = here()
    done: list[int | str] = []
    news: asyncio.Queue[int] = asyncio.Queue()

    async def main(process: Process) -> None:
        asyncio.get_running_loop().call_later(1, done.append, "timer")
        while True:
            done.append(await news.get())

    node = Node(loop, "a")
    node.start(main)
    await asyncio.sleep(0.5)
    node.pause()
    for number in range(3):
        news.put_nowait(number)
        await asyncio.sleep(1)
    assert done == []
    node.resume()
    await asyncio.sleep(0.1)
    assert sorted(map(str, done)) == ["0", "1", "2", "timer"]
    assert [n for n in done if n != "timer"] == [0, 1, 2]


async def test_each_machine_has_its_own_clock() -> None:
    loop, slept = here(), {}

    def main(process: Process) -> Coroutine[Any, Any, None]:
        async def run() -> None:
            await asyncio.sleep(10)
            slept[process.node.name] = loop.now

        return run()

    fast, slow = Node(loop, "fast", drift=1.25), Node(loop, "slow", drift=0.8)
    fast.start(main)
    slow.start(main)
    await asyncio.sleep(20)
    assert slept["fast"] == pytest.approx(8, abs=0.01)
    assert slept["slow"] == pytest.approx(12.5, abs=0.01)
    before = fast.monotonic(), fast.wall_ms()
    fast.jump_wall(-3_600_000)
    assert fast.monotonic() == before[0]
    assert fast.wall_ms() == pytest.approx(before[1] - 3_600_000)


def test_stuck_loop_raises() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="nothing is left to do"):
        SimLoop().run_until_complete(wait_for_ever())

    async def turn_for_ever() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="turns in a circle"):
        SimLoop().run_until_complete(turn_for_ever())


def _many_in_a_set() -> str:
    """Tasks in sets, cancelled by their group: the order must not depend on addresses."""
    ended = []

    async def one(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(str(number))

    async def main() -> None:
        tasks = {asyncio.create_task(one(number)) for number in range(200)}
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    SimLoop().run_until_complete(main())
    return " ".join(ended)


def test_sets_of_tasks_are_walked_in_one_order() -> None:
    first = _many_in_a_set()
    kept: list[Callable[[], object]] = [object for _ in range(12_345)]
    assert _many_in_a_set() == first, kept


def test_shuffled_processes_keep_each_its_own_order() -> None:
    def run(seed: int) -> list[str]:
        loop, done = SimLoop(seed, shuffle=True), list[str]()

        async def main() -> None:
            async def work(process: Process) -> None:
                for number in range(20):
                    done.append(f"{process.node.name}{number}")
                    await asyncio.sleep(0)

            for name in "abc":
                Node(loop, name).start(work)
            await asyncio.sleep(1)

        loop.run_until_complete(main())
        return done

    assert run(1) == run(1) != run(2)
    for name in "abc":
        assert [d for d in run(1) if d[0] == name] == [f"{name}{n}" for n in range(20)]
