"""The figures of ordered topics, for metrics: from a chain and the time. Pure.

| metric                              | from                                                     |
|-------------------------------------|----------------------------------------------------------|
| `fmq_ordered_segments`              | `Figures.segments`                                       |
| `fmq_ordered_unavailable_seconds`   | `Figures.unavailable_s`: a sender waits, and no segment  |
|                                     | is open, or its group is in trouble and no other can go  |
|                                     | on; a broker without a waiting sender exports 0          |
| `fmq_ordered_blocked_subscriptions` | `Figures.blocked_subscriptions`; of an end that is not   |
|                                     | reached, only the group's master exports them            |
| `fmq_ordered_unknown_ends`          | `Figures.unknown_ends`                                   |
| `fmq_ordered_switches_total`        | `switch_reason(before, after)` at each change that       |
|                                     | `ChainCache` reads: one for each reason that is not ""   |
"""

from dataclasses import dataclass
from typing import Final

from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.waits import read_waits
from fmqcore.zk.chain import Chain

REASONS: Final = tuple(sorted(CloseReason))


@dataclass(frozen=True, slots=True)
class Figures:
    """What is exported of one ordered topic now."""

    segments: int  # not dropped yet
    unavailable_s: float
    blocked_subscriptions: int  # they stop before an end that is not known, or not reached
    unknown_ends: int


def figures_of(
    chain: Chain,
    waiting_since_ms: int | None,
    now_ms: int,
    trouble_since_ms: int | None = None,
    short: int = 0,
) -> Figures:
    """Return the figures at `now_ms`, wall clock.

    `waiting_since_ms`: since when a sender has been in line, as this broker knows; None = none is.
    `trouble_since_ms`: since when the open segment takes no sends; None = it does. `short`: the
    segment whose end this broker's group does not reach; 0 = none.
    """
    blocked = {wait.subscription for wait in read_waits(chain)}
    blocked |= {name for name, numbers in chain.heads if short and short in numbers}
    return Figures(
        segments=len(chain.segments),
        unavailable_s=_unavailable_s(chain, waiting_since_ms, now_ms, trouble_since_ms),
        blocked_subscriptions=len(blocked),
        unknown_ends=sum(segment.end_unknown for segment in chain.segments),
    )


def switch_reason(before: Chain | None, after: Chain) -> str:
    """Return the class of the closing that came with this change; "" = the change closed nothing.

    A closing that was followed by another segment between two reads counts as `REQUEST`, as does
    the unknown class of a newer broker.
    """
    if before is None or before.topic_id != after.topic_id:
        return ""
    if _closings(after) <= _closings(before):
        return ""
    known = after.closing_class in REASONS
    return after.closing_class if known else CloseReason.REQUEST


def _closings(chain: Chain) -> int:
    """Return how many segments were ever closed: all but the open one."""
    return chain.next_number - 1 - (chain.last is not None and chain.closing is None)


def _unavailable_s(
    chain: Chain, waiting_since_ms: int | None, now_ms: int, trouble_since_ms: int | None
) -> float:
    is_open = chain.last is not None and chain.closing is None
    closed_ms = trouble_since_ms if is_open else chain.closing_since_ms
    if closed_ms is None or waiting_since_ms is None:
        return 0.0
    since_ms = max(closed_ms, waiting_since_ms)
    return max(0, now_ms - since_ms) / 1000
