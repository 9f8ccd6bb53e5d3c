"""Every coordination session above its link: pending calls, states, watches."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from structlog.testing import capture_logs

from fmqadapters.zookeeper import session_core
from fmqadapters.zookeeper.session_core import Answer, Request, SteadySession, Verb
from fmqadapters.zookeeper.watches import AT_ONCE, Watches
from fmqport.coordination import ConnectionLost, Node, SessionExpired, SessionState


class FakeLink:
    """A link that answers on request."""

    session_id = 7
    timeout_ms = 2000

    def __init__(self) -> None:
        self.on_state: Callable[[SessionState], None] = lambda _: None
        self.asked: list[tuple[Request, Answer]] = []
        self.ends = True

    def open(self, on_state: Callable[[SessionState], None]) -> None:
        self.on_state = on_state
        on_state(SessionState.CONNECTED)

    def turns(self) -> None: ...

    def send(self, request: Request, answer: Answer) -> None:
        self.asked.append((request, answer))

    def close(self) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ends:
            done.set_result(None)
        return done


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
async def session(link: FakeLink) -> AsyncIterator[SteadySession]:
    made = SteadySession(link, "zk:2181", make_root=False)
    await made.start(5)
    yield made
    await made.close()


async def asked(session: SteadySession, link: FakeLink) -> "asyncio.Task[Node | None]":
    """Return a read without an answer yet."""
    task = asyncio.ensure_future(session.get("/a"))
    await asyncio.sleep(0)
    assert [request.verb for request, _ in link.asked] == [Verb.READ]
    return task


@pytest.mark.parametrize(
    ("state", "error"),
    [(SessionState.SUSPENDED, ConnectionLost), (SessionState.LOST, SessionExpired)],
)
async def test_session_end_fails_pending_calls_and_drops_late_answers(
    session: SteadySession, link: FakeLink, state: SessionState, error: type[Exception]
) -> None:
    task = await asked(session, link)
    link.on_state(state)
    with pytest.raises(error):
        async with asyncio.timeout(5):
            await task
    assert session.session_id == (0 if state is SessionState.LOST else 7)
    link.asked[0][1](Node(b"late", 0, 0), None)
    with pytest.raises(error):
        await session.get("/a")
    assert len(link.asked) == 1, "nothing is sent meanwhile"


async def test_closing_session_fails_waiters_and_notifies_none_later(
    session: SteadySession, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the close gets no answer."""
    states: list[SessionState] = []
    session.on_state(states.append)
    task = await asked(session, link)
    link.ends = False
    monkeypatch.setattr(session_core, "_CLOSE_S", 0.05)
    async with asyncio.timeout(5):
        await session.close()
        with pytest.raises(ConnectionLost):
            await task
    link.on_state(SessionState.CONNECTED)
    assert (states, session.state) == ([], SessionState.LOST)


async def test_state_listener_may_unsubscribe_while_notified(
    session: SteadySession, link: FakeLink
) -> None:
    heard: list[str] = []

    def once(_: SessionState) -> None:
        heard.append("once")
        stop()

    stop = session.on_state(once)
    session.on_state(lambda _: heard.append("ever"))
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED):
        link.on_state(state)
    assert heard == ["once", "ever", "ever"]


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.LOST])
async def test_start_continues_after_connection_breaks(link: FakeLink, state: SessionState) -> None:
    session = SteadySession(link, "zk:2181", "/fmq/test")
    starting = asyncio.ensure_future(session.start(5))
    async with asyncio.timeout(5):
        while not link.asked:
            await asyncio.sleep(0)
        link.on_state(state)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not starting.done(), "it waits for the connection"
        link.on_state(SessionState.CONNECTED)
        while not starting.done():
            if len(link.asked) > 1:
                request, answer = link.asked.pop()
                answer(None, None)
            await asyncio.sleep(0)
    await starting
    assert request.path == "/fmq/test"
    await session.close()


async def test_start_times_out_while_connection_stays_lost(
    link: FakeLink,
) -> None:
    session = SteadySession(link, "zk:2181", "/fmq/test")
    starting = asyncio.ensure_future(session.start(0.05))
    while not link.asked:
        await asyncio.sleep(0)
    link.on_state(SessionState.SUSPENDED)
    with pytest.raises(ConnectionLost, match="no ZooKeeper answers at zk:2181"):
        await starting


async def test_watch_is_armed_before_notifying_and_silent_once_stopped() -> None:
    """In the other order, a change between the read and the arming would be missed."""
    watches, steps = Watches(), list[str]()
    may_arm = asyncio.Event()

    async def arm(_: object) -> bool:
        steps.append("arms")
        await may_arm.wait()
        steps.append("armed")
        return True

    watches.add("/a", lambda: steps.append("called"))
    stop = watches.add("/b", lambda: steps.append("called, though it was stopped"))
    running = asyncio.ensure_future(watches.run(arm))
    async with asyncio.timeout(5):
        while steps.count("arms") < 2:
            await asyncio.sleep(0)
        stop()
        may_arm.set()
        while "called" not in steps:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    assert steps[2:] in (["armed", "called", "armed"], ["armed", "armed", "called"])


async def test_many_watches_are_armed_some_at_a_time() -> None:
    """After a new connection the session has other requests, too: a lease waits for one."""
    watches, called = Watches(), list[int]()
    armed, most = 0, 0

    async def arm(_: object) -> bool:
        nonlocal armed, most
        armed += 1
        most = max(most, armed)
        await asyncio.sleep(0)
        armed -= 1
        return True

    for number in range(3 * AT_ONCE):
        watches.add(f"/{number}", partial(called.append, number))
    running = asyncio.ensure_future(watches.run(arm))
    for rounds in (1, 2):
        async with asyncio.timeout(20):
            while len(called) < rounds * 3 * AT_ONCE:
                await asyncio.sleep(0)
        watches.all_fired()
    running.cancel()
    assert sorted(called) == sorted([*range(3 * AT_ONCE)] * 2)
    assert 1 < most <= AT_ONCE


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (SessionState.CONNECTED, "info"),
        (SessionState.SUSPENDED, "warning"),
        (SessionState.LOST, "warning"),
    ],
)
async def test_a_session_that_breaks_is_logged_as_warning(
    session: SteadySession, link: FakeLink, state: SessionState, level: str
) -> None:
    with capture_logs() as lines:
        link.on_state(state)
    assert [(line["event"], line["log_level"]) for line in lines] == [("zookeeper", level)]
