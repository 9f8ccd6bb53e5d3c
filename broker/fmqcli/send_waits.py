"""Report what a sender waits for: the role of an ordered topic, or a group that takes sends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from fmqcli.common import meanwhile, talk
from fmqclient.producer.ordered import OrderedProducer

STALLED_S: Final = 3.0
"""Time without any answer after which the reason is printed."""


class Sends(Protocol):
    """Any producer of the library."""

    @property
    def outstanding(self) -> int: ...  # noqa: D102
    @property
    def connected(self) -> Mapping[str, str]: ...  # noqa: D102


@asynccontextmanager
async def active_sender(producer: OrderedProducer) -> AsyncIterator[OrderedProducer]:
    """Wait for the topic's one role, and report meanwhile why it is not given."""
    async with meanwhile(_report_line(producer)):
        await producer.__aenter__()
    try:
        yield producer
    finally:
        await producer.close()


@asynccontextmanager
async def stalls_reported(
    producer: Sends, sent: Callable[[], int], look: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Report why nothing moves. `sent` counts what was handed in; `look` is called each time."""
    async with meanwhile(_report_stalls(producer, sent, look)):
        yield


async def _report_line(producer: OrderedProducer) -> None:
    while True:
        await asyncio.sleep(STALLED_S)
        talk(f"waiting for the role: {producer.waits_for}")


async def _report_stalls(
    producer: Sends, sent: Callable[[], int], look: Callable[[], None]
) -> None:
    while True:
        before = producer.outstanding, sent()
        await asyncio.sleep(STALLED_S)
        look()
        if before[0] and before == (producer.outstanding, sent()):
            talk(f"waiting, {before[0]:,} not stored yet; {_reason(producer.connected)}")


def _reason(connected: Mapping[str, str]) -> str:
    """Return why nothing is stored; a group that is silent on an open session gives no reason."""
    if reasons := [f"{group}: {reason}" for group, reason in connected.items() if reason]:
        return "; ".join(reasons)
    groups = ", ".join(connected) or "any group"
    return f"no answer from {groups}: see `fmq status`, for an ordered topic `fmq ordered status`"
