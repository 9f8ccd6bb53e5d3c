"""The consumer: the API that a program calls to receive messages.

It has one session (`session.py`) per broker group that has the topic, and merges what they deliver
into one stream of messages, in order within each queue. Delivery is at least once: a message is
delivered again if its session was lost before it was acked, if its ack timed out, or if it was
nacked. Acks are remembered through a failover (`consumer/ack_tracker.py`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from fmqclient.arguments import as_places, check_fetch, check_seconds
from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.auto_acks import AutoAcks, Taker, taker
from fmqclient.consumer.commits import Committing, all_leave
from fmqclient.consumer.delivery_buffer import DeliveryBuffer
from fmqclient.consumer.message import DeliveredBatch, Message
from fmqclient.consumer.session import Session
from fmqclient.forgotten import MustBeClosed
from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopTurns, LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED, MainTask
from fmqclient.settings import ConsumerSettings, Start
from fmqcore.errors import FmqError, InvalidArgument, Unavailable
from fmqcore.ids import GroupName
from fmqcore.placement import Place
from fmqport.clock import Clock

FETCH_CLOSED: Final = "the consumer is closed: open another one to receive messages"
_CLOSED: Final = "the consumer was closed: acks that were not stored by then may not be"
_LOST: Final = "an ack or nack reaches no broker, and the message comes again to its group"
CONSUMER_CLOSED: Final = (
    f"the consumer is closed: {_LOST}; ack before you leave `async with` (or `with`)"
)


class Consumer(MustBeClosed):
    """A member of a consumer group. Use it as `async with client.consumer(...) as sub`."""

    def __init__(
        self,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        settings: ConsumerSettings,
        watch: LoopWatch | None = None,
    ) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._settings = settings
        self._auto = AutoAcks() if settings.ack == "auto" else None
        self._session_id = f"{settings.client_name or 'fmq'}-{clock.random_id():016x}"
        self._sessions: dict[GroupName, Session] = {}
        self._delivery_buffer = DeliveryBuffer(settings.prefetch)
        self._take_message = self._delivery_buffer.take
        self._refine = self._delivery_buffer.refine
        self._turns = LoopTurns(clock)
        self._watch = watch or LoopWatch(clock)
        self._wakeup = asyncio.Event()  # a batch was delivered, or the consumer has ended
        self._tasks: asyncio.TaskGroup | None = None
        self._main = MainTask(self._ended)
        self._error: BaseException | None = None
        self._closed = False
        self._committing = Committing()
        self._on_drop: Callable[[Session, AckTracker | None], None] | None = None
        # A broker group that the topic gets later has only newer records: it starts at "earliest".
        self._session_settings = settings

    # ---- life

    async def __aenter__(self) -> "Consumer":
        await self._routes.topic(self._settings.topic)
        self._open_once()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._main.open(self._run(ready), ready)
        if self._error is not None:
            raise self._error
        self._unclosed = True
        return self

    def _described(self) -> str:
        topic, group = self._settings.topic, self._settings.group
        return f"a consumer of topic {topic!r} in group {group!r}"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._auto is not None:
            self._auto.leave()
        await super().__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Send the acks, return undelivered messages, and leave, in at most `close_timeout_s`."""
        self._unclosed = False
        self._closed = True
        self._wakeup.set()
        if not self._main.is_open:
            return
        try:
            await self._main.close(self._leave, self._settings.close_timeout_s)
        finally:
            for session in self._sessions.values():
                session.over = Unavailable(CONSUMER_CLOSED)

    async def _leave(self) -> None:
        """Leave all sessions. Brokers end those that are not left in time, as silent ones."""
        if self._error is None:  # else no session is left that could leave
            await all_leave(
                list(self._sessions.values()), lambda session: self._drop(session, None)
            )

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        forget = self._routes.on_change(self._open_sessions)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._open_sessions()
                ready.set_result(None)
                await asyncio.get_running_loop().create_future()  # until cancelled
        except* FmqError as errors:
            self._error = errors.exceptions[0]
        finally:
            self._tasks = None
            forget()
            self._refuse(self._error or Unavailable(_CLOSED))
            self._wakeup.set()
            if not ready.done():
                ready.set_result(None)

    def _ended(self, error: BaseException | None) -> None:
        self._fail(error or Unavailable(f"this consumer has failed: {CANCELLED}"))

    def _fail_part(self, reason: str) -> None:
        """Fail every waiting caller and hand out nothing more."""
        self._fail(Unavailable(reason))

    def _fail(self, error: BaseException) -> None:
        if self._closed or self._error is not None:
            return
        self._error = error
        self._refuse(error)
        for session in self._sessions.values():
            session.reason = str(error)
        self._main.cancel()
        self._wakeup.set()

    def _refuse(self, error: BaseException) -> None:
        """Fail the waiting commits; if the consumer has failed, refuse acks from now on."""
        for session in self._sessions.values():
            session.commits.give_up(error)
            if self._error is not None:
                session.over = Unavailable(f"{error}; {_LOST}")

    def _open_sessions(self) -> None:
        """Open a session for every broker group that has the topic; called when routes change."""
        topic = self._routes.table.topics.get(self._settings.topic)
        if topic is None or self._tasks is None or self._closed:
            return
        for group in topic.groups:
            if group.group not in self._sessions and group.queues > 0:
                session = self._sessions[group.group] = Session(
                    group.group,
                    self._session_id,
                    self._connections,
                    self._routes,
                    self._clock,
                    self._session_settings,
                    self._deliver,
                    self._drop,
                    self._refine,
                    elsewhere=lambda: any(s.may_serve for s in self._sessions.values()),
                    note=self._delivery_buffer.note,
                    turns=self._turns,
                    watch=self._watch,
                )
                work = session.run()
                try:
                    self._main.watch(self._tasks.create_task(work))
                except RuntimeError:  # another session has failed: all are being cancelled
                    work.close()
                    del self._sessions[group.group]
                    return
        if self._settings.start == "latest":
            self._session_settings = replace(self._settings, start="earliest")

    def _report_hand_overs_later(self) -> None:
        """Leave it to `hand_over` to report what the program got (`sync/consumer.py`)."""
        self._delivery_buffer.reports = False

    # ---- taking

    def __aiter__(self) -> "Consumer":
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # The task of the program, not the one that `asyncio.wait_for` may make.
        return self._next(taker() if self._auto is not None else None)

    async def _next(self, asker: Taker | None) -> Message:
        self._turns.listed = False
        if self._turns.due():
            await self._turns.give()
        to = self._auto.asked(asker) if self._auto is not None else None
        message = await self._wait_for_message()
        if message is None:
            raise StopAsyncIteration
        if self._auto is not None and to is not None:
            self._auto.give(to, (message,))
        return message

    async def fetch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """Return up to `max_messages`; wait `timeout` seconds for the first (None: for ever).

        The list is empty if none came in time, or the consumer was closed meanwhile. Raises
        `Unavailable` if it was closed before: a loop over `fetch` ends.
        """
        check_fetch(max_messages, timeout)
        if self._closed:
            raise Unavailable(FETCH_CLOSED)
        self._turns.listed = True
        if self._turns.due():  # before the time runs: it would end what is there already
            await self._turns.give()
        to = self._auto.asked(None) if self._auto is not None else None
        try:
            async with asyncio.timeout(timeout):
                first = await self._wait_for_message()
        except TimeoutError:
            return []
        found = [] if first is None else [first]
        while found and len(found) < max_messages and (more := self._take_message()) is not None:
            found.append(more)
        self._turns.note_list(len(found))
        if self._auto is not None and to is not None:
            self._auto.give(to, found, listed=True)
        return found

    async def _wait_for_message(self) -> Message | None:
        while (message := self._take_message()) is None:
            if self._error is not None:
                raise self._error
            if self._closed:
                return None
            if not self._main.is_open:
                raise Unavailable("open the consumer first: async with ... as consumer")
            self._wakeup.clear()
            await self._wakeup.wait()
        return message

    # ---- from the sessions

    def _deliver(self, batch: DeliveredBatch) -> None:
        self._delivery_buffer.deliver(batch)
        self._wakeup.set()

    def _drop(self, session: Session, tracker: AckTracker | None) -> None:
        """Drop undelivered batches: those that the sync client fetched ahead, then the buffer's."""
        if self._on_drop is not None:
            self._on_drop(session, tracker)
        self._delivery_buffer.drop(session, tracker)

    # ---- control

    async def commit(self, timeout_s: float = 30.0) -> None:
        """Wait until every ack so far is stored.

        Raises `Unavailable` when that takes longer than `timeout_s` seconds. Raises
        `StaleAssignment` if a queue went to another member before its acks were stored (its
        messages are delivered again), or if a seek counts again that may be older than those acks.
        """
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        await self._committing.all_of(list(self._sessions.values()), timeout_s)

    async def seek(
        self,
        to: Start | None = None,
        *,
        offset: int | None = None,
        queues: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        """Move the whole consumer group to a moment, or (`offset`) to an offset.

        `queues` are (group, queue) pairs; None means all of the topic. Every member goes on from
        there.
        """
        from fmqclient.admin.client import Admin  # only now: most programs never seek

        admin = Admin(self._connections, self._routes, self._clock)
        await admin.seek(
            self._settings.group, self._settings.topic, to, offset=offset, queues=queues
        )

    @property
    def assignment(self) -> list[Place]:
        """The (group, queue) pairs that this member holds now."""
        return [
            (session.group, tracker.queue)
            for session in list(
                self._sessions.values()
            )  # a copy: `sync/client.py` calls this from another thread
            for tracker in list(session.trackers.values())
            if tracker.held
        ]

    @property
    def skipped(self) -> dict[Place, int]:
        """Per (group, queue): messages that retention deleted before the consumer group acked them.

        It counts what was reported to this member: the broker reports a gap to the member that
        holds the queue when delivery goes on behind the gap.
        """
        return {
            (session.group, queue): count
            for session in list(self._sessions.values())
            for queue, count in list(session.skipped.items())
        }

    @property
    def connected(self) -> dict[str, str]:
        """Per broker group: "" while its session is open, else the reason why it is not."""
        return {str(s.group): s.reason for s in list(self._sessions.values())}

    def pause(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Stop delivery from these queues (None: all that this member holds), but keep them."""
        for session, tracker in self._trackers_of(queues):
            self._drop(session, tracker)
            session.control(tracker, pause=True)

    def resume(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Resume delivery from these queues (None: all that this member holds)."""
        for session, tracker in self._trackers_of(queues):
            session.control(tracker, pause=False)

    def _trackers_of(
        self, queues: Sequence[tuple[str, int]] | None
    ) -> list[tuple[Session, AckTracker]]:
        wanted = None if queues is None else set(as_places(queues))
        found = [
            (session, tracker)
            for session in self._sessions.values()
            for tracker in session.trackers.values()
            if tracker.held and (wanted is None or (session.group, tracker.queue) in wanted)
        ]
        if wanted is not None and len(found) < len(wanted):
            raise InvalidArgument(f"not all of {sorted(wanted)} are assigned: {self.assignment}")
        return found
