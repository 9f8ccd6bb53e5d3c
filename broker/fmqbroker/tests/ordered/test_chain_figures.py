"""The figures of this broker's ordered topics: switches counted, waiting senders timed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fmqbroker.ordered.chain_figures import ChainFigures
from fmqcore.ids import TopicId
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, OPEN
from fmqcore.zk.chain import Chain

NOW_MS = 1_700_000_000_000


class Parts:
    """A cache of one chain, the senders of this broker, and a clock, by hand."""

    def __init__(self) -> None:
        self.chain: Chain | None = None
        self.senders: list[str] = []
        self.now_ms = NOW_MS
        self.trouble_ms: int | None = None
        self.changed: Callable[[TopicId], None] = lambda _: None
        self.moved: Callable[[TopicId], None] = lambda _: None
        parts: Any = self
        self.short = 0
        self.figures = ChainFigures(parts, parts, parts, lambda _: self.short)

    def topics(self) -> list[Chain]:
        return [self.chain] if self.chain is not None else []

    def of(self, topic: TopicId) -> Any:  # also the senders
        return self.chain if topic == EMPTY.topic_id else None

    def on_changed(self, callback: Callable[[TopicId], None]) -> None:
        self.changed = callback

    def on_moved(self, callback: Callable[[TopicId], None]) -> None:
        self.moved = callback

    def trouble_since_ms(self, _: TopicId) -> int | None:
        return self.trouble_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def change(self, chain: Chain | None) -> None:
        self.chain = chain
        self.changed(TopicId(EMPTY.topic_id))


def test_each_closing_is_counted_once_by_its_reason() -> None:
    parts = Parts()
    for chain in (OPEN, CLOSING, replace(CLOSING, heads=())):
        parts.change(chain)
    (row,) = parts.figures
    assert row.topic == "changes"
    assert {reason: count for reason, count in row.switches.items() if count} == {"trouble": 1}
    parts.change(None)
    assert list(parts.figures) == []
    parts.change(OPEN)
    (row,) = parts.figures
    assert not any(row.switches.values()), "a topic that was deleted and created again"


def test_closing_segment_counts_while_a_sender_is_here() -> None:
    parts = Parts()
    parts.change(replace(CLOSING, closing_since_ms=NOW_MS - 5_000))
    (row,) = parts.figures
    assert row.figures.unavailable_s == 0, "no sender of this broker waits"
    parts.moved(TopicId(EMPTY.topic_id))
    parts.now_ms += 4_000
    (row,) = parts.figures
    assert row.figures.unavailable_s == 4


def test_open_segment_counts_while_its_group_is_in_trouble() -> None:
    parts = Parts()
    parts.change(OPEN)
    parts.moved(TopicId(EMPTY.topic_id))
    parts.trouble_ms = NOW_MS + 1_000
    parts.now_ms += 4_000
    (row,) = parts.figures
    assert row.figures.unavailable_s == 3


def test_consumers_at_an_end_that_is_not_reached_are_blocked() -> None:
    parts = Parts()
    parts.change(replace(DONE, heads=(("app", (1,)), ("late", (1,)), ("past", (2,)))))
    (row,) = parts.figures
    assert row.figures.blocked_subscriptions == 0
    parts.short = 1
    (row,) = parts.figures
    assert row.figures.blocked_subscriptions == 2
