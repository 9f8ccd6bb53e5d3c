"""The consumer for programs without asyncio: fetches ahead, and sends acks in groups.

One hop between the threads costs as much as many messages, so a `for` fetches many at once.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence

from fmqclient.arguments import as_places, check_fetch
from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.consumer import CONSUMER_CLOSED, FETCH_CLOSED
from fmqclient.consumer.consumer import Consumer as AsyncConsumer
from fmqclient.consumer.message import Message as AsyncMessage
from fmqclient.consumer.message import give_back, hand_over
from fmqclient.consumer.session import Session
from fmqclient.settings import Start
from fmqclient.sync.base import Part
from fmqclient.sync.loop_thread import LoopThread
from fmqclient.sync.prefetch import Ahead
from fmqcore.errors import Unavailable
from fmqcore.placement import Place


class _Given(threading.local):
    """`ack="auto"`: what the calling thread was given, and is not acked; it ends with the thread.

    Another thread's request does not ack that: the first may still be at work.
    """

    def __init__(self) -> None:
        self.messages: dict[AsyncMessage, None] = {}
        self.listed = False  # the newest came as a list


class Message:
    """One message. `value` and `key` are attributes; the rest is looked up on access."""

    __slots__ = ("_consumer", "_message", "key", "offset", "value")

    offset: int
    value: bytes
    key: bytes | None

    def __init__(self, consumer: "Consumer", message: AsyncMessage) -> None:
        self._consumer = consumer
        self._message = message
        self.offset = message.offset
        self.value = message.value
        self.key = message.key

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._message.topic

    @property
    def group(self) -> str:
        """The broker group that holds the message."""
        return self._message.group

    @property
    def queue(self) -> int:
        """The message's queue in that group; order is kept within a queue."""
        return self._message.queue

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of the message; values are bytes."""
        return self._message.headers

    @property
    def tag(self) -> bytes | None:
        """The tag of the message, None if it has none."""
        return self._message.tag

    @property
    def store_ms(self) -> int:
        """When the broker stored the message, in milliseconds since 1970 UTC."""
        return self._message.store_ms

    @property
    def born_ms(self) -> int | None:
        """When the producer took the message, if the producer was opened with `born_time=True`."""
        return self._message.born_ms

    @property
    def segment(self) -> int:
        """The segment of an ordered topic's chain; 0 in other topics.

        In an ordered topic, order by (segment, offset) within a queue.
        """
        return self._message.segment

    @property
    def read_epoch(self) -> int:
        """The term of the broker group in which the message was delivered."""
        return self._message.read_epoch

    @property
    def delivery_count(self) -> int:
        """How often a program got the message, this time included, as far as this broker knows."""
        return self._message.delivery_count

    @property
    def nacked(self) -> bool:
        """Whether this delivery of the message was given back."""
        return self._message.nacked

    def ack(self) -> None:
        """Mark the message as done; the ack is sent within a moment, together with others."""
        self._consumer._check(self._message)
        self._consumer._ack(self._message)

    def nack(self, *, delay_ms: int = 0) -> None:
        """Have the message delivered again after `delay_ms`."""
        self._consumer._check(self._message)
        self._consumer._given.messages.pop(self._message, None)
        self._consumer._loop.run(self._message.nack(delay_ms=delay_ms))

    def __repr__(self) -> str:
        return repr(self._message)


class Consumer(Part):
    """A member of a consumer group. Use it as `with client.consumer(...) as sub`."""

    _AT_ONCE = 256
    _ACKS_WITHIN_S = 0.05

    def __init__(self, loop: LoopThread, consumer: AsyncConsumer, *, auto: bool) -> None:
        self._part = self._consumer = consumer
        self._auto = auto
        self._given = _Given()
        self._acked: deque[AsyncMessage] = deque()
        self._handed: deque[AsyncMessage] = deque()  # given to the program, and not reported yet
        self._flush_scheduled = False  # `_flush_acks` is scheduled
        self._ahead: Ahead[Message] = Ahead()
        consumer._on_drop = self._dropped
        consumer._report_hand_overs_later()
        super().__init__(loop)

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            if not self._ahead:
                self._ack_given()
                self._fetch(self._AT_ONCE, 0.5)
            yield from self._give(1)

    def fetch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """Return up to `max_messages`; wait `timeout` seconds for the first (None: for ever).

        The list is empty if none came in time, or the consumer was closed meanwhile. Raises
        `Unavailable` if it was closed before.
        """
        check_fetch(max_messages, timeout)
        if self._closed:
            raise Unavailable(FETCH_CLOSED)
        while True:
            if not self._ahead:  # else: of a `for` that was left
                self._ack_given()
                self._fetch(max_messages, timeout)
            found = self._give(max_messages)
            self._given.listed = True
            if found or timeout is not None or self._closed:
                return found  # else another thread has taken them, or their queue was

    def _give(self, count: int) -> list[Message]:
        self._ack_given()
        found = self._ahead.take(count)
        if self._auto:
            self._given.messages = dict.fromkeys(m._message for m in found)
            self._given.listed = False
        if found:
            self._handed.extend(m._message for m in found)
            self._flush_acks_soon()
        return found

    def _fetch(self, max_messages: int, timeout: float | None) -> None:
        async def work() -> None:
            self._flush_acks()
            if self._consumer._closed:  # since the caller looked: its loop ends
                return
            found = await self._consumer.fetch(max_messages, timeout)
            # Here, in the loop's thread: the queue may go, and the waiting call be interrupted.
            self._ahead.add([Message(self, m) for m in found])

        self._loop.run(work())

    def _dropped(self, session: Session, tracker: AckTracker | None) -> None:
        """Give back what the program did not get. In the loop's thread, as `Consumer._drop`."""
        taken = self._ahead.take_back(lambda m: m._message._is_of(session, tracker))
        give_back(m._message for m in taken)

    def commit(self, timeout_s: float = 30.0) -> None:
        """Wait until every ack so far is stored. Raises as `fmqclient.Consumer.commit` does."""

        async def work() -> None:
            self._flush_acks()
            await self._consumer.commit(timeout_s)

        self._loop.run(work())

    def seek(
        self,
        to: Start | None = None,
        *,
        offset: int | None = None,
        queues: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        """Move the whole consumer group to a moment, or (`offset`) to an offset."""
        before = set(self._ahead.all())

        async def work() -> None:
            await self._consumer.seek(to, offset=offset, queues=queues)
            wanted = None if queues is None else set(as_places(queues))
            taken = self._ahead.take_back(
                lambda m: m in before and (wanted is None or (m.group, m.queue) in wanted)
            )
            give_back(m._message for m in taken)  # for their credit; the seek voids the rest

        self._loop.run(work())

    def pause(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Stop delivery from these queues (None: all that this member holds), but keep them."""

        async def work() -> None:
            self._consumer.pause(queues)

        self._loop.run(work())

    def resume(self, queues: Sequence[tuple[str, int]] | None = None) -> None:
        """Resume delivery from these queues (None: all that this member holds)."""

        async def work() -> None:
            self._consumer.resume(queues)

        self._loop.run(work())

    @property
    def assignment(self) -> list[Place]:
        """The (group, queue) pairs that this member holds now."""
        return self._consumer.assignment

    @property
    def skipped(self) -> dict[Place, int]:
        """Per (group, queue): messages that retention deleted before the consumer group acked them.

        It counts what was reported to this member: the broker reports a gap to the member that
        holds the queue when delivery goes on behind the gap.
        """
        return self._consumer.skipped

    async def _end(self) -> None:
        """Send the acks and leave."""
        self._flush_acks()
        await super()._end()

    def _left(self) -> None:
        # Not of a list: how far the program came with it is not known.
        if not self._closed and not self._given.listed:
            self._ack_given()

    def _ack_given(self) -> None:
        given, self._given.messages = self._given.messages, {}
        for message in given:
            if not message.nacked:  # by another thread
                self._ack(message)

    def _check(self, message: AsyncMessage) -> None:
        """Raise if an ack would reach no broker."""
        self._loop.check_there()
        if self._closed:
            raise Unavailable(CONSUMER_CLOSED)
        if (over := message._batch.session.over) is not None:
            raise over

    def _ack(self, message: AsyncMessage) -> None:
        """Send the ack soon, not only at the next fetch, which may be hours of work away."""
        self._acked.append(message)
        self._flush_acks_soon()

    def _flush_acks_soon(self) -> None:
        # Not by what is there: another thread may have added to it since.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.later(self._ACKS_WITHIN_S, self._flush_acks)

    def _flush_acks(self) -> None:
        # Before it looks: what comes now is seen, or reported by a later call.
        self._flush_scheduled = False
        handed: list[AsyncMessage] = []
        while self._handed:
            handed.append(self._handed.popleft())
        hand_over(handed)
        while self._acked:
            self._acked.popleft()._note_done()
