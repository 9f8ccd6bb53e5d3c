"""Which Events are news, and what of a round's failures is to be told. Pure: the time is given.

What goes on being so is told once in `AGAIN_S`. What was over meanwhile (a whole round of its
resource, in which nothing failed, did not tell it) is news when it is so again; but no Event is
told more than `MOST` times in `AGAIN_S`, whatever goes up and down. Nothing of this outlives the
operator: plans tell by what the status says already, this only keeps quick rounds from repeating.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from fmqoperator.api.base import Json
from fmqoperator.api.times import is_moment, of_text
from fmqoperator.core.actions import Tell
from fmqoperator.core.observation import Failure

AGAIN_S: Final = 600.0
MOST: Final = 5
_KEPT: Final = 10_000
_LASTING_ROUNDS: Final = 2
_WAITED_MS: Final = (30_000, 60_000)
OLD_DEFINITION: Final = "OldDefinition"


@dataclass(frozen=True, slots=True)
class Said:
    """One Event: when it was told in the last `AGAIN_S`, and in which round it was so last."""

    at_s: tuple[float, ...]
    round: int


Key = tuple[str, str, str]
"""The resource's uid, reason, message."""


class Told:
    """What was told of all resources. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._said: dict[Key, Said] = {}
        self._rounds: dict[str, int] = {}  # by uid: whole rounds since something was told of it

    def is_news(self, key: Key, now_s: float) -> bool:
        """Whether to tell it now; from then on it counts as told."""
        this_round = self._rounds.setdefault(key[0], 0)
        before = self._said.get(key, Said((), this_round))
        recent = tuple(at for at in before.at_s if now_s - at < AGAIN_S)
        was_over = before.round < this_round - 1
        news = not recent or (was_over and len(recent) < MOST)
        self._said[key] = Said((*recent, now_s) if news else recent, this_round)
        if len(self._said) > _KEPT:
            self._forget(now_s)
        return news

    def not_told(self, key: Key) -> None:
        """It could not be told after all: it still is news."""
        self._said.pop(key, None)

    def round_ended(self, uid: str) -> None:
        """A whole round of that resource: what it did not tell is over."""
        if uid in self._rounds:
            self._rounds[uid] += 1

    def _forget(self, now_s: float) -> None:
        self._said = {
            key: said for key, said in self._said.items() if now_s - said.at_s[-1] < AGAIN_S
        }
        known = {uid for uid, _, _ in self._said}
        self._rounds = {uid: n for uid, n in self._rounds.items() if uid in known}


def has_waited(since: str, now_ms: int) -> bool:
    """Whether to tell of what waits, and may be about to come by itself: once it has waited a
    while, and not again by an operator that begins long after. `since`: as in `times`."""
    return is_moment(since) and _WAITED_MS[0] <= now_ms - of_text(since) < _WAITED_MS[1]


def counted(before: Iterable[Failure], now: Iterable[Failure]) -> tuple[Failure, ...]:
    """The failures of a round, each with how many rounds in a row it has been so."""
    rounds = {(f.what, f.reason): f.rounds for f in before}
    return tuple(
        Failure(f.what, f.reason, f.message, rounds.get((f.what, f.reason), 0) + 1) for f in now
    )


def old_definition(kind: str, sent: Json, there: Json) -> tuple[Failure, ...]:
    """The API server kept less of a status than this merge patch says: it knows an older schema.

    (What was not sent may well be another than we believed.)
    """
    dropped = ", ".join(key for key in sorted(sent) if not _kept(sent[key], there.get(key)))
    if not dropped:
        return ()
    said = (
        f"the definition of {kind} in the cluster is an older one and drops {dropped}: apply those "
        "of this operator (manifests/crds, or crds.install of the chart)"
    )
    return (Failure("status", OLD_DEFINITION, said, _LASTING_ROUNDS),)


def _kept(sent: Any, there: Any) -> bool:
    if isinstance(sent, dict):
        return isinstance(there, dict) and all(_kept(v, there.get(k)) for k, v in sent.items())
    return bool(sent is None or sent == there)


def lasting(failures: Iterable[Failure]) -> Iterator[Tell]:
    """Of those that were not over at the next try, which is what a hiccup is."""
    for failure in failures:
        if failure.rounds >= _LASTING_ROUNDS:
            yield Tell("Warning", failure.reason, f"{failure.what}: {failure.message}")
