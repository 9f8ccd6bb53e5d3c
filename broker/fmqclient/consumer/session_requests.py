"""A session's outgoing items for its broker, gathered until they are sent. No I/O."""

import asyncio
from collections.abc import Callable
from typing import Final

from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.commits import Commits
from fmqclient.consumer.hand_overs import HandOvers
from fmqclient.consumer.message import Acker, DeliveredBatch, acks_of, control_of, nack_of
from fmqclient.net.loop_turns import LoopTurns
from fmqclient.settings import ConsumerSettings
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

BUSY_LINGER_MS: Final = 25
"""Least time between messages if there is nothing but acks: every message has a cost."""


class Speaker(Acker):
    """The outgoing half of a session: acks, nacks, credit, hand-overs, controls, tokens."""

    def __init__(
        self,
        clock: Clock,
        settings: ConsumerSettings,
        note: Callable[[], None],
        turns: LoopTurns,
    ) -> None:
        self.trackers: dict[int, AckTracker] = {}
        self.turns = turns
        self.commits = Commits(clock)
        self.left = asyncio.Event()
        self._settings = settings
        self._wake = asyncio.Event()
        self._hurry = (
            asyncio.Event()
        )  # do not linger: a caller waits for a token, or the session leaves
        self._credit = 0  # to give back
        self._hands = HandOvers(settings.prefetch)
        self._note = note  # what was handed out so far is reported
        self._nacks: list[client_pb2.NackRange] = []
        self._controls: list[client_pb2.QueueControl] = []
        self._news = False  # some tracker has acks to send
        self._leaving = False  # to be sent
        self._clock = clock
        self._last_sent_ms = 0  # when a request was last sent

    def acked(self) -> None:
        """See `Acker`."""
        self._news = True
        self._wake.set()

    def nacked(
        self, batch: DeliveredBatch, first: int, end: int, delay_ms: int, *, unseen: bool = False
    ) -> None:
        """See `Acker`."""
        tracker = batch.tracker
        if batch.generation == tracker.generation and (tracker.held or tracker.revoked):
            self._nacks.append(nack_of(tracker, first, end, delay_ms, unseen=unseen))
            self._wake.set()

    def give_credit(self, size: int, records: int = 0) -> None:
        """See `Acker`."""
        self._credit += size
        self._hands.give_credit(records)
        if self._hands.due or self._credit * 4 >= self._settings.buffer_bytes:
            self._wake.set()

    def handing(self) -> None:
        """See `Acker`."""
        self._hands.started = True
        self._wake.set()

    def note_handed_over(self, batch: DeliveredBatch, first: int, end: int) -> None:
        """See `Acker`."""
        if batch.stream == self.stream:  # a later stream has its own credit
            self._hands.note(batch, first, end)
            self.give_credit(0, end - first)

    def control(self, tracker: AckTracker, *, pause: bool) -> None:
        """Pause delivery from a queue, or resume it."""
        tracker.paused = pause
        if tracker.held:
            self._controls.append(control_of(tracker))
            self._wake.set()

    @property
    def _short_of_credit(self) -> bool:
        """Whether the broker may soon have to wait for credit."""
        return self._hands.urgent or self._credit * 2 >= self._settings.buffer_bytes

    def _next_request(self) -> client_pb2.ConsumeRequest | None:
        """Return everything there is to send as one request, None if it is not worth one."""
        self._note()
        quiet = self._clock.monotonic_ms() - self._last_sent_ms >= BUSY_LINGER_MS or self._leaving
        request = client_pb2.ConsumeRequest(
            credit_bytes=self._credit, nacks=self._nacks, controls=self._controls
        )
        something = bool(
            self._nacks or self._controls or self._credit * 4 >= self._settings.buffer_bytes
        )
        if self._news:
            self._news = False
            something |= self._add_acks(request)
        trackers = self.trackers.values()
        if self.commits.wanted(trackers, now=self._leaving):
            request.commit_token = self.commits.next(trackers)
            something = True
        if self._leaving and not self.left.is_set():
            request.leave = something = True
            self._leaving = False
        self._hurry.clear()
        if not (something or self._hands.worth(quiet=quiet)):
            return None
        self._hands.fill(request)
        self._credit, self._nacks, self._controls = 0, [], []
        return request

    def _add_acks(self, request: client_pb2.ConsumeRequest) -> bool:
        for tracker in self.trackers.values():
            request.acks.extend(acks_of(tracker))
        return len(request.acks) > 0
