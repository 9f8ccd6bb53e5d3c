"""The figures of the ordered topics that this broker knows, gathered for metrics.

Switches are counted at each change of a chain, from the broker's start. Nothing runs for an idle
topic. Leaves nothing on disk.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.figures import REASONS, Figures, figures_of, switch_reason
from fmqbroker.ordered.senders import Senders
from fmqcore.ids import TopicId
from fmqcore.zk.chain import Chain
from fmqport.clock import Clock


class TopicFigures(NamedTuple):
    """Figures of one ordered topic."""

    topic: str
    figures: Figures
    switches: Mapping[str, int]  # by class of the reason: `REASONS`


class ChainFigures:
    """Watches the cached chains, and the senders of this broker."""

    def __init__(
        self, cache: ChainCache, senders: Senders, clock: Clock, short: Callable[[Chain], int]
    ) -> None:
        """`short` returns the segment whose end this broker's group does not reach; 0 = none."""
        self._short = short
        self._cache = cache
        self._senders = senders
        self._clock = clock
        self._before: dict[TopicId, Chain] = {}
        self._switches: dict[TopicId, Counter[str]] = {}
        self._waiting_since_ms: dict[TopicId, int] = {}  # wall clock
        cache.on_changed(self._note_change)
        senders.on_moved(self._note_senders)

    def __iter__(self) -> Iterator[TopicFigures]:
        """Yield every topic whose chain this broker knows."""
        now_ms = self._clock.wall_ms()
        for chain in list(self._cache.topics()):
            of = TopicId(chain.topic_id)
            switches = self._switches.get(of, Counter())
            yield TopicFigures(
                chain.topic,
                figures_of(
                    chain,
                    self._waiting_since_ms.get(of),
                    now_ms,
                    self._senders.trouble_since_ms(of),
                    self._short(chain),
                ),
                {reason: switches[reason] for reason in REASONS},
            )

    def _note_change(self, topic: TopicId) -> None:
        chain = self._cache.of(topic)
        if chain is None:
            for kept in (self._before, self._switches, self._waiting_since_ms):
                kept.pop(topic, None)
            return
        if reason := switch_reason(self._before.get(topic), chain):
            self._switches.setdefault(topic, Counter())[reason] += 1
        self._before[topic] = chain

    def _note_senders(self, topic: TopicId) -> None:
        if self._senders.of(topic):
            self._waiting_since_ms.setdefault(topic, self._clock.wall_ms())
        else:
            self._waiting_since_ms.pop(topic, None)
