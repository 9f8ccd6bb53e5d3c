"""Transactions and sequential nodes, with every coordination adapter."""

import asyncio
import contextlib

import pytest

from fmqcore.errors import Unavailable
from fmqport.coordination import (
    BadVersion,
    ConnectionLost,
    Coordination,
    Node,
    NoNode,
    SessionState,
    Write,
)
from fmqport.sequential_nodes import create_once, find_own, in_sequence
from fmqport.tests.coordination_kit import Calls, Harness, until

pytestmark = pytest.mark.processes

PAIR = ("/a", "/b")


async def two_nodes(session: Coordination) -> None:
    """Create /a at version 1 and /b at version 0."""
    for path in PAIR:
        await session.create(path, b"old")
    await session.set("/a", b"old", 0)


async def read(session: Coordination, *paths: str) -> list[tuple[bytes, int]]:
    nodes = [await session.get(path, synced=True) for path in paths]
    assert None not in nodes
    return [(node.data, node.version) for node in nodes if node is not None]


async def lose(harness: Harness, session: Coordination, call: object, how: str) -> None:
    """Lose the connection under a call that was just sent: certainly not done, or perhaps."""
    if how == "held":
        harness.hold(session)
    task = asyncio.ensure_future(call)  # type: ignore[call-overload]
    await asyncio.sleep(0)
    harness.cut(session)
    with contextlib.suppress(ConnectionLost):
        async with asyncio.timeout(30):
            await task
    await until(lambda: session.state is not SessionState.CONNECTED)
    harness.resume(session)
    await until(lambda: session.state is SessionState.CONNECTED)


# ---- transactions


async def test_transaction_writes_all_nodes_and_returns_versions(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await two_nodes(one)
    assert await one.set_all([Write("/a", b"1", 1), Write("/b", b"2", -1)]) == [2, 1]
    assert await read(two, *PAIR) == [(b"1", 2), (b"2", 1)]
    assert await two.set_all([Write("/b", b"", 1)]) == [2]


@pytest.mark.parametrize(
    ("writes", "error", "named"),
    [
        ([("/a", 0), ("/b", 0)], BadVersion, "/a"),
        ([("/b", 0), ("/a", 2)], BadVersion, "/a"),
        ([("/none", -1), ("/b", 0)], NoNode, "/none"),
        ([("/b", 0), ("/a", 1), ("/none", 0)], NoNode, "/none"),
        ([("/b", 0), ("/none", 0), ("/a", 7)], NoNode, "/none"),
        ([("/a", 7), ("/none", 0)], BadVersion, "/a"),
    ],
)
async def test_one_refused_write_undoes_all_and_is_named(
    harness: Harness, writes: list[tuple[str, int]], error: type[Exception], named: str
) -> None:
    one = await harness.session()
    await two_nodes(one)
    with pytest.raises(error, match=f"{named}$"):
        await one.set_all([Write(path, b"new", version) for path, version in writes])
    assert await read(one, *PAIR) == [(b"old", 1), (b"old", 0)]
    assert await one.get("/none") is None


async def test_of_two_transactions_on_one_version_one_is_done(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await two_nodes(one)
    done = await asyncio.gather(
        one.set_all([Write("/a", b"one", 1), Write("/b", b"one", -1)]),
        two.set_all([Write("/b", b"two", -1), Write("/a", b"two", 1)]),
        return_exceptions=True,
    )
    assert sorted(map(str, map(type, done))) == sorted(map(str, (list, BadVersion)))
    assert await read(one, *PAIR) in ([(b"one", 2), (b"one", 1)], [(b"two", 2), (b"two", 1)])


async def test_watch_fires_once_per_node_that_was_changed(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await two_nodes(one)
    await one.create("/c", b"")
    calls = {path: Calls() for path in (*PAIR, "/c")}
    for path, count in calls.items():
        one.watch(path, count)
    await until(lambda: all(count.count for count in calls.values()))
    with pytest.raises(BadVersion):
        await two.set_all([Write("/a", b"", 1), Write("/b", b"", 7)])
    await two.set_all([Write("/a", b"1", 1), Write("/b", b"2", 0)])
    await two.set("/c", b"", 0)
    await until(lambda: all(count.count > 1 for count in calls.values()))
    assert await read(one, *PAIR) == [(b"1", 2), (b"2", 1)]
    assert [count.count for count in calls.values()] == [2, 2, 2]


@pytest.mark.parametrize("how", ["held", "on its way"])
async def test_transaction_with_a_lost_answer_is_all_or_none(harness: Harness, how: str) -> None:
    one = await harness.session()
    await two_nodes(one)
    await lose(harness, one, one.set_all([Write("/a", b"x", 1), Write("/b", b"x", 0)]), how)
    none, whole = [(b"old", 1), (b"old", 0)], [(b"x", 2), (b"x", 1)]
    seen = await read(one, *PAIR)
    assert seen in ([none] if how == "held" else [none, whole])
    await one.create("/later", b"")
    assert await read(one, *PAIR) == seen, "what was not done is never done"


async def test_transaction_and_other_requests_keep_their_order(harness: Harness) -> None:
    one = await harness.session()
    await two_nodes(one)
    *_, node = await asyncio.gather(
        one.set("/a", b"", 1),
        one.set_all([Write("/a", b"2", 2), Write("/b", b"2", 0)]),
        one.set("/b", b"3", 1),
        one.get("/b"),
    )
    assert isinstance(node, Node)
    assert (node.data, node.version) == (b"3", 2)


# ---- sequential nodes


async def test_sequential_names_order_over_sessions_and_prefixes(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await one.create("/line", b"")
    names = [
        await one.create_sequential("/line/z-", b"1"),
        await two.create_sequential("/line/a-", b"2"),
    ]
    await two.create("/line/ordinary", b"")
    names.append(await one.create_sequential("/line/m-", b"3"))
    names.append(await two.create_sequential("/line/z-", b"4"))
    assert [name[:-10] for name in names] == ["z-", "a-", "m-", "z-"]
    await one.sync("/line")
    children = await one.children("/line")
    assert sorted(children) == sorted([*names, "ordinary"])
    assert in_sequence(reversed(children)) == names
    nodes = [await one.get(f"/line/{name}") for name in names]
    assert [node and (node.data, node.version, node.owner) for node in nodes] == [
        (b"1", 0, one.session_id),
        (b"2", 0, two.session_id),
        (b"3", 0, one.session_id),
        (b"4", 0, two.session_id),
    ]


@pytest.mark.parametrize("how", ["close", "expiry"])
async def test_sequential_node_ends_with_session_and_its_number(harness: Harness, how: str) -> None:
    """A later node does not get the number of one that is gone."""
    one, two = await harness.session(), await harness.session()
    await two.create("/line", b"")
    first = await two.create_sequential("/line/n-", b"")
    gone = await one.create_sequential("/line/n-", b"")
    if how == "close":
        await one.close()
    else:
        before = one.session_id
        await harness.expire(one)
        await until(lambda: one.session_id not in (0, before))
        assert await find_own(one, "/line/n-") is None
    await two.sync("/line")
    assert await two.children("/line") == [first]
    later = [await two.create_sequential("/line/n-", b"") for _ in range(2)]
    assert in_sequence([*later, gone, first]) == [first, gone, *later]


async def test_sequential_node_needs_a_parent_that_may_have_some(harness: Harness) -> None:
    one = await harness.session()
    with pytest.raises(NoNode, match=r"/line/n-$"):
        await one.create_sequential("/line/n-", b"")
    assert await one.get("/line") is None
    await one.create("/e", b"", ephemeral=True)
    with pytest.raises(Unavailable, match="refuses to create"):
        await one.create_sequential("/e/n-", b"")


async def test_watch_reports_a_new_sequential_node(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await two.create("/line", b"")
    calls = Calls()
    one.watch("/line", calls)
    await until(lambda: calls.count)
    before = calls.count
    name = await two.create_sequential("/line/n-", b"")
    await calls.more_than(before)
    assert await one.children("/line") == [name]


@pytest.mark.parametrize(
    ("how", "may_exist"), [("held", [False]), ("on its way", [False, True]), ("cancelled", [True])]
)
async def test_second_attempt_finds_the_node_of_the_first(
    harness: Harness, how: str, may_exist: list[bool]
) -> None:
    """Never two: the orphan would stand in the line for as long as the session lives."""
    one, two = await harness.session(), await harness.session()
    await one.create("/line", b"")
    await two.create_sequential("/line/token-", b"another's")
    call = one.create_sequential("/line/token-", b"own")
    if how == "cancelled":
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        task.cancel()
    else:
        await lose(harness, one, call, how)
    found = await find_own(one, "/line/token-")
    assert (found is not None) in may_exist
    name = await create_once(one, "/line/token-", b"own")
    assert found in (None, name)
    assert await create_once(one, "/line/token-", b"own") == name
    await one.sync("/line")
    *others, last = in_sequence(await one.children("/line"))
    assert (len(others), last) == (1, name)
    await one.delete(f"/line/{name}")
    assert await find_own(one, "/line/token-") is None


def test_line_has_sequential_names_only_by_number() -> None:
    names = ["b-0000000002", "a-0000000010", "ordinary", "n-12", "c-0000000001"]
    assert in_sequence(names) == ["c-0000000001", "b-0000000002", "a-0000000010"]
