"""SEAL batches: where the segments of chains end in this group's journal.

Order of effects: the segment is frozen (nothing more is taken into it or acknowledged), what all
members hold is compared with the end that was decided, SEAL is appended, then fsynced. Only a
durable SEAL is evidence for the end. The first three happen in one turn of the loop, so no record
above the end is acknowledged in between.

A frozen segment stays so for the term, whether or not its SEAL could be written. Seals come from
the journal: those of a start's newest segment, and all that a slave received.
"""

from collections.abc import Collection, Mapping
from typing import Final

import structlog

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.held import Holdings
from fmqbroker.ordered.term import NO_TERM, Term
from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.control import Seal, encode_seal
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.errors import Unavailable
from fmqcore.ids import TopicId
from fmqcore.zk.chain import PerQueue

_log = structlog.get_logger()

_NOTHING: Final[frozenset[int]] = frozenset()


class Seals:
    """The seals of one broker."""

    def __init__(self, journal: Journal, term: Term, cache: ChainCache, holdings: Holdings) -> None:
        self.changed = Signal()  # a segment was frozen
        self._journal = journal
        self._term = term
        self._cache = cache
        self._holdings = holdings
        self._of = NO_TERM
        self._frozen: dict[TopicId, set[int]] = {}

    def sealed_of(self, topic_id: int) -> Mapping[int, PerQueue]:
        """Return the ends of the segments with a durable SEAL, by segment."""
        durable_end = self._journal.durable_end
        seals = self._journal.state.seals.get(TopicId(topic_id), {})
        return {k: sealed.ends for k, sealed in seals.items() if sealed.end <= durable_end}

    def closed_of(self, topic_id: int) -> Collection[int]:
        """Return the segments that take no more here: frozen, or with a SEAL, durable or not."""
        frozen = self._frozen.get(TopicId(topic_id), _NOTHING) if self._frozen else _NOTHING
        seals = self._journal.state.seals.get(TopicId(topic_id))
        if not seals:
            return frozen
        return {*seals, *frozen}

    async def seal(self, topic_id: int, segment: int, end: PerQueue) -> None:
        """Seal a segment; return once its SEAL is durable.

        Raises `Unavailable` if this broker is not master any more, or if the members hold more by
        now than `end`: decide again. Raises `StorageFull`, and `DeliveryUnknown` if the term ends.
        """
        topic, term = TopicId(topic_id), self._term.held
        chain = self._cache.of(topic_id)
        if not term or chain is None:
            raise Unavailable(f"segment {segment}: this broker is not the master that seals it")
        if term != self._of:
            self._of, self._frozen = term, {}
        self._frozen.setdefault(topic, set()).add(segment)
        self.changed.notify()
        if self._holdings.held(chain) != end:  # a later ack came between the decision and this
            raise Unavailable(f"segment {segment} of {chain.topic}: its members hold more by now")
        payload = encode_seal(Seal(topic, segment, end))
        appended = self._journal.append(BatchDraft(BatchType.SEAL, payload, crc32c(payload)))
        _log.info("chain_segment_sealed", topic=chain.topic, segment=segment, end=end)
        await self._journal.wait_durable(appended.end)
