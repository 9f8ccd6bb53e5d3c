"""Checks each write of a chain in ZooKeeper (K1 to K12 and K18, of any writer), and names its step.

`on_end` sees each end that a broker is about to give.

A `Trap` springs at a step: before the write, which is then lost or late, or just after it, when its
writer does not know yet that it stands. So a fault can stop a coordinator between any two steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fmqcore.ordered.invariants import broken_invariants, broken_step
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Segment
from fmqcore.zk.chain_json import chain_from_json
from fmqsim.engine.loop import SimLoop
from fmqsim.scenario.scene import CLUSTER


class ChainStep(Enum):
    """The steps of a chain's life that change its node, and SEAL, which comes before an end."""

    CLOSE = "close"
    SEAL = "seal"
    GIVE_END = "give the end"
    LOWER_END = "lower the end"
    DECLARE_UNKNOWN = "declare the end unknown"
    OPEN = "open"
    MOVE_HEADS = "move heads"
    DROP = "drop"


class Sprung(NamedTuple):
    """A step at which a trap sprang. `group`: the segment's; "" if none is named."""

    step: ChainStep
    writer: str
    group: str


@dataclass(slots=True, eq=False)
class Trap:
    """Springs once. `spring` returns how many seconds late a write is, before it; None: lost."""

    step: ChainStep
    before: bool
    spring: Callable[[Sprung], float | None]
    sprung: Sprung | None = None


At = tuple[ChainStep, Segment | None]
"""A step, and its segment; None: of heads, drops and SEAL."""
OnEnd = Callable[[str, Chain, Segment], None]
"""Gets the broker that gives an end, the chain with it, and the segment."""
OnHandOn = Callable[[Chain], None]
"""Gets a chain whose newest segment is another sender's than the one before."""
OnLower = Callable[[Chain, Segment, bool], None]
"""Gets a chain, its segment with a lower end, and whether a person accepted a loss by that."""


class ChainWatch:
    """The chains as written so far."""

    def __init__(
        self,
        loop: SimLoop,
        on_end: OnEnd,
        on_hand_on: OnHandOn = lambda _: None,
        on_lower: OnLower = lambda *_: None,
    ) -> None:
        self._on_hand_on = on_hand_on
        self._on_lower = on_lower
        self._loop = loop
        self._on_end = on_end
        self._before: dict[str, Chain] = {}
        self._traps: dict[Trap, None] = {}
        self.lowered = 0  # times that an end was lowered

    # ---- what is known
    @property
    def sending_group(self) -> str:
        """The group of the newest segment; "" without one."""
        newest = [chain.last.group for chain in self._before.values() if chain.last is not None]
        return str(newest[-1]) if newest else ""

    @property
    def newest_segment(self) -> int:
        """The number of the newest segment; 0 without one."""
        return max((chain.next_number - 1 for chain in self._before.values()), default=0)

    def __str__(self) -> str:
        return "; ".join(map(_summary, self._before.values())) or "no chain"

    # ---- traps
    def arm(self, trap: Trap) -> None:
        """Let the trap spring at its step."""
        self._traps[trap] = None

    def disarm(self, trap: Trap) -> None:
        """Let the trap spring no more."""
        self._traps.pop(trap, None)

    def asks(self, writer: str, path: str, data: bytes) -> float | None:
        """Return how late a write of a chain, which would succeed, is done; None: never."""
        before = self._before.get(path)
        if before is None or not is_chain(path, data):
            return 0.0
        chain = chain_from_json(data)
        at = step_of(before, chain)
        if at is not None and at[0] is ChainStep.GIVE_END and at[1] is not None:
            self._on_end(writer, chain, at[1])
        return self._spring(at, writer, True)

    def sealed(self, broker: str) -> None:
        """Handle a SEAL in a broker's journal that is not durable yet."""
        self._loop.at_world(0, self._spring, (ChainStep.SEAL, None), broker, None)

    def _spring(self, at: At | None, writer: str, before: bool | None) -> float | None:
        if at is None:
            return 0.0
        step, segment = at
        for trap in list(self._traps):
            if trap.step is step and before in (None, trap.before):
                self.disarm(trap)
                trap.sprung = Sprung(step, writer, "" if segment is None else str(segment.group))
                self._loop.note(f"trap: {writer} {'before' if before else 'after'} {step.value}")
                return trap.spring(trap.sprung)
        return 0.0

    # ---- writes
    def wrote(self, path: str, data: bytes, writer: str) -> None:
        """Check a written node, if it is a chain: the line of senders lies below it."""
        if not is_chain(path, data):
            return
        chain = chain_from_json(data)
        broken = broken_invariants(chain)
        before = self._before.get(path)
        if before is not None and before.topic_id == chain.topic_id:
            step = step_of(before, chain)
            lowers = step is not None and step[0] is ChainStep.LOWER_END
            broken += broken_step(before, chain, lowers=lowers)
            if step is not None and step[1] is not None and lowers:
                self._lower(before, chain, step[1])
        self._before[path] = chain
        self._loop.note(f"chain {chain.topic} by {writer}: {_summary(chain)}")
        self._loop.problems += [f"chain {chain.topic}: {text}" for text in broken]
        if before is not None and chain.sender.epoch > before.sender.epoch:
            self._on_hand_on(chain)
        if before is not None:
            self._spring(step_of(before, chain), writer, False)

    def _lower(self, before: Chain, chain: Chain, segment: Segment) -> None:
        self.lowered += 1
        old = before.segment(segment.number)
        self._on_lower(chain, segment, segment.loss and old is not None and not old.loss)


_ORDERED: Final = layout.ordered_node(CLUSTER)


def is_chain(path: str, data: bytes) -> bool:
    """Whether a write is one of a chain's node: the line of senders lies below it."""
    return bool(data) and path.rpartition("/")[0] == _ORDERED


def step_of(before: Chain, after: Chain) -> At | None:
    """Return the step from one chain to the next; None: it is another change."""
    last = after.last
    if last is not None and after.next_number > before.next_number:
        return ChainStep.OPEN, last
    if last is not None and before.closing is None and after.closing is not None:
        return ChainStep.CLOSE, last
    for old in before.segments:
        new = after.segment(old.number)
        if new is not None and (step := _end_step(old, new)) is not None:
            return step, new
    if after.floor.number > before.floor.number:
        return ChainStep.DROP, None
    known = dict(before.heads)
    if any(known.get(name, heads) != heads for name, heads in after.heads):
        return ChainStep.MOVE_HEADS, None
    return None


def _end_step(old: Segment, new: Segment) -> ChainStep | None:
    if old.end is None and new.end is not None:
        return ChainStep.GIVE_END
    if old.end != new.end and new.end is not None:
        return ChainStep.LOWER_END
    return ChainStep.DECLARE_UNKNOWN if new.end_unknown and not old.end_unknown else None


def _summary(chain: Chain) -> str:
    segments = ", ".join(
        f"{s.number} in {s.group} from {s.start} to "
        f"{'?' if s.end_unknown else s.end if s.end is not None else 'open'}"
        for s in chain.segments[-3:]
    )
    closing = f", closing: {chain.closing}" if chain.closing is not None else ""
    return f"sender {chain.sender.id} epoch {chain.sender.epoch}; {segments}{closing}"
