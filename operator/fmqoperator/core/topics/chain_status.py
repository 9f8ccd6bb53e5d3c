"""The chain of an ordered topic in a Topic's status, conditions and Events. Pure.

The status is bounded: the last segments, and the first of the subscriptions that are behind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fmqcore.ids import GroupName
from fmqcore.ordered.chain_ends import chain_end
from fmqcore.ordered.context import Case, view_of
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, eligible, obstacles
from fmqcore.ordered.evidence import Evidence, GroupView, Params, Phase
from fmqcore.ordered.waits import read_waits, send_state, stuck_segments
from fmqcore.zk.chain import Chain, Segment
from fmqoperator.api.times import as_text
from fmqoperator.api.topic import (
    MAX_GROUPS,
    MAX_SHOWN,
    ChainPhase,
    OrderedSegment,
    OrderedState,
    SegmentEnd,
    SubscriptionBehind,
)
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.plan_types import Verdict

SENDS: Final = "SendAvailable"
READS: Final = "ConsumersBlocked"
_PARAMS: Final = Params()
_WORDS: Final = 1024
_PHASES: Final[Mapping[Phase, ChainPhase]] = {
    Phase.EMPTY: "Empty",
    Phase.OPEN: "Open",
    Phase.CLOSING: "Closing",
    Phase.ENDED: "Ended",
}


@dataclass(frozen=True, slots=True)
class ChainSeen:
    """One chain and what it depends on, from one look at ZooKeeper.

    `chain` None: there is none yet. `views`: groups of the chain and of the declaration that exist.
    `line`: the senders, first in line first.
    """

    chain: Chain | None = None
    views: Mapping[GroupName, GroupView] = field(default_factory=dict)
    line: tuple[str, ...] = ()


def state_of(seen: ChainSeen, now_ms: int) -> OrderedState | None:
    """Return the chain as the status shows it; None while there is none."""
    chain = seen.chain
    if chain is None:
        return None
    sends = send_state(chain, seen.views, seen.line, now_ms, _PARAMS)
    last = chain.last
    is_open = sends.phase is Phase.OPEN and last is not None
    behind = list(_behind(chain))
    unknown = [s.number for s in chain.segments if s.end_unknown]
    held = [s for s in chain.segments if s.end != s.start]
    return OrderedState(
        phase=_PHASES[sends.phase],
        since=_moment(sends.since_ms),
        reason=sends.reason[:_WORDS],
        open_segment=last.number if last is not None and is_open else 0,
        sending_group=last.group if last is not None and is_open else "",
        senders=len(seen.line),
        segment_count=len(chain.segments),
        segment_groups=tuple(dict.fromkeys(s.group for s in held))[:MAX_GROUPS],
        segments=tuple(_segment(chain, s) for s in chain.segments[-MAX_SHOWN:]),
        unknown_ends=tuple(unknown[:MAX_SHOWN]),
        subscriptions_behind=tuple(behind[:MAX_SHOWN]),
        behind_count=len(behind),
    )


def verdicts(seen: ChainSeen | None, now_ms: int, why_unknown: str) -> tuple[Verdict, Verdict]:
    """Return `SendAvailable` and `ConsumersBlocked`."""
    if seen is None or seen.chain is None:
        reason = "ChainUnknown" if seen is None else "NoChain"
        cause = why_unknown if seen is None else "the topic's chain is not created yet"
        return Verdict(SENDS, "Unknown", reason, cause), Verdict(READS, "Unknown", reason, cause)
    return _sends(seen, seen.chain, now_ms), _reads(seen, seen.chain)


def events(before: OrderedState | None, seen: ChainSeen | None) -> Iterator[EmitEvent]:
    """Report each switch, and each end that became unknown or known, since the status before.

    Without a status before there is nothing to compare with.
    """
    if before is None or seen is None or seen.chain is None:
        return
    chain = seen.chain
    last, known = chain.last, max((s.number for s in before.segments), default=0)
    if chain.closing is not None and last is not None and before.phase in ("Open", "Empty"):
        message = f"segment {last.number} in {last.group} takes no more sends: {chain.closing}"
        yield EmitEvent("Normal", "SegmentClosed", message[:_WORDS])
    if last is not None and last.number > known:
        yield EmitEvent(
            "Normal", "SegmentOpened", f"{last.group} takes the sends in segment {last.number}"
        )
    remedies = stuck_segments(chain, seen.views)
    for segment in chain.segments:
        if segment.end_unknown and segment.number not in before.unknown_ends:
            message = (
                f"the end of segment {segment.number} in {segment.group} is not known: consumers "
                f"stop before it; {remedies[segment.number]}"
            )
            yield EmitEvent("Warning", "EndUnknown", message[:_WORDS])
        if segment.end is not None and segment.number in before.unknown_ends:
            message = f"the end of segment {segment.number} in {segment.group} is known now"
            yield EmitEvent("Normal", "EndGiven", message)


def _sends(seen: ChainSeen, chain: Chain, now_ms: int) -> Verdict:
    state = send_state(chain, seen.views, seen.line, now_ms, _PARAMS)
    case = Case(chain, Evidence(groups=seen.views), now_ms, _PARAMS, LASTING_CONDITIONS)
    last = chain.last
    if state.phase is Phase.OPEN and last is not None:
        view = view_of(case, last.group)
        calm = view.reachable and view.takes_writes and not view.missing
        if calm:
            return Verdict(SENDS, "True", "Open" if seen.line else "NoSender", state.reason)
        return Verdict(SENDS, "False", "GroupInTrouble", state.reason)
    if state.phase is not Phase.CLOSING and not eligible(case):
        return Verdict(SENDS, "False", "NoGroup", f"no group may take sends: {obstacles(case)}")
    same = bool(seen.line) and seen.line[0] == chain.sender.id
    if state.phase is Phase.ENDED and chain_end(chain) is None and not same:
        return Verdict(SENDS, "False", "EndUnknown", state.reason)
    if state.phase is not Phase.CLOSING and not seen.line:
        return Verdict(SENDS, "True", "NoSender", "a segment is opened for the next sender")
    return Verdict(SENDS, "False", "Switching", state.reason)


def _reads(seen: ChainSeen, chain: Chain) -> Verdict:
    waits = read_waits(chain)
    if not waits:
        return Verdict(READS, "False", "NotBlocked", "")
    first, names = waits[0], sorted({wait.subscription for wait in waits})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    message = (
        f"{', '.join(names[:3])}{more} cannot read on: the end of segment {first.segment} in "
        f"{first.group} is not known; {stuck_segments(chain, seen.views)[first.segment]}"
    )
    return Verdict(READS, "True", "EndUnknown", message)


def _behind(chain: Chain) -> Iterator[SubscriptionBehind]:
    """The subscriptions that read an earlier segment than the last, the furthest behind first."""
    last = chain.last
    for first, name in sorted((min(numbers), name) for name, numbers in chain.heads):
        if last is not None and first < last.number:
            yield SubscriptionBehind(subscription=name, segment=first)


def _segment(chain: Chain, segment: Segment) -> OrderedSegment:
    return OrderedSegment(
        number=segment.number,
        group=segment.group,
        end=_end(chain, segment),
        messages=None if segment.end is None else sum(segment.end) - sum(segment.start),
        opened_at=_moment(segment.opened_ms),
        ended_at=_moment(segment.ended_ms),
    )


def _end(chain: Chain, segment: Segment) -> SegmentEnd:
    if segment.end_unknown:
        return "Unknown"
    if segment.end is not None:
        return "Known"
    return "Open" if chain.closing is None else "Closing"


def _moment(unix_ms: int) -> str:
    return as_text(unix_ms) if unix_ms else ""
