"""The copies of chains in this broker's journal, and those that other brokers report.

ZooKeeper's chain counts. One that ends before a segment of which some journal holds records comes
from a ZooKeeper that was lost or restored from an older backup: nothing is taken, shown, ended or
opened by it, and a broker whose journal has the newest copy restores it.

Order of effects: before a broker serves by a chain in a term, it asks all brokers of the other
groups that ZooKeeper shows, once (`compare`); one that does not answer in a second holds nothing
up. The journal has a segment's copy before the segment's first record (`note`). A restoration asks
once more, and only the newest copy is restored. Appends CONFIG; writes chains.
"""

import asyncio
from collections.abc import Iterable

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.term import Term
from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.control import encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.errors import FmqError
from fmqcore.ids import Epoch, GroupName, TopicId
from fmqcore.ordered.copies import (
    NO_COPY,
    ChainCopy,
    copy_in,
    is_behind,
    restored,
    why_behind,
    why_not_restorable,
    with_copy,
)
from fmqcore.properties import NONE, Properties
from fmqcore.zk.chain import Chain
from fmqcore.zk.codec import Versioned
from fmqport.transport import CallContext, Handlers, Transport, TransportError
from fmqproto.v1.replication_pb2 import ChainCopiesReply, ChainCopiesRequest
from fmqwire.methods import CHAIN_COPIES

_log = structlog.get_logger()


class ChainCopies:
    """What journals know of chains."""

    def __init__(
        self,
        journal: Journal,
        term: Term,
        cache: ChainCache,
        view: ClusterView,
        transport: Transport,
        group: GroupName,
        role_changed: Signal,
    ) -> None:
        self._journal = journal
        self._term = term
        self._cache = cache
        self._view = view
        self._transport = transport
        self._group = group
        self._role_changed = role_changed
        self._own: dict[TopicId, tuple[Properties, ChainCopy]] = {}  # decoded once
        self._reported: dict[TopicId, int] = {}  # by other brokers: the newest segment
        self._compared: Epoch | None = None  # the journal's term in which others were asked
        self._asking = asyncio.Lock()
        self._complaints: dict[TopicId, str] = {}

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {CHAIN_COPIES: self._chain_copies}

    # ---- what is known
    def behind(self, chain: Chain) -> str | None:
        """Return why nothing may be done by this chain; None if no journal knows a later one."""
        number = self._newest(chain.topic_id)
        return why_behind(chain, number) if is_behind(chain, number) else None

    def _newest(self, topic_id: TopicId) -> int:
        return max(self._copy(topic_id).number, self._reported.get(topic_id, 0))

    def _copy(self, topic_id: TopicId) -> ChainCopy:
        noted = self._journal.state.topic_properties.get(topic_id)
        if noted is None:
            return NO_COPY
        known = self._own.get(topic_id)
        if known is None or known[0] is not noted:
            known = self._own[topic_id] = noted, copy_in(noted)
        return known[1]

    # ---- the own journal
    def note(self, topic_id: TopicId, segment: int) -> None:
        """Append a copy of the cached chain, before the segment's first record here."""
        chain, state = self._cache.of(topic_id), self._journal.state
        if self._copy(topic_id).number >= segment or chain is None:
            return
        name, queues = state.topics[topic_id]
        properties = with_copy(state.topic_properties.get(topic_id, NONE), chain)
        payload = encode_topic(topic_id, name, queues, properties)
        self._journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))

    async def _chain_copies(self, _: CallContext, __: ChainCopiesRequest) -> ChainCopiesReply:
        copies = {topic: self._copy(topic) for topic in list(self._journal.state.topic_properties)}
        numbers = {int(topic): copy.number for topic, copy in copies.items() if copy.number}
        return ChainCopiesReply(segments=numbers)

    # ---- other brokers
    async def run(self) -> None:
        """Ask for the copies early in each term, so that the first sender does not wait."""
        while True:
            seen = self._role_changed.count
            if any(True for _ in self._cache.topics()):
                await self.compare()
            if seen == self._role_changed.count:
                await self._role_changed.wait()

    async def compare(self) -> None:
        """Ask the brokers of other groups for their newest segments, once in a term."""
        async with self._asking:
            if self._compared != self._term.newest:
                term = self._term.newest
                await self._ask_all()
                self._compared = term

    async def _ask_all(self) -> None:
        for segments in await asyncio.gather(*map(self._ask, self._addresses())):
            for topic_id, number in segments.items():
                known = self._reported.get(TopicId(topic_id), 0)
                self._reported[TopicId(topic_id)] = max(known, number)

    def _addresses(self) -> Iterable[str]:
        for group, config in self._view.configs.items():
            live = self._view.live.get(group, frozenset())
            if group != self._group:
                yield from (member.address for member in config.members if member.id in live)

    async def _ask(self, address: str) -> dict[int, int]:
        connection = self._transport.connect(address)
        try:
            reply = await connection.call(
                CHAIN_COPIES, ChainCopiesRequest(), CHAIN_COPIES.timeout_s
            )
        except (FmqError, TransportError) as error:
            _log.info("chain_copies_unknown", address=address, error=str(error))
            return {}
        finally:
            await connection.close()
        return dict(reply.segments)

    # ---- restoration
    async def restore(self, stored: Versioned[Chain]) -> bool:
        """Take a step towards the newest copy, if it is in this broker's journal.

        Returns whether the chain has to be looked at again at once. Raises `Unavailable`.
        """
        topic = stored.value.topic
        stored = await self._cache.read(topic)
        chain = stored.value
        copy = self._copy(chain.topic_id)
        if not is_behind(chain, self._newest(chain.topic_id)):
            return True
        await self._ask_all()
        if copy.number < self._newest(chain.topic_id):
            return False
        reason = why_not_restorable(chain, copy)
        known = None if reason is not None else copy.unpack()
        if known is None:
            self._complain(chain, f"{why_behind(chain, copy.number)}; {reason}")
            return False
        edit = restored(chain, known)
        if await self._cache.edit(stored, edit) and edit.next_number > chain.next_number:
            _log.warning(
                "chain_restored", topic=topic, segment=copy.number, was=chain.next_number - 1
            )
        return True

    def _complain(self, chain: Chain, reason: str) -> None:
        if self._complaints.get(chain.topic_id) != reason:
            self._complaints[chain.topic_id] = reason
            _log.error("chain_not_restored", topic=chain.topic, reason=reason)
