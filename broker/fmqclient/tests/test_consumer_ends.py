"""How opening a consumer ends when something goes wrong: it is told, nothing is left running."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqclient.consumer import Consumer
from fmqclient.settings import ConsumerSettings
from fmqcore.cluster import TopicConfig
from fmqcore.errors import StaleAssignment, Unavailable
from fmqcore.routing import RouteTable
from fmqport.system import SystemClock


class Routes:
    """Of a cluster without a group."""

    def __init__(self) -> None:
        self.table = RouteTable()

    async def topic(self, name: str) -> TopicConfig | None:
        return None

    def on_change(self, listener: object) -> Any:
        return lambda: None


class BrokenTable:
    """What is known of the topic cannot be looked at."""

    @property
    def topics(self) -> Any:
        raise Unavailable("the table is broken")


def consumer(routes: Routes) -> Consumer:
    settings = ConsumerSettings(topic="orders", group="billing")
    return Consumer(cast(Any, None), cast(Any, routes), SystemClock(), settings)


async def test_an_error_before_it_is_open_is_raised_and_not_waited_for() -> None:
    routes = Routes()
    routes.table = cast(Any, BrokenTable())
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="the table is broken"):
            await consumer(routes).__aenter__()


@pytest.mark.parametrize("turns", [1, 2])
async def test_cancelled_while_it_opens_nothing_runs_on(turns: int) -> None:
    before = asyncio.all_tasks()
    opening = asyncio.create_task(consumer(Routes()).__aenter__())
    for _ in range(turns):  # it has begun, and waits for its sessions; they are made
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == before


async def test_acks_that_nobody_heard_are_told_also_by_a_commit_that_ran_out_of_time() -> None:
    """They are told once: the next commit would say that all is stored."""
    asked: list[asyncio.Future[None]] = [asyncio.Future() for _ in range(3)]
    sub = consumer(Routes())
    sessions = [SimpleNamespace(unstored=True, commit=lambda f=f: f) for f in asked]
    sub._sessions = cast(Any, dict(enumerate(sessions)))
    asked[2].set_exception(StaleAssignment("g2/0 went to others"))
    with pytest.raises(StaleAssignment):
        await sub.commit(timeout_s=0)
    assert all(each.done() for each in asked), "nobody waits any more"
