"""When which broker had lost which copies, from faults and ends of processes. Pure."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from e2e.checks.promise import ENDS_TAKE, FAILING, FROZEN, STANDSTILL, TAKES, Copy, Loss
from e2e.events import Down, Ending, Ends, Fault, FaultKind, Step, Up

_LATE_MS: Final = 500.0
"""What was stored just before is seen in a sample a moment later."""


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
        self._standstills = _spans(faults, STANDSTILL)
        self.frozen = _spans(faults, FROZEN)
        self.failing = _spans(faults, FAILING)
        self.all: list[Loss] = []
        for fault in faults:
            if fault.step is Step.FIRED and TAKES[fault.kind] > Copy.NONE:
                self._add(fault.on, fault.at_ms, TAKES[fault.kind])
        for broker, life in sorted(lives.items()):
            for event in life:
                if isinstance(event, Down) and ENDS_TAKE[event.how] > Copy.NONE:
                    self._add(broker, event.at_ms, ENDS_TAKE[event.how])

    def damaged(self, brokers: Sequence[str], before_ms: float = inf) -> bool:
        """Whether the disk of one of them was hurt."""
        return any(
            loss.takes is Copy.DISK and loss.broker in brokers and loss.from_ms <= before_ms
            for loss in self.all
        )

    def _add(self, broker: str, at_ms: float, takes: Copy) -> None:
        stood = self._stood_since_ms(broker, at_ms)
        self.all.append(Loss(broker, at_ms, self._whole_again_ms(broker, at_ms), takes, stood))

    def _stood_since_ms(self, broker: str, at_ms: float) -> float:
        """From then on nothing need have got to its disk; `at_ms` if it worked until then.

        The dead write nothing either; who stopped in good order had written all before.
        """
        worked_ms = at_ms
        for event in reversed([e for e in self._lives.get(broker, ()) if e.at_ms <= at_ms]):
            if isinstance(event, Up):
                break
            worked_ms = at_ms if event.how is Ending.STOPPED else event.at_ms
        spans = (s for s in self._standstills if s[0] == broker and s[1] <= worked_ms < s[2])
        return min((since_ms for _, since_ms, _ in spans), default=worked_ms)

    def _whole_again_ms(self, broker: str, at_ms: float) -> float:
        """When it had all again that any broker of its group had when it lost its own."""
        up_ms = next(
            (
                e.at_ms
                for e in self._lives.get(broker, ())
                if isinstance(e, Up) and e.at_ms >= at_ms
            ),
            inf,
        )
        own = self._ends.get(broker, ())
        group = next((e.group for e in own), None)
        if group is None or up_ms == inf:
            return inf
        had = max(
            (
                e.end
                for ends in self._ends.values()
                for e in ends
                if e.group == group and e.asked_ms <= at_ms + _LATE_MS
            ),
            default=0,
        )
        return next((e.at_ms for e in own if e.asked_ms >= up_ms and e.durable_end >= had), inf)


def _spans(faults: Sequence[Fault], kinds: frozenset[FaultKind]) -> list[tuple[str, float, float]]:
    """(broker, from, to) of faults of some kinds."""
    found = []
    for fault in faults:
        if fault.kind in kinds and fault.step is Step.FIRED:
            healed = (f.at_ms for f in faults if f.number == fault.number and f.step is Step.HEALED)
            found.append((fault.on, fault.at_ms, next(healed, inf)))
    return found
