"""`ack="auto"` acks what a task or thread was given when it asks for more, nothing unfinished."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, until
from fmqclient.tests.test_consumer import fill, one
from fmqclient.tests.test_sync import _acked, _wait_for_acks, double

__all__ = ["double", "one"]  # the fixtures


@asynccontextmanager
async def consuming(one: ClusterDouble) -> AsyncIterator[fmqclient.Consumer]:
    await fill(one, 10)
    async with (
        fmqclient.connect(one.url) as c,
        c.consumer("orders", group="billing", ack="auto") as sub,
    ):
        yield sub


async def _hold(sub: fmqclient.Consumer, held: asyncio.Event) -> None:
    await anext(sub)
    held.set()
    await asyncio.Event().wait()


async def test_closing_acks_nothing_that_another_task_holds(one: ClusterDouble) -> None:
    held = asyncio.Event()
    async with consuming(one) as sub:
        worker = asyncio.create_task(_hold(sub, held))
        await held.wait()
    assert _acked(one) == 0
    worker.cancel()
    await asyncio.wait([worker])


async def test_a_task_acks_only_what_it_was_given_itself(one: ClusterDouble) -> None:
    held = asyncio.Event()
    async with consuming(one) as sub:
        worker = asyncio.create_task(_hold(sub, held))
        await held.wait()
        for _ in range(4):
            await anext(sub)
        await until(lambda: _acked(one) == 3)
        worker.cancel()
        await asyncio.wait([worker])
        await anext(sub)
    assert _acked(one) == 5, "not what the cancelled task was given"


async def _once(sub: fmqclient.Consumer) -> Any:
    return await asyncio.ensure_future(anext(sub))


async def _in_a_wrapper(sub: fmqclient.Consumer) -> Any:
    async def wrapped() -> Any:
        return await anext(sub)

    return await asyncio.create_task(wrapped())


async def _a_list(sub: fmqclient.Consumer) -> Any:
    return await asyncio.create_task(sub.fetch(1))


@pytest.mark.parametrize("take", [_once, _in_a_wrapper, _a_list])
async def test_messages_taken_in_tasks_of_their_own_are_acked(
    one: ClusterDouble, take: Callable[[fmqclient.Consumer], Awaitable[Any]]
) -> None:
    """In Python before 3.12, `wait_for` makes a task for it."""
    async with consuming(one) as sub:
        for _ in range(4):
            await take(sub)
        await until(lambda: _acked(one) == 3)


async def test_own_task_of_each_take_keeps_apart_what_tasks_were_given(one: ClusterDouble) -> None:
    async with consuming(one) as sub:
        taken, go = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await _once(sub)
            taken.set()
            await go.wait()

        worker = asyncio.create_task(work())
        await taken.wait()
        for _ in range(4):
            await _once(sub)
        await until(lambda: _acked(one) == 3)
        go.set()
        await worker
        await _once(sub)
        await until(lambda: _acked(one) == 5)


async def test_nothing_is_kept_of_tasks_that_ended(one: ClusterDouble) -> None:
    async with consuming(one) as sub:
        for take in (_once, _in_a_wrapper, _a_list, _a_list):
            await asyncio.create_task(take(sub))
        await sub.fetch(1)
        auto = sub._auto
        assert auto is not None
        assert set(auto._given) == {asyncio.current_task()} == auto._lists
        assert auto._ended == []


async def test_clean_end_acks_the_last_message_of_each_task(one: ClusterDouble) -> None:
    """Else a program with a task for each message would make no progress."""
    await fill(one, 4)

    async def take(sub: fmqclient.Consumer) -> None:
        async for _ in sub:
            break

    async with fmqclient.connect(one.url) as c:
        async with (
            c.consumer("orders", group="billing", ack="auto") as sub,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(2):
                tasks.create_task(take(sub))
    assert sum(end - first for _, first, end in one.brokers["g1-0"].acks) == 2


async def test_message_of_a_task_that_failed_is_not_acked(one: ClusterDouble) -> None:
    async with consuming(one) as sub:

        async def fail() -> None:
            await anext(sub)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.create_task(fail())
        await anext(sub)
        await anext(sub)
        await until(lambda: _acked(one) == 1)
    assert _acked(one) == 2


async def test_message_that_comes_late_is_acked_by_its_task_alone(one: ClusterDouble) -> None:
    """Another task has asked since, and was given the next one."""
    async with (
        fmqclient.connect(one.url) as c,
        c.consumer("orders", group="billing", ack="auto") as sub,
    ):
        first = asyncio.create_task(_hold(sub, asyncio.Event()))
        await asyncio.sleep(0)
        taken, go = asyncio.Event(), asyncio.Event()

        async def take_two() -> None:
            await anext(sub)
            taken.set()
            await go.wait()
            await anext(sub)

        second = asyncio.create_task(take_two())
        await asyncio.sleep(0)
        await fill(one, 4)
        await taken.wait()
        go.set()
        await second
        await anext(sub)
        await until(lambda: _acked(one) == 2)
        first.cancel()
        await asyncio.wait([first])
    assert _acked(one) == 3, "not what the cancelled task was given"


async def test_message_asked_for_by_a_task_that_failed_is_acked(one: ClusterDouble) -> None:
    """The task that waited for it has it."""
    async with consuming(one) as sub:
        asked: list[Awaitable[fmqclient.Message]] = []

        async def ask() -> None:
            await anext(sub)
            asked.append(anext(sub))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.create_task(ask())
        second = await asked[0]
        await anext(sub)
        await until(lambda: _acked(one) > 0)
        acks = [(first, end) for _, first, end in one.brokers["g1-0"].acks]
        assert acks == [(second.offset, second.offset + 1)]


async def test_message_that_the_program_gave_back_is_not_acked(one: ClusterDouble) -> None:
    async with consuming(one) as sub:
        message = await anext(sub)
        await message.nack(delay_ms=60_000)
        await anext(sub)
        await anext(sub)
        await until(lambda: _acked(one) > 0)
        acks = [(first, end) for _, first, end in one.brokers["g1-0"].acks]
        assert acks == [(message.offset + 1, message.offset + 2)]


async def test_clean_end_acks_the_message_of_a_loop_after_a_list(one: ClusterDouble) -> None:
    async with consuming(one) as sub:
        await sub.fetch(3)
        async for _ in sub:
            break
    assert _acked(one) == 4


async def test_clean_end_acks_no_list_of_a_task_that_ended(one: ClusterDouble) -> None:
    """The program may have taken it for another task."""
    async with consuming(one) as sub:
        await asyncio.create_task(sub.fetch(3))
        await asyncio.sleep(0)
    assert _acked(one) == 0


@pytest.mark.parametrize(("listed", "acked"), [(False, 3), (True, 0)])
async def test_clean_end_acks_the_message_of_a_loop_but_no_list(
    one: ClusterDouble, listed: bool, acked: int
) -> None:
    """How far the program came with a list is not known."""
    async with consuming(one) as sub:
        if listed:
            assert len(await sub.fetch(3)) == 3
        else:
            count = 0
            async for _ in sub:
                count += 1
                if count == 3:
                    break
    assert _acked(one) == acked


async def test_program_closing_its_consumer_acks_nothing(one: ClusterDouble) -> None:
    """It may do so in a `finally`, in the midst of a message."""
    async with consuming(one) as sub:
        await anext(sub)
        await sub.close()
        with pytest.raises(StopAsyncIteration):
            await anext(sub)
    assert _acked(one) == 0


# ---- programs without asyncio


@pytest.fixture
def filled(double: ClusterDouble) -> ClusterDouble:
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"%d" % n for n in range(10)], group="g1", queue=0)
    return double


def test_close_acks_nothing_that_another_thread_holds(filled: ClusterDouble) -> None:
    taken, closed, failed = threading.Event(), threading.Event(), threading.Event()
    with fmqclient.sync.connect(filled.url) as c:
        sub = c.consumer("orders", group="billing", ack="auto")

        def work() -> None:
            with suppress(ZeroDivisionError):
                for _ in sub:
                    taken.set()
                    closed.wait(20)
                    failed.set()
                    raise ZeroDivisionError

        thread = threading.Thread(target=work)
        thread.start()
        taken.wait(20)
        sub.close()
        closed.set()
        thread.join()
    assert failed.is_set()
    assert _acked(filled) == 0


def test_a_thread_acks_only_what_it_was_given_itself(filled: ClusterDouble) -> None:
    taken, go = threading.Event(), threading.Event()
    kept: list[weakref.ref[Any]] = []
    with fmqclient.sync.connect(filled.url) as c:
        sub = c.consumer("orders", group="billing", ack="auto")

        def work() -> None:
            for _ in sub:
                sub._given.watched = _Watched()
                kept.append(weakref.ref(sub._given.watched))
                taken.set()
                go.wait(20)
                break

        thread = threading.Thread(target=work)
        thread.start()
        taken.wait(20)
        for n, _ in enumerate(sub):
            if n == 3:
                break
        _wait_for_acks(filled, 3)
        go.set()
        thread.join()
        gc.collect()
        assert kept[0]() is None, "what was given to a thread that ended is kept"
        sub.fetch(1)
        _wait_for_acks(filled, 4)


class _Watched:
    """Goes with its thread."""


def test_sync_clean_end_acks_no_list(filled: ClusterDouble) -> None:
    with fmqclient.sync.connect(filled.url) as c:
        with c.consumer("orders", group="billing", ack="auto") as sub:
            assert len(sub.fetch(3)) == 3
        assert _acked(filled) == 0
        sub = c.consumer("orders", group="billing", ack="auto")
        for _ in sub:
            break
    assert _acked(filled) == 1, "leaving the client without an error ends the loop as well"


def test_signal_handler_that_closes_acks_nothing(filled: ClusterDouble) -> None:
    """It runs in the thread of the program, which is in the midst of a message."""
    with fmqclient.sync.connect(filled.url) as c:
        with c.consumer("orders", group="billing", ack="auto") as sub:
            for _ in sub:
                sub.close()
        assert _acked(filled) == 0
