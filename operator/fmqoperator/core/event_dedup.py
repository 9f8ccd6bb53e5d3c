"""Which Events are news, and which failures of a round to report. Pure: the time is given.

An Event whose cause persists is reported once in `REPEAT_AFTER_S`. If a whole round in which
nothing failed did not report it, its cause was over: then it is news when it recurs. But no Event
is reported more than `MOST` times in `REPEAT_AFTER_S`, however often its cause comes and goes. None
of this outlives the operator: plans compare with the status, this stops repeats in quick rounds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fmqoperator.api.base import Json
from fmqoperator.api.times import is_moment, of_text
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Failure

REPEAT_AFTER_S: Final = 600.0
MOST: Final = 5
_KEPT: Final = 10_000
_LASTING_ROUNDS: Final = 2
_WAITED_MS: Final = (30_000, 60_000)
OLD_DEFINITION: Final = "OldDefinition"


@dataclass(frozen=True, slots=True)
class Reports:
    """When one Event was reported in the last `REPEAT_AFTER_S`, and the last round that had it."""

    at_s: tuple[float, ...]
    round: int


Key = tuple[str, str, str]
"""The resource's uid, reason, message."""


class ReportedEvents:
    """The Events reported on all resources. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._reports: dict[Key, Reports] = {}
        self._rounds: dict[str, int] = {}  # by uid: whole rounds since its first Event

    def is_news(self, key: Key, now_s: float) -> bool:
        """Whether to report the Event now; if so, it counts as reported from then on."""
        this_round = self._rounds.setdefault(key[0], 0)
        before = self._reports.get(key, Reports((), this_round))
        recent = tuple(at for at in before.at_s if now_s - at < REPEAT_AFTER_S)
        was_over = before.round < this_round - 1
        news = not recent or (was_over and len(recent) < MOST)
        self._reports[key] = Reports((*recent, now_s) if news else recent, this_round)
        if len(self._reports) > _KEPT:
            self._drop_old(now_s)
        return news

    def forget(self, key: Key) -> None:
        """Note that the Event could not be sent after all: it is still news."""
        self._reports.pop(key, None)

    def round_ended(self, uid: str) -> None:
        """End a whole round of that resource: what it did not report is over."""
        if uid in self._rounds:
            self._rounds[uid] += 1

    def _drop_old(self, now_s: float) -> None:
        self._reports = {
            key: one for key, one in self._reports.items() if now_s - one.at_s[-1] < REPEAT_AFTER_S
        }
        known = {uid for uid, _, _ in self._reports}
        self._rounds = {uid: n for uid, n in self._rounds.items() if uid in known}


def has_waited(since: str, now_ms: int) -> bool:
    """Whether to report a wait that may soon end by itself: once, after it has lasted a while.

    An operator that starts long after does not report it again. `since`: as in `times`.
    """
    return is_moment(since) and _WAITED_MS[0] <= now_ms - of_text(since) < _WAITED_MS[1]


def counted(before: Iterable[Failure], now: Iterable[Failure]) -> tuple[Failure, ...]:
    """Return the failures of a round, each with its number of consecutive rounds."""
    rounds = {(f.what, f.reason): f.rounds for f in before}
    return tuple(
        Failure(f.what, f.reason, f.message, rounds.get((f.what, f.reason), 0) + 1) for f in now
    )


def old_definition(kind: str, sent: Json, there: Json) -> tuple[Failure, ...]:
    """Return a failure if the API server kept less of a status than this merge patch contains.

    It then knows an older schema. (What was not sent may differ from what the operator believed.)
    """
    dropped = ", ".join(key for key in sorted(sent) if not _kept(sent[key], there.get(key)))
    if not dropped:
        return ()
    message = (
        f"the cluster's definition of {kind} is older than this operator and drops {dropped}: "
        "apply the operator's definitions (manifests/crds, or crds.install of the chart)"
    )
    return (Failure("status", OLD_DEFINITION, message, _LASTING_ROUNDS),)


def _kept(sent: Any, there: Any) -> bool:
    if isinstance(sent, dict):
        return isinstance(there, dict) and all(_kept(v, there.get(k)) for k, v in sent.items())
    return bool(sent is None or sent == there)


def lasting(failures: Iterable[Failure]) -> Iterator[EmitEvent]:
    """Yield Events for failures that were not over at the next try, as a hiccup is."""
    for failure in failures:
        if failure.rounds >= _LASTING_ROUNDS:
            yield EmitEvent("Warning", failure.reason, f"{failure.what}: {failure.message}")
