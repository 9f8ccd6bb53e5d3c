"""Ends of sessions, and the order of requests, with every coordination adapter."""

import asyncio

import pytest

from fmqcore.errors import Unavailable
from fmqport.coordination import BadVersion, SessionState
from fmqport.tests.coordination_kit import Harness, until

pytestmark = pytest.mark.processes


async def test_silence_ends_the_session_by_the_servers_word_only(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    states: list[SessionState] = []
    await one.create("/e", b"", ephemeral=True)
    first = one.session_id
    one.on_state(states.append)
    harness.hold(one)
    async with asyncio.timeout(30):
        while await two.get("/e") is not None:
            await asyncio.sleep(0.05)
            await two.sync("/e")
    assert SessionState.LOST not in states  # no server has reported it
    harness.resume(one)
    await until(lambda: one.state is SessionState.CONNECTED and one.session_id != first)
    assert SessionState.LOST in states


@pytest.mark.parametrize(("seconds", "keeps"), [(2.5, True), (7, False)])
async def test_a_session_lives_as_long_as_its_event_loop_turns(
    harness: Harness, seconds: float, keeps: bool
) -> None:
    """A stall slightly longer than a session's timeout is survived; a wedged loop is not."""
    one, two = await harness.session(), await harness.session()
    states: list[SessionState] = []
    one.on_state(states.append)
    await one.create("/e", b"", ephemeral=True)
    own, theirs = one.session_id, two.session_id
    await harness.wedge(seconds)
    if not keeps:
        await until(lambda: one.session_id not in (0, own) and two.session_id not in (0, theirs))
        await two.sync("/")
        assert await two.get("/e") is None
        return
    await one.sync("/")
    assert (one.session_id, states) == (own, [])
    node = await two.get("/e")
    assert node is not None
    assert node.owner == own


async def test_requests_of_one_session_keep_their_order(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/a", b"")
    calls = [
        one.set("/a", b"1", 0),
        one.get("/a"),
        one.set("/a", b"2", 1),
        one.get("/a"),
        one.delete("/a", 2),
        one.get("/a"),
    ]
    done = await asyncio.gather(*calls)
    versions = [None if node is None else node.version for node in done[1::2]]  # type: ignore[union-attr]
    assert (done[0::2], versions) == ([1, 2, None], [1, 2, None])


async def test_recreated_node_starts_at_version_zero(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/a", b"")
    await one.set("/a", b"", 0)
    await one.delete("/a")
    await one.create("/a", b"again")
    with pytest.raises(BadVersion):
        await one.set("/a", b"", 1)
    assert await one.set("/a", b"", 0) == 1


async def test_an_ephemeral_has_no_children(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/e", b"", ephemeral=True)
    with pytest.raises(Unavailable, match="refuses to create"):
        await one.create("/e/c", b"")


async def test_any_version_may_be_written(harness: Harness) -> None:
    one = await harness.session()
    await one.create("/a", b"")
    assert [await one.set("/a", b"", -1) for _ in range(3)] == [1, 2, 3]
