"""The lease on chains: until when this master may acknowledge ordered records (K14).

It comes from timed, synced reads of `groups/<g>/chains`, which each closing of a segment of the
group changes in its own transaction. So one read covers all chains of the group. A read that shows
another closing has the group's open chains read again before anything is acknowledged. Grants of
slaves do not count: a broker that declares an end unknown waits the lease out.

Read only while acks want the lease: an idle topic costs nothing.

Order of effects: the node is read, then the chains, then `chain_read_at_version` follows. All is
dropped with the term and with the ZooKeeper session.
"""

from typing import Final, NamedTuple

import structlog

from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.term import NO_TERM, Term
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.serving.lease import RENEWALS_PER_SESSION, lease_ms
from fmqcore.errors import Unavailable
from fmqcore.ids import Epoch, GroupName
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain
from fmqport.clock import Clock
from fmqport.coordination import Coordination, SessionState

_log = structlog.get_logger()

_WANTED_MS: Final = 3_000
"""The lease is renewed for this long after it was last wanted."""
_RETRY_MS: Final = 200
NO_VERSION: Final = -1


class Lease(NamedTuple):
    """The lease on one chain, as `AckEvidence` takes it."""

    until_ms: int = 0
    chains_version: int = NO_VERSION
    read_at_version: int = NO_VERSION - 1


class ChainLease:
    """The lease of one master."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        cluster: str,
        group: GroupName,
        cache: ChainCache,
        term: Term,
    ) -> None:
        self.changed = Signal()  # it was renewed, or the chains were read again
        self._coordination = coordination
        self._clock = clock
        self._node = layout.chains_node(cluster, group)
        self._group = group
        self._cache = cache
        self._term = term
        self._wanted = Signal()
        self._wanted_ms = -_WANTED_MS
        self._rests = False  # the last renewal counted, and the next one is not due
        self._of: Epoch = NO_TERM  # the term of all below
        self._sent_ms = 0
        self._seen: tuple[int, bytes] | None = None
        self._chains_version = NO_VERSION
        self._read_at_version = NO_VERSION - 1
        self._sessions = 0  # ZooKeeper sessions that were lost

    def of(self, chain: Chain) -> Lease:
        """Return the lease on this chain now, and have it renewed for a while."""
        held = self._term.held
        self._want(at_once=self._of != held)
        if self._of == NO_TERM or self._of != held or self._cache.is_outdated(chain.topic_id):
            return Lease()  # a chain that does not decode may say that the segment is closing
        length_ms = min(chain.lease_ms, lease_ms(self._coordination.session_timeout_ms))
        until_ms = self._sent_ms + length_ms
        return Lease(until_ms, self._chains_version, self._read_at_version)

    def _want(self, *, at_once: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        idle = now_ms - self._wanted_ms >= _WANTED_MS
        self._wanted_ms = now_ms
        if idle or (at_once and self._rests):
            self._rests = False
            self._wanted.notify()

    async def run(self) -> None:
        """Renew while it is wanted and this broker is master, until cancelled."""
        stop = self._coordination.on_state(self._on_session)
        try:
            while True:
                if self._clock.monotonic_ms() - self._wanted_ms >= _WANTED_MS:
                    await self._wanted.wait()
                self._rests = await self.renew()
                session_ms = self._coordination.session_timeout_ms
                rest_ms = session_ms // RENEWALS_PER_SESSION if self._rests else _RETRY_MS
                await wait_any(self._wanted, timeout_s=rest_ms / 1000)
        finally:
            stop()

    async def renew(self) -> bool:
        """Read once now; return False if it did not count. Never raises `Unavailable`."""
        term, sessions = self._term.held, self._sessions
        if not term:
            return False
        sent_ms = self._clock.monotonic_ms()  # it counts from here, not from the answer
        try:
            node = await self._coordination.get(self._node, synced=True)
            if node is None or not self._still(term, sessions):
                return False
            if term != self._of:
                self._drop()
            if (node.version, node.data) != self._seen:  # also of a node that was created again
                self._read_at_version = NO_VERSION - 1
            self._of, self._sent_ms = term, sent_ms
            self._seen, self._chains_version = (node.version, node.data), node.version
            if self._read_at_version != node.version:
                await self._cache.read_all(c.topic for c in self._cache.cached() if self._open(c))
                if not self._still(term, sessions) or self._of != term:
                    return False
                self._read_at_version = node.version
        except Unavailable:
            return False
        self.changed.notify()
        return True

    def _open(self, chain: Chain) -> bool:
        """Only an open segment of this group is acknowledged; the cache may miss its closing."""
        last = chain.last
        return chain.closing is None and last is not None and last.group == self._group

    def _still(self, term: Epoch, sessions: int) -> bool:
        return self._term.held == term and self._sessions == sessions

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._sessions += 1
            self._drop()

    def _drop(self) -> None:
        self._of, self._sent_ms, self._seen = NO_TERM, 0, None
        self._chains_version, self._read_at_version = NO_VERSION, NO_VERSION - 1
