"""Requirements on every adapter of the coordination port: one harness each, the same tests.

`fmqsim/tests` runs them with the simulated adapter.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
)
from fmqport.tests.coordination_kit import Calls, Harness, until

pytestmark = pytest.mark.processes


async def test_a_node_is_read_as_it_was_written(harness: Harness) -> None:
    one = await harness.session()
    assert await one.get("/a") is None
    await one.create("/a", b"first")
    node = await one.get("/a")
    assert node is not None
    assert (node.data, node.version, node.owner) == (b"first", 0, 0)
    assert await one.set("/a", b"second", 0) == 1
    again = await one.get("/a")
    assert again is not None
    assert (again.data, again.version, again.owner) == (b"second", 1, 0)
    assert 0 < node.modified_ms <= again.modified_ms


async def test_compare_and_set_lets_one_writer_win(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await one.create("/a", b"")
    await one.set("/a", b"one", 0)
    with pytest.raises(BadVersion):
        await two.set("/a", b"two", 0)
    assert await two.set("/a", b"two", 1) == 2
    with pytest.raises(NoNode):
        await one.set("/none", b"", 0)


async def test_create_reports_the_conflict(harness: Harness) -> None:
    one = await harness.session()
    with pytest.raises(NoNode):
        await one.create("/a/b/c", b"")
    await one.create("/a/b/c", b"1", make_parents=True)
    with pytest.raises(NodeExists):
        await one.create("/a/b/c", b"2", make_parents=True)
    node = await one.get("/a/b/c")
    assert node is not None
    assert node.data == b"1"


async def test_children_are_sorted_and_absent_is_empty(harness: Harness) -> None:
    one = await harness.session()
    for name in ("c", "a", "b"):
        await one.create(f"/p/{name}", b"", make_parents=True)
    assert await one.children("/p") == ["a", "b", "c"]
    assert await one.children("/none") == []


async def test_delete_compares_the_version_and_forgives_absence(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/a", b"")
    await one.set("/a", b"", 0)
    with pytest.raises(BadVersion):
        await one.delete("/a", 0)
    await one.delete("/a", 1)
    await one.delete("/a", 1)
    assert await one.get("/a") is None
    await one.create("/p/c", b"", make_parents=True)
    with pytest.raises(NotEmpty, match="there are nodes below it"):
        await one.delete("/p")


async def test_ephemeral_belongs_to_its_session_and_ends_with_close(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await one.create("/e", b"", ephemeral=True)
    node = await two.get("/e")
    assert node is not None
    assert node.owner == one.session_id != 0
    await one.close()
    assert await two.get("/e", synced=True) is None


async def test_expiry_takes_the_ephemerals_and_a_new_session_comes(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    states: list[SessionState] = []
    one.on_state(states.append)
    first = one.session_id
    await one.create("/e", b"", ephemeral=True)
    await one.create("/kept", b"")
    await harness.expire(one)
    await until(lambda: one.state is SessionState.CONNECTED and one.session_id != first)
    assert await two.get("/e") is None
    assert await one.get("/kept") is not None
    assert SessionState.LOST in states
    assert states[-1] is SessionState.CONNECTED
    await one.create("/e", b"again", ephemeral=True)
    node = await two.get("/e")
    assert node is not None
    assert node.owner == one.session_id


async def test_watch_reports_data_existence_and_children(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    calls = Calls()
    one.watch("/a", calls)
    await until(lambda: calls.count)
    seen: list[object] = []
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: two.create("/a", b"1"),
        lambda: two.set("/a", b"2", 0),
        lambda: two.create("/a/child", b""),
        lambda: two.delete("/a/child"),
        lambda: two.delete("/a"),
    ]
    for step in steps:
        before = calls.count
        await step()
        await calls.more_than(before)
        node = await one.get("/a")
        seen.append((node and node.data, await one.children("/a")))
    assert seen == [(b"1", []), (b"2", []), (b"2", ["child"]), (b"2", []), (None, [])]


async def test_no_change_is_missed_while_many_happen(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await two.create("/a", b"")
    calls, seen = Calls(), [0]
    one.watch("/a", calls)

    async def follow(last: int) -> None:
        while seen[-1] < last:
            before = calls.count
            node = await one.get("/a")
            assert node is not None
            seen.append(node.version)
            if node.version < last:
                await calls.more_than(before)

    async def write(last: int) -> None:
        for version in range(last - 5, last):
            await two.set("/a", b"", version)

    for last in range(5, 205, 5):
        async with asyncio.timeout(30), asyncio.TaskGroup() as both:
            both.create_task(follow(last))
            both.create_task(write(last))
    assert seen == sorted(seen)


async def test_a_stopped_watch_is_silent(harness: Harness) -> None:
    one = await harness.session()
    stopped, other = Calls(), Calls()
    stop = one.watch("/a", stopped)
    await until(lambda: stopped.count)
    stop()
    stop()
    one.watch("/a", other)
    await until(lambda: other.count)
    before, reported = stopped.count, other.count
    await one.create("/a", b"")
    await other.more_than(reported)
    assert stopped.count == before


async def test_cut_loses_the_connection_and_recovers_with_same_session(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await one.create("/e", b"", ephemeral=True)
    own = one.session_id
    harness.cut(one)
    await until(lambda: one.state is SessionState.SUSPENDED)
    for call in (one.get("/e"), one.sync("/e"), one.children("/"), one.set("/e", b"x", 0)):
        with pytest.raises(ConnectionLost):
            await call
    harness.resume(one)
    await until(lambda: one.state is SessionState.CONNECTED)
    assert one.session_id == own
    node = await two.get("/e")
    assert node is not None
    assert (node.data, node.owner) == (b"", own)  # the failed write was not applied later


async def test_pending_calls_fail_when_the_connection_is_lost(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/a", b"")
    harness.hold(one)
    write = asyncio.create_task(one.set("/a", b"x", 0))
    await asyncio.sleep(0)
    harness.cut(one)
    with pytest.raises(ConnectionLost):
        async with asyncio.timeout(30):
            await write
    harness.resume(one)
    await until(lambda: one.state is SessionState.CONNECTED)


async def test_a_silent_network_is_noticed(harness: Harness) -> None:
    one = await harness.session()
    harness.hold(one)
    with pytest.raises(ConnectionLost):
        async with asyncio.timeout(30):
            await one.sync("/")
    harness.resume(one)
    await until(lambda: one.state is SessionState.CONNECTED)


async def test_a_watch_outlives_a_cut_and_an_expiry(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    calls = Calls()
    one.watch("/a", calls)
    await until(lambda: calls.count)
    harness.cut(one)
    await until(lambda: one.state is SessionState.SUSPENDED)
    before = calls.count
    await two.create("/a", b"while away")
    harness.resume(one)
    await calls.more_than(before)
    assert await one.get("/a") is not None
    before = calls.count
    await harness.expire(one)
    await calls.more_than(before)
    before = calls.count
    await two.set("/a", b"later", 0)
    await calls.more_than(before)


async def test_sync_shows_writes_of_another_session(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await one.create("/a", b"")
    for version in range(20):
        await one.set("/a", b"%d" % version, version)
        await two.sync("/a")
        node = await two.get("/a")
        assert node is not None
        assert node.version == version + 1


async def test_closed_session_refuses_calls_and_may_close_twice(harness: Harness) -> None:
    one = await harness.session()
    states: list[SessionState] = []
    one.on_state(states.append)
    await one.close()
    await one.close()
    assert (one.state, one.session_id) == (SessionState.LOST, 0)
    with pytest.raises(ConnectionLost):
        await one.get("/")


async def test_the_timeout_is_the_negotiated_one(harness: Harness) -> None:
    assert (await harness.session()).session_timeout_ms == 2000
