"""Assign queues to a consumer group's sessions: balanced, sticky, one holder at a time. Pure.

A queue that must move is first *draining*: its old holder gets nothing more, but its acks still
count until none of the queue's records is in flight or a deadline is over. Only then does the queue
go to the next holder, under a higher generation; acks of an older generation are ignored.

Sessions that come to a new reader after a failover name the queues they held. They get them back
as far as that is fair; a queue that no present session asks for waits a moment for its last holder.
So a consumer that lives through a failover can repeat its last acks, and gets few duplicates.

A topic may have queues in several broker groups, and each group assigns its own. When the queues do
not divide evenly, the extra ones are dealt from where the groups before left off. Otherwise the
first sessions would hold the extra queues of all groups, and others none at all.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

NO_SESSION = ""
REJOIN_MS: Final = 1000
"""How long, from the first returning session on, a queue waits for its last holder."""


def assign(
    queues: int,
    sessions: Iterable[str],
    held: Mapping[int, str],
    wanted: Mapping[int, str] | None = None,
    before: int | None = None,
) -> dict[int, str]:
    """Return the holder of each queue: within one of each other, fewest moves, deterministic.

    A queue that moves, or has no holder, goes where it is `wanted` if possible. `before`: the
    topic's queues in the broker groups before this one, None if there are no others. If given, it
    alone decides which sessions get one more queue, so all groups agree without communication.
    """
    names = sorted(set(sessions))
    if not names:
        return {}
    wanted = wanted or {}
    kept: dict[str, list[int]] = {name: [] for name in names}
    for queue in range(queues):
        if held.get(queue, NO_SESSION) in kept:
            kept[held[queue]].append(queue)
    asked = Counter(wanted.values())
    least, extra = divmod(queues, len(names))
    if before is None:
        ranked = sorted(names, key=lambda name: (-len(kept[name]), -asked[name], name))
    else:
        at = before % len(names)
        ranked = names[at:] + names[:at]
    quota = {name: least + (rank < extra) for rank, name in enumerate(ranked)}
    target: dict[int, str] = {}
    for name in names:
        # Queues that another session asks for are given up first.
        ours = sorted(kept[name], key=lambda q: (wanted.get(q, name) not in (name, NO_SESSION), q))
        target.update((queue, name) for queue in ours[: quota[name]])
    room = {name: quota[name] - min(len(kept[name]), quota[name]) for name in names}
    for queue in range(queues):
        name = wanted.get(queue, NO_SESSION)
        if queue not in target and room.get(name, 0):
            target[queue] = name
            room[name] -= 1
    free = iter([q for q in range(queues) if q not in target])
    for name in ranked:
        for _ in range(room[name]):
            target[next(free)] = name
    return target


class Move(NamedTuple):
    """A queue given to a session, or taken from it."""

    queue_id: int
    session: str
    generation: int


class Moves(NamedTuple):
    """The changes, in the order in which to send them to the sessions."""

    revoked: list[Move]
    assigned: list[Move]
    released: list[Move]  # taken for good: its old holder's acks do not count from now on


@dataclass(slots=True)
class Holding:
    """The current holder of a queue."""

    session: str = NO_SESSION
    generation: int = 0
    draining_until_ms: int | None = None

    @property
    def delivering(self) -> bool:
        """Whether the holder may get more of the queue's records."""
        return self.session != NO_SESSION and self.draining_until_ms is None


class Assignments:
    """The holders of all queues of one topic, for one consumer group."""

    def __init__(self, queues: int, drain_ms: int) -> None:
        self.holdings = [Holding() for _ in range(queues)]
        self._before: int | None = None  # see `assign`
        self.sessions: set[str] = set()
        self._target: dict[int, str] = {}
        self._wanted: dict[int, str] = {}  # who held it, as the returning sessions claim
        self._waits_until_ms = 0  # what no session asks for is given to none
        self._drain_ms = drain_ms

    def join(
        self, session: str, busy: Collection[int], now_ms: int, held: Iterable[int] = ()
    ) -> Moves:
        """Add a session. `busy`: queues with records in flight; `held`: queues that it had."""
        # C6
        assert session not in self.sessions, "a session joins once; a second stream renews it"
        self.sessions.add(session)
        back = [queue for queue in held if 0 <= queue < len(self.holdings)]
        if back and not any(holding.generation for holding in self.holdings):
            self._waits_until_ms = self._waits_until_ms or now_ms + REJOIN_MS
        self._wanted.update(dict.fromkeys(back, session))
        return self._replan(busy, now_ms)

    def leave(self, session: str, busy: Collection[int], now_ms: int) -> Moves:
        """Remove a session: its queues go to others at once."""
        self.sessions.discard(session)
        self._wanted = {q: name for q, name in self._wanted.items() if name != session}
        released = []
        for queue, holding in enumerate(self.holdings):
            if holding.session == session:
                released.append(Move(queue, session, holding.generation))
                holding.session, holding.draining_until_ms = NO_SESSION, None
        moves = self._replan(busy, now_ms)
        return moves._replace(released=released + moves.released)

    def grow(
        self, queues: int, busy: Collection[int], now_ms: int, before: int | None = None
    ) -> Moves:
        """Take in more queues of the topic, here or in the groups `before` (see `assign`)."""
        self.holdings += [Holding() for _ in range(queues - len(self.holdings))]
        self._before = before
        return self._replan(busy, now_ms)

    def renew(self, session: str) -> Moves:
        """Move a session to a new stream: it keeps its queues under new generations."""
        moves = Moves([], [], [])
        for queue, holding in enumerate(self.holdings):
            if holding.session == session:
                moves.released.append(Move(queue, session, holding.generation))
                holding.generation += 1
                if holding.delivering:
                    moves.assigned.append(Move(queue, session, holding.generation))
        return moves

    def bump(self, queue: int) -> Move | None:
        """Void the holder's deliveries after a seek; the same holder starts again."""
        holding = self.holdings[queue]
        holding.generation += 1
        if not holding.delivering:
            return None
        return Move(queue, holding.session, holding.generation)

    def settle(self, busy: Collection[int], now_ms: int) -> Moves:
        """Hand over the queues that are drained, or whose drain time is over."""
        moves = Moves([], [], [])
        waits = now_ms < self._waits_until_ms
        for queue, holding in enumerate(self.holdings):
            target = self._target.get(queue, NO_SESSION)
            if holding.session != NO_SESSION and not self._let_go(
                queue, holding, target, queue in busy, now_ms, moves
            ):
                continue
            if target != NO_SESSION and not (waits and self._awaited(queue, target)):
                holding.session = target
                holding.generation += 1
                moves.assigned.append(Move(queue, target, holding.generation))
        return moves

    def next_deadline_ms(self) -> int | None:
        """Return when `settle` next has work because of time; None if never."""
        times = [h.draining_until_ms for h in self.holdings if h.draining_until_ms is not None]
        if self._target and any(h.session == NO_SESSION for h in self.holdings):
            times.append(self._waits_until_ms)
        return min(times, default=None)

    def _awaited(self, queue: int, target: str) -> bool:
        """Whether to keep the queue free because its last holder may return any moment."""
        return not self.holdings[queue].generation and self._wanted.get(queue) != target

    def _let_go(
        self, queue: int, holding: Holding, target: str, busy: bool, now_ms: int, moves: Moves
    ) -> bool:
        """Take a queue from its holder if it must move; return True once it has no holder."""
        if holding.draining_until_ms is None:
            if holding.session == target:
                return False
            moves.revoked.append(Move(queue, holding.session, holding.generation))
            holding.draining_until_ms = now_ms + self._drain_ms
        if busy and now_ms < holding.draining_until_ms:
            return False
        moves.released.append(Move(queue, holding.session, holding.generation))
        holding.session, holding.draining_until_ms = NO_SESSION, None
        return True

    def _replan(self, busy: Collection[int], now_ms: int) -> Moves:
        held = {q: h.session for q, h in enumerate(self.holdings) if h.session != NO_SESSION}
        self._target = assign(len(self.holdings), self.sessions, held, self._wanted, self._before)
        return self.settle(busy, now_ms)
