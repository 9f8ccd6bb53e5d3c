"""The parts of a broker that serve ordered topics, put together. No decisions are made here."""

from collections.abc import Coroutine
from typing import Any, Final

from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.registry import GroupTable
from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.append import OrderedAppend
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.ordered.chain_figures import ChainFigures
from fmqbroker.ordered.chain_lease import ChainLease
from fmqbroker.ordered.coordinator import Coordinator
from fmqbroker.ordered.group_ends import GroupEnds, GroupEndsCaller
from fmqbroker.ordered.held import Holdings
from fmqbroker.ordered.kept_segments import KeptSegments
from fmqbroker.ordered.member_ends import MemberEnds
from fmqbroker.ordered.own_duties import OwnDuties
from fmqbroker.ordered.progress import FinishedProgress
from fmqbroker.ordered.seal import Seals
from fmqbroker.ordered.senders import Senders
from fmqbroker.ordered.term import Term
from fmqbroker.produce.ordered_session import OrderedSessions
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.master import MasterReplication
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqcore.ids import BrokerId, GroupName, Position
from fmqcore.ordered.evidence import Params
from fmqport.clock import Clock
from fmqport.coordination import Coordination
from fmqport.transport import Transport

_PARAMS: Final = Params()


class OrderedParts:
    """What a broker has for ordered topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        transport: Transport,
        coordination: Coordination,
        journal: Journal,
        commit: CommitFrontier,
        visible: Visible,
        gate: Gate,
        group: GroupStore,
        view: ClusterView,
        master: MasterReplication,
    ) -> None:
        me, name, cluster = BrokerId(settings.broker), GroupName(settings.group), settings.cluster
        self._me, self._name, self._clock, self._view = me, name, clock, view
        self._journal, self._gate = journal, gate
        self.nodes = ChainNodes(coordination, cluster, clock)
        self.cache = cache = ChainCache(self.nodes, view, name)
        term = Term(journal, gate)
        self._ends = MemberEnds(me, journal, term, group, master, commit.changed)
        master.require_on_disk(self._promised_end)
        self._holdings = Holdings(journal, gate, term, self._ends, group, master)
        self._lease = ChainLease(coordination, clock, cluster, name, cache, term)
        self._seals = Seals(journal, term, cache, self._holdings)
        self.copies = copies = ChainCopies(
            journal, term, cache, view, transport, name, gate.changed
        )
        self._append = OrderedAppend(
            journal, clock, name, term, cache, self._lease, self._seals, self._ends, commit, copies
        )
        self.group_ends = GroupEnds(journal, cache, self._holdings, copies)
        self.ends_of = GroupEndsCaller(transport, view, name, me, self.group_ends)
        self.senders = Senders(coordination, cluster, clock, cache)
        self.sessions = OrderedSessions(
            settings, clock, self.senders, self.ends_of, self._append, lambda: gate.epoch
        )
        self.reads = ChainReads(
            cache,
            name,
            gate,
            copies,
            visible,
            self._holdings.held_end,
            self._ends.changed,
        )
        self.kept = KeptSegments(cache, view, name, journal)

    def follow_readers(self, groups: GroupTable) -> None:
        """Make the parts that need the consumer groups."""
        self._progress = FinishedProgress(
            self.cache, self._name, self._journal, groups.floors, groups.acked
        )
        own = OwnDuties(
            self._name,
            self._me,
            self._gate,
            self.cache,
            self._holdings,
            self._seals,
            self._progress,
        )
        self.figures = ChainFigures(self.cache, self.senders, self._clock, own.short_segment)
        self.coordinator = Coordinator(
            self._name,
            self._clock,
            self._view,
            self.cache,
            self.senders,
            self.ends_of,
            own,
            self.copies,
            _PARAMS,
        )
        self._append.on_room_changed(self.coordinator.wake)

    def _promised_end(self) -> Position:
        """Return up to where each member's disk must hold the journal; 0: no order to keep."""
        kept = any(
            self._name in (*(g.group for g in chain.groups), *(s.group for s in chain.segments))
            for chain in self.cache.topics()
        )
        return self._ends.promised_end() if kept else Position(0)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the broker."""
        return [
            self.cache.run(),
            self._ends.run(),
            self._holdings.run(),
            self._lease.run(),
            self._append.run(),
            self.copies.run(),
            self.senders.run(),
            self._progress.run(),
            self.coordinator.run(),
        ]
