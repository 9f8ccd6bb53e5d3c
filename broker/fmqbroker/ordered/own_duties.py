"""END, HEADS and TIDY: the duties of the broker that serves the group of a segment.

Order of effects at an end: the master seals the segment (takes, acknowledges and shows no more, and
writes the end into a durable SEAL), then writes that end into the chain. A takeover reader has
ended every later ack by its claim, so it writes its own durable end at once. Where the whole group
does not reach an end, since who gave it lost its records, the master lowers it: one write.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

import structlog

from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.gate import Gate
from fmqcore.ids import BrokerId, GroupName, Permission, TopicId
from fmqcore.ordered.evidence import Action, Decision, Duty, Evidence, GroupView, Params, Serving
from fmqcore.ordered.lowering import short_segment
from fmqcore.ordered.machine import decide
from fmqcore.zk.chain import Chain, PerQueue
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import Mode

_log = structlog.get_logger()
_AWAY: Final = "a member that is not in sync may hold the records below it"


class Holdings(Protocol):
    """What the journals of this broker's group hold of a topic."""

    @property
    def known(self) -> Signal:
        """Fires when `held` may be known where it was not."""
        ...

    def held(self, topic: Chain) -> PerQueue | None:
        """Return the ends that every configured member is known to hold; None: not known."""
        ...

    def durable_ends(self, topic: Chain) -> PerQueue:
        """Return, per queue, the end of what is fsynced in this broker's journal."""
        ...

    def is_full(self) -> bool:
        """Return whether this broker's journal takes no records for want of room."""
        ...

    def own_view(self, topic: Chain) -> GroupView:
        """Return the group as this broker knows it, if it is the master."""
        ...


class Seals(Protocol):
    """The SEAL batches of this broker's journal."""

    def sealed_of(self, topic_id: int) -> Mapping[int, PerQueue]:
        """Return the ends of the segments with a durable SEAL."""
        ...

    async def seal(self, topic_id: int, segment: int, end: PerQueue) -> None:
        """Seal a segment; return once its SEAL is durable."""
        ...


class Readers(Protocol):
    """What the subscriptions of a topic have finished in this group."""

    def progress(self, topic: Chain) -> Mapping[str, PerQueue]:
        """Return the next offset of each queue by subscription: all before it is acked."""
        ...

    def expired(self, topic: Chain) -> Collection[int]:
        """Return the segments of which retention has left no record."""
        ...

    def on_progress(self, callback: Callable[[TopicId], None]) -> object:
        """Call `callback` with the topic when progress may have passed a segment."""
        ...


class Step(NamedTuple):
    """The result of reading one chain."""

    acted: bool = False  # look again at once
    poll: bool = False  # look again in a while: nothing announces what is awaited


class OwnDuties:
    """The duties of one broker for its own group."""

    def __init__(
        self,
        group: GroupName,
        broker: BrokerId,
        gate: Gate,
        chains: ChainCache,
        holdings: Holdings,
        seals: Seals,
        readers: Readers,
    ) -> None:
        self._group = group
        self._me = broker
        self._gate = gate
        self._chains = chains
        self._holdings = holdings
        self._seals = seals
        self._readers = readers
        self._unended: dict[TopicId, None] = {}  # their END waits
        self._short: dict[TopicId, str] = {}  # why an end that is not reached stays, as last logged
        self._due: Callable[[TopicId], None] = lambda _: None

    @property
    def role_changed(self) -> Signal:
        """Fires when `serving` may have changed."""
        return self._gate.changed

    def on_due(self, callback: Callable[[TopicId], None]) -> None:
        """Call `callback` with a topic when there may be a step to take, besides its changes."""
        self._due = callback
        self._readers.on_progress(callback)

    async def run(self) -> None:
        """Let a topic be due whose END waits for what the members hold, until cancelled."""
        while True:
            await self._holdings.known.wait()
            unended, self._unended = self._unended, {}
            for topic in unended:
                self._due(topic)

    def serving(self) -> Serving:
        """Return what this broker serves in its group now."""
        gate = self._gate
        if gate.is_master():
            return Serving.MASTER
        reads = gate.mode is Mode.SLAVE_CONSUME and gate.reader == self._me
        return Serving.READER if reads and gate.permission() & Permission.READ else Serving.NOTHING

    def is_full(self) -> bool:
        """Return whether this broker is master and refuses records because its disk is full."""
        return self.serving() is Serving.MASTER and self._holdings.is_full()

    def ends(self, chain: Chain) -> PerQueue | None:
        """Return the queues' ends that all members hold, nothing above; None of another broker."""
        if self.serving() is not Serving.MASTER:
            return None
        return self._holdings.own_view(chain).ends

    async def step(self, stored: Versioned[Chain], now_ms: int, params: Params) -> Step:
        """Take at most one step of the duties. Raises `Unavailable` and what reads of chains do."""
        serving = self.serving()
        self._unended.pop(stored.value.topic_id, None)
        if serving is Serving.NOTHING:
            return Step()
        chain, poll = stored.value, False
        short = self.short_segment(chain)
        if not short:
            self._short.pop(chain.topic_id, None)
        for duty, is_due in _DUE.items():
            due = is_due(chain, self._group)
            lowers = duty is Duty.END and short > 0 and not due
            if not due and not lowers:
                continue
            evidence = self._short_evidence(chain) if lowers else self._evidence(duty, chain)
            decision = decide(duty, chain, evidence, now_ms, params)
            if decision.action is not Action.WAIT:
                await self._take(stored, decision)
                return Step(acted=True)
            if duty is Duty.END:
                self._unended[chain.topic_id], poll = None, True
            if lowers:
                known = evidence.whole_ends is not None
                self._note_short(chain, short, decision.reason if known else _AWAY)
        return Step(poll=poll)

    def _note_short(self, chain: Chain, segment: int, reason: str) -> None:
        """Log once why consumers wait at an end that this broker does not reach."""
        if self._short.get(chain.topic_id) != reason:
            self._short[chain.topic_id] = reason
            _log.warning("chain_end_not_reached", topic=chain.topic, segment=segment, reason=reason)

    def short_segment(self, chain: Chain) -> int:
        """Return the first segment whose end this group's master does not reach; 0 = none."""
        if self.serving() is not Serving.MASTER:
            return 0
        short = short_segment(chain, self._group, self._holdings.durable_ends(chain))
        return 0 if short is None else short.number

    def _whole_ends(self, chain: Chain) -> PerQueue | None:
        view = self._holdings.own_view(chain)
        return view.ends if view.takes_writes and not view.missing else None

    def _short_evidence(self, chain: Chain) -> Evidence:
        """Return what the master needs to lower an end: progress only if its group is whole."""
        whole = self._whole_ends(chain)
        progress = {} if whole is None else self._readers.progress(chain)
        return Evidence(
            group=self._group, serving=Serving.MASTER, whole_ends=whole, progress=progress
        )

    def _evidence(self, duty: Duty, chain: Chain) -> Evidence:
        """Return the part of the evidence that the duty reads."""
        match duty:
            case Duty.END:
                serving = self.serving()
                master = serving is Serving.MASTER
                return Evidence(
                    group=self._group,
                    serving=serving,
                    sealed=self._seals.sealed_of(chain.topic_id),
                    held=self._holdings.held(chain) if master else None,
                    durable_ends=None if master else self._holdings.durable_ends(chain),
                )
            case Duty.HEADS:
                return Evidence(group=self._group, progress=self._readers.progress(chain))
            case _:
                return Evidence(expired=frozenset(self._readers.expired(chain)))

    async def _take(self, stored: Versioned[Chain], decision: Decision) -> None:
        chain = stored.value
        if decision.action is Action.SEAL:
            assert decision.end is not None
            await self._seals.seal(chain.topic_id, decision.segment, decision.end)
            return
        assert decision.edit is not None
        if not await self._chains.edit(stored, decision.edit):
            await self._chains.read(chain.topic)
            return
        if decision.action is Action.GIVE_END:
            ended = decision.edit.segment(decision.segment)
            end = ended.end if ended is not None else None
            _log.info("chain_end_set", topic=chain.topic, segment=decision.segment, end=end)
        elif decision.action is Action.LOWER_END:
            _log.warning("chain_end_lowered", topic=chain.topic, reason=decision.reason)
        elif decision.action is Action.MOVE_HEADS:
            _log.debug("chain_heads_moved", topic=chain.topic)
        else:
            dropped = len(chain.segments) - len(decision.edit.segments)
            _log.info("chain_segments_dropped", topic=chain.topic, count=dropped)


def _end_due(chain: Chain, group: GroupName) -> bool:
    """A segment of this group waits for its end."""
    return any(True for _ in chain.due_ends(group))


def _heads_due(chain: Chain, group: GroupName) -> bool:
    """A subscription reads an ended segment, of this group or empty, and another one follows."""
    return any(segment is not chain.last for segment in chain.ended_heads(group))


def _drop_due(chain: Chain, group: GroupName) -> bool:
    """The first segment lies here, or the last one: one of the two groups is there."""
    return len(chain.segments) > 1 and group in (chain.segments[0].group, chain.segments[-1].group)


_DUE = {Duty.END: _end_due, Duty.HEADS: _heads_due, Duty.TIDY: _drop_due}
"""In the order in which the duties are looked at."""
