"""When each broker had lost which copies, from faults and ends of processes. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import inf
from typing import Final

from e2e.checks.promises import ENDS_TAKE, FAILING, FROZEN, STANDSTILL, TAKES, Copy, Loss
from e2e.history.cluster_events import Down, Ending, Ends, Fault, FaultKind, Step, Up

_LATE_MS: Final = 500.0
"""Milliseconds after which a sample shows what was stored just before."""


class Losses:
    """All losses of a run, by broker."""

    def __init__(
        self,
        faults: Sequence[Fault],
        lives: Mapping[str, Sequence[Up | Down]],
        ends: Mapping[str, Sequence[Ends]],
    ) -> None:
        self._lives = lives
        self._ends = ends
        self._exact = all(e.asked_ms == e.at_ms for of in ends.values() for e in of)
        self._standstills = _spans(faults, STANDSTILL)
        self._fullness = _spans(faults, frozenset({FaultKind.DISK_FULL}))
        kinds = FaultKind.DISK_DAMAGE, FaultKind.DISK_EMPTY
        self._to_disks = [f for f in faults if f.step is Step.FIRED and f.kind in kinds]
        self.frozen = _spans(faults, FROZEN)
        self.clients = _spans(faults, frozenset({FaultKind.CLIENT}))
        self.failing = _spans(faults, FAILING)
        self.all: list[Loss] = []
        for fault in faults:
            if fault.step is Step.FIRED and TAKES[fault.kind] > Copy.NONE:
                self._add(fault.on, fault.at_ms, TAKES[fault.kind])
        for broker, life in sorted(lives.items()):
            for event in life:
                if not isinstance(event, Down):
                    continue
                takes = ENDS_TAKE[event.how]
                if event.how is Ending.STOPPED and self._full(event):
                    takes = Copy.MEMORY  # there was no space for data that waited
                if takes > Copy.NONE:
                    self._add(broker, event.at_ms, takes)

    def hurt(self, broker: str, at_ms: float) -> bool:
        """Whether the broker's disk was damaged by then, and not emptied since."""
        done = [f for f in self._to_disks if f.on == broker and f.at_ms <= at_ms]
        return bool(done) and done[-1].kind is FaultKind.DISK_DAMAGE

    def damaged(self, brokers: Sequence[str], *, for_good: bool = False) -> bool:
        """Whether one broker's disk was hurt; with `for_good`, and never became whole again."""
        return any(
            loss.takes is Copy.DISK
            and loss.broker in brokers
            and (loss.until_ms == inf or not for_good)
            for loss in self.all
        )

    def furthest(self, group: str, since_ms: float, at_ms: float) -> float:
        """Return the furthest journal end in the group between the two times; inf: not known."""
        if not self._exact:
            return inf
        return max(self._ends_between(group, since_ms, at_ms), default=inf)

    def end_at(self, broker: str, at_ms: float) -> int:
        """Return how far the broker's journal went at least; -1: not known."""
        seen = [e for e in self._ends.get(broker, ()) if self._exact and e.asked_ms <= at_ms][-1:]
        ups = [e for e in self._lives.get(broker, ()) if isinstance(e, Up) and e.at_ms <= at_ms]
        if seen and ups and ups[-1].at_ms > seen[0].asked_ms:
            return ups[-1].end
        return seen[0].end if seen else -1

    def _ends_between(self, group: str, since_ms: float, at_ms: float) -> Iterator[int]:
        """Yield the journal ends of the group, as far as they were observed."""
        for ends in self._ends.values():
            if ends and ends[0].group == group:
                begin = bisect_right(ends, since_ms, key=_asked_ms)
                until = bisect_right(ends, at_ms, key=_asked_ms)
                yield from (e.end for e in ends[max(0, begin - 1) : until])

    def _add(self, broker: str, at_ms: float, takes: Copy) -> None:
        life = self._lives.get(broker, ())
        up = next((e for e in life if isinstance(e, Up) and e.at_ms >= at_ms), None)
        until_ms = inf if up is None else self._whole_again_ms(up, at_ms)
        kept = up.end if up is not None and self._exact else -1
        before = [e for e in life if e.at_ms <= at_ms]
        settled_ms = max(self._settled(before), default=-inf)
        idle = _joined(self._idle(broker, before, at_ms))
        self.all.append(Loss(broker, at_ms, until_ms, takes, tuple(idle), settled_ms, kept))

    def _settled(self, life: Sequence[Up | Down]) -> Iterator[float]:
        """Yield the times at which all of the broker's journal was durable.

        A start makes durable what it finds; an orderly stop writes everything if there is space. A
        start that was seen only later is known to have come after the end before it.
        """
        down_ms = -inf
        for event in life:
            if isinstance(event, Up):
                yield event.at_ms if self._exact else down_ms
                continue
            down_ms = event.at_ms
            if event.how is Ending.STOPPED and not self._full(event):
                yield down_ms

    def _full(self, event: Down) -> bool:
        return any(b == event.broker and f <= event.at_ms <= t for b, f, t in self._fullness)

    def _idle(
        self, broker: str, before: Sequence[Up | Down], at_ms: float
    ) -> Iterator[tuple[float, float]]:
        """Yield the times in which the broker wrote nothing: it was dead or stood still."""
        yield from ((f, t) for b, f, t in self._standstills if b == broker and f <= at_ms)
        downs = takewhile(lambda e: isinstance(e, Down), reversed(before))
        if dead := list(downs):
            yield dead[-1].at_ms, at_ms

    def _whole_again_ms(self, up: Up, at_ms: float) -> float:
        """Return when the broker again had all that its group had when it lost its own copies."""
        had = max(self._ends_between(up.group, at_ms, at_ms + _LATE_MS), default=0)
        own = self._ends.get(up.broker, ())
        return next((e.at_ms for e in own if e.asked_ms >= up.at_ms and e.durable_end >= had), inf)


def _asked_ms(ends: Ends) -> float:
    return ends.asked_ms


def _joined(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Return the times, merged where they overlap."""
    over_ms = -inf
    for from_ms, to_ms in sorted(spans):
        if to_ms > max(from_ms, over_ms):
            yield max(from_ms, over_ms), to_ms
            over_ms = to_ms


def _spans(faults: Sequence[Fault], kinds: frozenset[FaultKind]) -> list[tuple[str, float, float]]:
    """Return (broker, from, to) of the faults of some kinds."""
    found = []
    for fault in faults:
        if fault.kind in kinds and fault.step is Step.FIRED:
            healed = (f.at_ms for f in faults if f.number == fault.number and f.step is Step.HEALED)
            found.append((fault.on, fault.at_ms, next(healed, inf)))
    return found
