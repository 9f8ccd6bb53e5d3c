"""The demo's verdict, pure: takes what really happened, returns findings and times.

A finding is something that must not be. A second delivery is none: delivery is at least once, and
the number is reported. A flight without an answer (`unknown`) may be stored or not. A run that
showed nothing (no kill, no takeover, nothing acknowledged meanwhile) is a finding too, not a
success.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from fmqcore.ids import Permission

EXAMPLES: Final = 3
"""Number of examples reported in full for each kind of finding."""


class Place(NamedTuple):
    """A queue of the topic."""

    group: str
    queue: int


@dataclass(slots=True)
class History:
    """What a run really did, as seen by its producer and its consumers."""

    keys: list[bytes | None] = field(default_factory=list)  # of what was sent, by row
    checksums: "array[int]" = field(default_factory=lambda: array("L"))  # of the values, by row
    acked: dict[Place, dict[int, int]] = field(default_factory=dict)  # offset → row
    unknown: dict[int, str] = field(default_factory=dict)  # row → the reason given
    refused: dict[int, str] = field(default_factory=dict)
    consumed: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)  # (offset, row)
    foreign: dict[Place, list[int]] = field(
        default_factory=dict
    )  # offsets of messages that no producer sent

    @property
    def acked_count(self) -> int:
        """Number of acknowledged messages."""
        return sum(len(rows) for rows in self.acked.values())


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be: how often, and some examples."""

    code: str
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """The numbers and findings of a history."""

    sent: int
    acked: int
    unknown: int
    consumed: int  # different messages
    twice: int  # messages delivered more than once
    stored_twice: int  # of these: because they are in two places
    queues: int
    findings: tuple[Finding, ...]


def judge(history: History) -> Traffic:
    """Check everything that the history shows."""
    findings = [
        _lost(history),
        _mixed_up(history),
        _foreign(history),
        _out_of_order(history),
        _keys_out_of_order(history),
        finding_of(
            "REFUSED", "not stored", [f"flight {r}: {w}" for r, w in history.refused.items()]
        ),
    ]
    deliveries = Counter(row for seen in history.consumed.values() for _, row in seen)
    places = Counter(row for seen in history.consumed.values() for _, row in set(seen))
    return Traffic(
        sent=len(history.keys),
        acked=history.acked_count,
        unknown=len(history.unknown),
        consumed=len(deliveries),
        twice=sum(count > 1 for count in deliveries.values()),
        stored_twice=sum(count > 1 for count in places.values()),
        queues=len(history.acked.keys() | history.consumed.keys()),
        findings=tuple(finding for finding in findings if finding is not None),
    )


def _lost(history: History) -> Finding | None:
    lost = []
    for place, rows in sorted(history.acked.items()):
        seen = {offset for offset, _ in history.consumed.get(place, ())}
        lost += [_at(place, o, f"flight {rows[o]}") for o in sorted(rows.keys() - seen)]
    return finding_of("LOST", "acknowledged but never consumed", lost)


def _mixed_up(history: History) -> Finding | None:
    """Find offsets where the acknowledged message is not the consumed one, or changed."""
    wrong = []
    for place, seen in sorted(history.consumed.items()):
        rows = dict(history.acked.get(place, {}))
        for offset, row in seen:
            if rows.setdefault(offset, row) != row:
                wrong.append(_at(place, offset, f"flight {row} instead of {rows[offset]}"))
    return finding_of("MIXED_UP", "consumed in the place of another message", wrong)


def _foreign(history: History) -> Finding | None:
    places = sorted(history.foreign.items())
    found = [_at(place, offset, "") for place, offsets in places for offset in offsets]
    return finding_of("FOREIGN", "consumed but never sent, or damaged", found)


def _out_of_order(history: History) -> Finding | None:
    """Check that first deliveries rise; a message delivered before may come again."""
    wrong = []
    for place, seen in sorted(history.consumed.items()):
        newest, known = -1, set()
        for offset, _ in seen:
            if offset > newest:
                newest = offset
            elif offset not in known:
                wrong.append(_at(place, offset, f"after {newest}"))
            known.add(offset)
    return finding_of("ORDER", "delivered for the first time after a later one", wrong)


def _keys_out_of_order(history: History) -> Finding | None:
    """Check that in each queue, messages of one key are in the order in which they were sent."""
    wrong = []
    for place in sorted(history.acked.keys() | history.consumed.keys()):
        rows = dict(history.consumed.get(place, ())) | history.acked.get(place, {})
        newest: dict[bytes, int] = {}
        for offset in sorted(rows):
            row = rows[offset]
            key = history.keys[row]
            if key is None:
                continue
            if newest.get(key, -1) >= row:
                wrong.append(_at(place, offset, f"flight {row} of {key!r} after {newest[key]}"))
            newest[key] = row
    return finding_of("KEY_ORDER", "stored out of key order", wrong)


def _at(place: Place, offset: int, more: str) -> str:
    where = f"{place.group}/{place.queue} offset {offset}"
    return f"{where}: {more}" if more else where


def finding_of(code: str, what: str, found: Sequence[str]) -> Finding | None:
    """Return a finding with some examples; None if nothing was found."""
    if not found:
        return None
    examples = "; ".join(found[:EXAMPLES])
    more = f"; and {len(found) - EXAMPLES} more" if len(found) > EXAMPLES else ""
    return Finding(code, len(found), f"{len(found):,} {what}: {examples}{more}")


# ---- offsets that a group took over and gave back


def offsets_gone_back(before: Mapping[Place, int], after: Mapping[Place, int]) -> Finding | None:
    """Compare committed offsets as the slave had them with the master's later: none may fall."""
    wrong = [
        f"{place.group}/{place.queue} from {offset} to {after.get(place, 'nothing')}"
        for place, offset in sorted(before.items())
        if after.get(place, -1) < offset
    ]
    return finding_of("OFFSETS", "committed offsets went back", wrong)


# ---- times without reads and writes


class Seen(NamedTuple):
    """One look at one broker: what it serves at that moment (NONE if it does not answer)."""

    at_ms: float
    group: str
    broker: str
    permission: Permission


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest time in milliseconds without service (`CLUSTER`: without any in all groups)."""

    group: str
    reads_ms: float
    writes_ms: float


CLUSTER: Final = "cluster"


def outages(looks: Iterable[Seen], from_ms: float, to_ms: float) -> list[Outage]:
    """Return outages between two moments per group, and last for all groups (`CLUSTER`).

    From one look to its next a broker counts as serving what the first look shows, so a time is at
    most one look too long or too short.
    """
    ordered = sorted(looks)
    groups = sorted({look.group for look in ordered})
    now: dict[tuple[str, str], Permission] = {}
    gaps: dict[tuple[str, Permission], _Gap] = {
        (name, need): _Gap(from_ms)
        for name in [*groups, CLUSTER]
        for need in (Permission.READ, Permission.WRITE)
    }
    for look in ordered:
        now[look.group, look.broker] = look.permission
        for (name, need), gap in gaps.items():
            served = any(
                need in permission
                for (group, _), permission in now.items()
                if name in (group, CLUSTER)
            )
            gap.see(min(max(look.at_ms, from_ms), to_ms), served)
    return [
        Outage(
            name,
            gaps[name, Permission.READ].longest(to_ms),
            gaps[name, Permission.WRITE].longest(to_ms),
        )
        for name in [*groups, CLUSTER]
    ]


class _Gap:
    """The longest stretch without service."""

    __slots__ = ("_longest", "_since")

    def __init__(self, from_ms: float) -> None:
        self._since: float | None = from_ms
        self._longest = 0.0

    def see(self, at_ms: float, served: bool) -> None:
        """Note whether the group is served at this moment."""
        if not served:
            if self._since is None:
                self._since = at_ms
        elif self._since is not None:
            self._longest = max(self._longest, at_ms - self._since)
            self._since = None

    def longest(self, to_ms: float) -> float:
        """Return the longest so far; an open one counts up to `to_ms`."""
        return max(self._longest, to_ms - self._since if self._since is not None else 0.0)


def longest_pause(moments_ms: Sequence[float], from_ms: float, to_ms: float) -> float:
    """Return the longest time between two of the (rising) moments, and to both ends."""
    within = [moment for moment in moments_ms if from_ms < moment < to_ms]
    edges = [from_ms, *within, to_ms]
    return max(later - earlier for earlier, later in pairwise(edges))
