"""The stream of an ordered producer to the master of the open segment: when it dials again."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fmqclient.producer.ordered_state import OrderedState, Role
from fmqclient.producer.ordered_stream import SegmentStream
from fmqcore.ids import GroupName

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
        unused, state, 1, unused, routes, clock, unused, unused, unused, unused, unused  # type: ignore[arg-type]
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
