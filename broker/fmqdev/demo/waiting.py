"""Wait while a demo runs: for its traffic, and for slaves that catch up."""

import asyncio
from collections.abc import Callable
from typing import Final

from fmqcore.errors import FmqError
from fmqdev.cluster import DevCluster

TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02
_CATCH_UP_S: Final = 20


class DemoFailed(FmqError):
    """The demo cannot go on; the message names what did not happen in time."""


async def wait_until(
    happened: Callable[[], bool], moved: Callable[[], tuple[int, int]], what: str
) -> None:
    """Wait until it happened, on however slow a machine: as long as `moved` changes.

    Raises `DemoFailed`.
    """
    before, loop = moved(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S) as patience:
            while not happened():
                await asyncio.sleep(_POLL_S)
                if before != (before := moved()):
                    patience.reschedule(loop.time() + TIMEOUT_S)
    except TimeoutError:
        raise DemoFailed(f"no progress for {TIMEOUT_S:g} s while waiting for {what}") from None


async def wait_caught_up(cluster: DevCluster) -> None:
    """Wait until every slave has its master's journal; if not, the comparison reports it."""
    for group in cluster.group_names:
        plans = cluster.group(group)
        for _ in range(_CATCH_UP_S * 10):
            replies = [await cluster.broker_status(plan.id) for plan in plans]
            if len({reply.durable_end if reply else -1 for reply in replies}) == 1:
                break
            await asyncio.sleep(0.1)
