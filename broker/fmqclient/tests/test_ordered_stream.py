"""The stream of an ordered producer to the master of the open segment: when it dials again."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from fmqclient.producer import ordered_stream
from fmqclient.producer.group_cuts import GroupCuts
from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_stream import SegmentStream
from fmqclient.producer.ordered_values import Role
from fmqclient.settings import ProducerSettings
from fmqclient.tests.test_ordered_state import Count
from fmqcore.ids import GroupName
from fmqproto.v1 import client_pb2

G1, G2 = GroupName("g1"), GroupName("g2")
OPEN = Role(True, 1, 1, G1, (1,))


async def test_closing_segment_is_not_dialled_again() -> None:
    """A thousand senders that dial a dead group would keep the cores from opening the next one."""
    tries: list[int] = []
    state = OrderedState()
    state.apply_role(OPEN)
    routes = SimpleNamespace(
        table=SimpleNamespace(groups={}), request_refresh=lambda: tries.append(state.segment)
    )
    clock = SimpleNamespace(uniform=lambda *_: 0.0, monotonic_ms=lambda: 0)
    unused: Any = None
    stream = SegmentStream(
        unused, state, 1, unused, routes, clock, unused, unused, unused, unused, unused, GroupCuts()  # type: ignore[arg-type]
    )  # fmt: skip
    running = asyncio.create_task(stream.run())
    try:
        async with asyncio.timeout(30):
            while len(tries) < 3:
                await asyncio.sleep(0)
        state.apply_role(Role(True, 1, 1, G1, (1,), closing="g1 is lost"))
        before = len(tries)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(tries) - before <= 1
        state.apply_role(Role(True, 1, 2, G2, (1,)))
        stream.move()
        async with asyncio.timeout(30):
            while tries[-1] != 2:
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_batch_due_between_two_looks_at_the_clock_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not due at the first look and due at the second, it would wait without a timer."""
    monkeypatch.setattr(ordered_stream, "wire_batch", lambda *_: client_pb2.ProduceBatch())
    reads = itertools.count(999)  # the clock moves at each look
    state = OrderedState()
    state.apply_role(OPEN)
    state.add(0, Count(1))
    state.stream_opened()
    state.queues[0].retry_ms = 1000
    unused: Any = None
    settings = ProducerSettings(linger_ms=0)
    stream = SegmentStream(
        unused, state, 1, unused, unused,
        SimpleNamespace(monotonic_ms=lambda: next(reads)),
        unused, settings, lambda: None, unused, unused, GroupCuts(),
    )  # fmt: skip
    stream._window_bytes = 1000
    sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    written: Any = SimpleNamespace(send=lambda request: _note(sent, request))
    sending = asyncio.create_task(stream._send(written))
    try:
        async with asyncio.timeout(30):
            await sent
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _note(sent: "asyncio.Future[object]", request: object) -> None:
    if not sent.done():
        sent.set_result(request)
