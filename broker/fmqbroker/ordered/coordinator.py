"""Drives the chains of ordered topics: evidence, `fmqcore.ordered.machine.decide`, one write.

Each broker has one. For a topic, the broker that has the session of the first sender in line acts
at once on duty SEND; if it is gone, or does not reach the next group, a broker of the group that
was open acts 1 to 2 s later. That one finds what the sender reported in the sender's node.
Duties END, HEADS and TIDY belong to the broker that serves a segment's group (`own_duties`). Any
broker may act on any chain at any time: a step that comes twice fails on the node's version.

Nothing is remembered that another broker would need. `_Memory` holds when this broker first saw a
trouble or a closing: after a restart it waits longer, never shorter.

An idle topic has no timer and is not looked at. A topic is due when its chain changes, a
sender comes, goes or reports, a group in the chain changes, or a moment comes that the last
decision named. Masters are asked for their ends (`group_ends`) only when a step would be taken if
these were as hoped.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.ordered.group_ends import GroupEndsCaller
from fmqbroker.ordered.own_duties import OwnDuties, Step
from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.ordered.senders import Senders, WatchedNodes
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.slices import Slices
from fmqbroker.runtime.timers import Timers
from fmqcore.errors import FmqError, InvalidArgument, NotFound, StorageFull, UnknownTopic
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.evidence import (
    Action,
    Decision,
    Duty,
    Evidence,
    GroupView,
    Params,
    SenderReport,
)
from fmqcore.ordered.group_views import view_of_nodes
from fmqcore.ordered.guards import has_trouble
from fmqcore.ordered.machine import decide
from fmqcore.ordered.senders import Standing, line_of, sender_of
from fmqcore.zk.chain import Chain
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState
from fmqport.clock import Clock

_log = structlog.get_logger()

_AT_ONCE: Final = 32
"""Topics with a step under way at the same time."""
_RETRY_MS: Final = 1000
"""Until the next try when ZooKeeper does not answer, or the journal takes no SEAL."""
_POLLS_MS: Final = (100, 200, 500, 1000, 2000, 5000)
"""Pauses between two questions to masters, while only what they answer is awaited."""
_STAND_IN_MS: Final = (1000, 2000)
"""How long the coordinator of the first sender has before another broker acts, with jitter."""
_HOPED_END: Final = 1 << 62
_EVENTS: Final[Mapping[Action, str]] = {
    Action.CLOSE: "chain_segment_closed",
    Action.DECLARE_UNKNOWN: "chain_end_unknown",
    Action.OPEN: "chain_segment_opened",
}


@dataclass(slots=True)
class _Memory:
    """Notes of this coordinator on one topic; times are monotonic milliseconds."""

    trouble: tuple[int, int] | None = None  # (segment, since when its group is silent or lacks one)
    closing: tuple[int, int] | None = None  # (segment, since when it is seen to close)
    stand_in: tuple[int, int] | None = None  # (version of the chain, from when on to act on it)
    alarm_ms: int | None = None  # the newest timer; older ones do nothing
    polls: int = 0  # questions to masters since the chain's last change
    version: int = -1  # of the chain, at the last look
    wait: str = ""  # what the sends wait for, as last logged
    line: WatchedNodes | None = None  # while this broker stands in, and no segment is open

    def stop_standing_in(self) -> None:
        """Leave the topic to the first sender's broker."""
        self.stand_in = None
        self.close_line()

    def close_line(self) -> None:
        """Watch the line no more."""
        if self.line is not None:
            self.line.close()
            self.line = None


class Coordinator:
    """The coordinator of one broker."""

    def __init__(
        self,
        group: GroupName,
        clock: Clock,
        view: ClusterView,
        chains: ChainCache,
        senders: Senders,
        caller: GroupEndsCaller,
        own: OwnDuties,
        copies: ChainCopies,
        params: Params,
    ) -> None:
        self._group = group
        self._clock = clock
        self._view = view
        self._chains = chains
        self._senders = senders
        self._caller = caller
        self._own = own
        self._copies = copies
        self._params = params
        self._timers = Timers(clock)
        self._memory: dict[TopicId, _Memory] = {}
        self._due: dict[TopicId, None] = {}
        self._busy: set[TopicId] = set()
        self._again: set[TopicId] = set()  # busy, and due once more
        self._woken = Signal()
        self.looks = 0  # at single topics
        chains.on_changed(self.wake)
        senders.on_moved(self.wake)
        own.on_due(self.wake)

    @property
    def busy(self) -> bool:
        """Whether a topic is due or looked at now."""
        return bool(self._due or self._busy)

    @property
    def alarms(self) -> int:
        """The number of topics that have a timer."""
        return sum(memory.alarm_ms is not None for memory in self._memory.values())

    def wake(self, topic: TopicId) -> None:
        """Look at that topic soon: something has changed."""
        if topic in self._busy:
            self._again.add(topic)
        else:
            self._due[topic] = None
            self._woken.notify()

    async def run(self) -> None:
        """Coordinate until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._timers.run())
                tasks.create_task(self._own.run())
                tasks.create_task(self._watch_groups())
                while True:
                    while self._due and len(self._busy) < _AT_ONCE:
                        topic = next(iter(self._due))
                        del self._due[topic]
                        self._busy.add(topic)
                        tasks.create_task(self._serve(topic))
                    await self._woken.wait()
        finally:
            for memory in self._memory.values():
                memory.close_line()

    async def _watch_groups(self) -> None:
        """Wake the topics of each group whose nodes changed; all when this broker's role did."""
        seen: dict[GroupName, GroupView] = {}
        serving = self._own.serving()
        while True:
            changes = self._view.changed.count, self._own.role_changed.count
            now = {name: self._nodes_of(name) for name in self._view.configs}
            changed = {name for name, view in now.items() if seen.get(name) != view}
            changed |= seen.keys() - now.keys()
            role = self._own.serving()
            await self._wake_topics(changed, of_own_group=role is not serving)
            seen, serving = now, role
            if changes == (self._view.changed.count, self._own.role_changed.count):
                await wait_any(self._view.changed, self._own.role_changed)

    async def _wake_topics(self, changed: set[GroupName], *, of_own_group: bool) -> None:
        if not changed and not of_own_group:
            return
        slices = Slices()
        for chain in list(self._chains.topics()):
            if of_own_group or not changed.isdisjoint(_groups_of(chain)):
                self.wake(chain.topic_id)
            await slices.step()
        for topic in self._senders.topics():
            self.wake(topic)
            await slices.step()

    # ---- one topic
    async def _serve(self, topic: TopicId) -> None:
        """Take steps until there is none to take; then set the timer that the decision named."""
        memory = self._memory.setdefault(topic, _Memory())
        try:
            while await self._step(topic, memory):
                pass
        except (NotFound, UnknownTopic, InvalidArgument):
            self._forget(topic)  # the chain is gone, or was never made
        except FmqError as error:  # ZooKeeper or the own disk: every step may be made again
            _log.info("chain_step_failed", topic_id=topic, error=str(error))
            self._set_alarm(topic, memory, self._clock.monotonic_ms() + _RETRY_MS)
        self._busy.discard(topic)
        if topic in self._again:
            self._again.discard(topic)
            self._due[topic] = None
        self._woken.notify()

    async def _step(self, topic: TopicId, memory: _Memory) -> bool:
        """Take at most one step; return whether to look again at once."""
        self.looks += 1
        stored = self._chains.stored_of(topic)
        if stored is None:
            self._forget(topic)
            return False
        if stored.version != memory.version:
            memory.version, memory.polls = stored.version, 0
            memory.close_line()
        memory.alarm_ms = None
        if (reason := self._copies.behind(stored.value)) is not None:
            self._senders.note_wait(topic, reason, reason)
            if await self._copies.restore(stored):
                return True
            self._poll_later(topic, memory)
            return False
        try:
            step = await self._own.step(stored, self._clock.monotonic_ms(), self._params)
        except StorageFull as error:  # of a SEAL: what the sender reports is needed all the same
            _log.info("chain_step_failed", topic_id=topic, error=str(error))
            step = Step(poll=True)
        if step.acted:
            return True
        if step.poll:
            self._poll_later(topic, memory)
        return await self._send(stored, memory)

    def _forget(self, topic: TopicId) -> None:
        if (memory := self._memory.pop(topic, None)) is not None:
            memory.close_line()

    # ---- duty SEND
    async def _send(self, stored: Versioned[Chain], memory: _Memory) -> bool:
        chain = stored.value
        nodes = {name: self._nodes_of(name) for name in _groups_of(chain)}
        self._note_times(memory, chain, nodes)
        first = self._first_sender(chain)
        if first is not None:
            memory.close_line()
        elif not self._stands_in(stored, memory, nodes):
            return False
        places = await self._senders.line(chain.topic)
        if first is not None:
            nodes |= {
                name: replace(nodes[name], cut=True) for name in first.cut_groups & nodes.keys()
            }
        evidence = self._evidence(chain, memory, nodes, line_of(places, chain.sender.id))
        if first is None:
            report = await self._chains.report(chain, places)
            evidence = replace(evidence, report=evidence.report or report)
            self._watch_line(chain, memory, places)
        decision = self._decide(chain, evidence)
        if decision.action is Action.WAIT:
            decision, asked = await self._ask(chain, evidence)
            if asked and decision.action is Action.WAIT:
                self._poll_later(chain.topic_id, memory)
        if first is not None:
            self._note_wait(chain, memory, decision)
        if decision.edit is None:
            if decision.wake_ms is not None:
                self._set_alarm(chain.topic_id, memory, decision.wake_ms)
            if first is not None and evidence.report is not None:
                await self._note_report(chain, first, evidence.report)
            return False
        if await self._chains.edit(stored, decision.edit):
            self._log_step(chain, decision)
        else:
            await self._chains.read(chain.topic)
        return True

    async def _ask(self, chain: Chain, evidence: Evidence) -> tuple[Decision, bool]:
        """Decide by what the masters answer, if that can matter; also return whether it can."""
        hoped = self._decide(chain, replace(evidence, groups=_hoped(chain, evidence.groups)))
        if hoped.action is Action.WAIT:
            return hoped, False
        groups = await self._caller.views(chain, evidence.groups)
        return self._decide(chain, replace(evidence, groups=groups)), True

    def _decide(self, chain: Chain, evidence: Evidence) -> Decision:
        return decide(Duty.SEND, chain, evidence, self._clock.monotonic_ms(), self._params)

    def _evidence(
        self,
        chain: Chain,
        memory: _Memory,
        nodes: Mapping[GroupName, GroupView],
        line: tuple[str, ...],
    ) -> Evidence:
        last = chain.last
        senders = self._senders.of(chain.topic_id)
        reports = [s.report for s in senders if s.report is not None and s.id == chain.sender.id]
        wanted = last.number if last is not None else 0
        report = next((r for r in reports if r.segment == wanted), None)
        accepting = [s.id for s in senders if s.accepts_unknown_end and line[:1] == (s.id,)]
        groups = dict(nodes)
        if last is not None and last.group == self._group and chain.closing is None:
            # Does the journal reach the start of the open segment? For the next one all are asked.
            own = self._own.ends(chain)
            groups[last.group] = replace(groups[last.group], ends=own)
        return Evidence(
            groups=groups,
            line=line,
            report=report,
            accepts_unknown=accepting[0] if accepting else "",
            trouble_since_ms=None if memory.trouble is None else memory.trouble[1],
            closing_since_ms=None if memory.closing is None else memory.closing[1],
        )

    def _first_sender(self, chain: Chain) -> SenderStanding | None:
        """Return the sender first in line, if its session is here: then this broker coordinates."""
        first = (Standing.ACTIVE, Standing.NEXT)
        senders = self._senders.of(chain.topic_id)
        return next((s for s in senders if s.own and s.standing in first), None)

    def _stands_in(
        self, stored: Versioned[Chain], memory: _Memory, nodes: Mapping[GroupName, GroupView]
    ) -> bool:
        """Return whether this broker acts in the place of the first sender's, which does not."""
        chain = stored.value
        last = chain.last
        if last is None or last.group != self._group:
            memory.stop_standing_in()
            return False
        now_ms = self._clock.monotonic_ms()
        evidence = self._evidence(chain, memory, _hoped(chain, nodes), ())
        decision = self._decide(chain, evidence)
        ended = chain.closing is not None and last.has_ended
        if decision.action is Action.WAIT and not ended:
            memory.stop_standing_in()
            if decision.wake_ms is not None:
                self._set_alarm(chain.topic_id, memory, decision.wake_ms)
            return False
        if memory.stand_in is None or memory.stand_in[0] != stored.version:
            pause_ms = round(self._clock.uniform(*_STAND_IN_MS))
            memory.stand_in = (stored.version, now_ms + pause_ms)
        if now_ms < memory.stand_in[1]:
            self._set_alarm(chain.topic_id, memory, memory.stand_in[1])
            return False
        return True

    def _watch_line(self, chain: Chain, memory: _Memory, places: tuple[str, ...]) -> None:
        """Look again when a sender comes or reports: its broker may not reach the next group."""
        if chain.closing is None or chain.last is None or not chain.last.has_ended:
            return
        if memory.line is None:
            memory.line = self._senders.watched(partial(self.wake, chain.topic_id))
        own = [place for place in places if sender_of(place) == chain.sender.id]
        memory.line.watch(self._senders.nodes_of_line(chain.topic, own))

    # ---- what is noted
    def _note_times(
        self, memory: _Memory, chain: Chain, nodes: Mapping[GroupName, GroupView]
    ) -> None:
        """Note since when the open group has trouble, and since when the last segment closes."""
        now_ms, last = self._clock.monotonic_ms(), chain.last
        number = last.number if last is not None else 0
        if chain.closing is None:
            memory.closing = None
        elif memory.closing is None or memory.closing[0] != number:
            memory.closing = (number, now_ms)
        view = nodes.get(last.group, GroupView()) if last is not None else None
        if view is None or not has_trouble(chain, view):
            memory.trouble = None
        elif memory.trouble is None or memory.trouble[0] != number:
            memory.trouble = (number, now_ms)

    def _nodes_of(self, group: GroupName) -> GroupView:
        view = self._view
        config = view.configs.get(group)
        if config is None:
            return GroupView(avoid="it has left the cluster")
        seen = view_of_nodes(config, view.states.get(group, GroupState()), view.live.get(group, ()))
        return replace(seen, full=group == self._group and self._own.is_full())

    def _note_wait(self, chain: Chain, memory: _Memory, decision: Decision) -> None:
        """Let the senders learn what the chain waits for; log it once."""
        is_open = chain.last is not None and chain.closing is None
        reason = decision.reason if decision.action is Action.WAIT else ""
        trouble = reason if is_open and memory.trouble is not None else ""
        self._senders.note_wait(chain.topic_id, "" if is_open else reason, trouble)
        wait = trouble if is_open else reason
        if wait and wait != memory.wait:
            _log.info("ordered_sends_wait", topic=chain.topic, reason=wait)
        memory.wait = wait

    async def _note_report(self, chain: Chain, first: SenderStanding, report: SenderReport) -> None:
        """Note the sender's report in its node: another broker may get further with it."""
        last = chain.last
        ended = last is not None and last.has_ended
        if ended and first.id == report.sender:
            await self._senders.note_report(first, report)

    def _log_step(self, chain: Chain, decision: Decision) -> None:
        segment, edit = decision.segment, decision.edit
        group = edit.last.group if edit is not None and edit.last is not None else ""
        _log.info(
            _EVENTS[decision.action],
            topic=chain.topic,
            segment=segment,
            group=group,
            reason=decision.reason,
        )

    # ---- time
    def _poll_later(self, topic: TopicId, memory: _Memory) -> None:
        pause_ms = _POLLS_MS[min(memory.polls, len(_POLLS_MS) - 1)]
        memory.polls += 1
        self._set_alarm(topic, memory, self._clock.monotonic_ms() + pause_ms)

    def _set_alarm(self, topic: TopicId, memory: _Memory, due_ms: int) -> None:
        """Wake the topic then, or earlier if an earlier alarm is set."""
        if memory.alarm_ms is not None and memory.alarm_ms <= due_ms:
            return
        memory.alarm_ms = due_ms

        def ring() -> None:
            if memory.alarm_ms == due_ms:
                self.wake(topic)

        self._timers.at(due_ms, ring)


def _groups_of(chain: Chain) -> tuple[GroupName, ...]:
    """The groups that may take the next segment, and the one of the last segment."""
    last = chain.last
    names = [g.group for g in chain.groups]
    return tuple(dict.fromkeys(names if last is None else (*names, last.group)))


def _hoped(chain: Chain, nodes: Mapping[GroupName, GroupView]) -> dict[GroupName, GroupView]:
    """The groups as if their masters gave the best answers: ends known, beyond all earlier ones."""
    ends = (_HOPED_END,) * chain.queues
    return {
        name: replace(view, ends=ends) if view.takes_writes else view
        for name, view in nodes.items()
    }
