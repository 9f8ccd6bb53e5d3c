"""Which of several replicas of the operator works: what to do with the Lease as read. Pure.

The holder writes the Lease again every `RENEW_S`. A replica that sees it unchanged for
`DURATION_S`, by its own monotonic clock, takes it. The holder counts from before its last
successful write and stops working after `RENEW_DEADLINE_S`, which is sooner: two never work at
once. Clocks of machines are not compared.
"""

from dataclasses import dataclass
from typing import Any, Final

DURATION_S: Final = 15
RENEW_S: Final = 4.0
RENEW_DEADLINE_S: Final = 10.0
_MIN_TIMEOUT_S: Final = 0.5

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sight:
    """The Lease as it was first seen: its holder, its version, since when."""

    holder: str
    version: str
    since_s: float  # monotonic


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: write this (`create` it if it does not exist), or look again later."""

    sight: Sight | None
    write: Json | None = None
    create: bool = False


def next_step(found: Json | None, me: str, seen: Sight | None, now_s: float, now_text: str) -> Step:
    """Return the step of a replica that wants the Lease, or holds it. `found` None: no Lease."""
    if found is None:
        return Step(None, {"spec": _spec({}, me, now_text, taken=True)}, create=True)
    spec = found.get("spec") or {}
    holder, version = spec.get("holderIdentity") or "", found["metadata"]["resourceVersion"]
    if seen is None or (seen.holder, seen.version) != (holder, version):
        seen = Sight(holder, version, now_s)
    patience_s = spec.get("leaseDurationSeconds") or DURATION_S
    if holder not in ("", me) and now_s - seen.since_s < patience_s:
        return Step(seen)
    write = {**found, "spec": _spec(spec, me, now_text, taken=holder != me)}
    return Step(seen, write)


def released(found: Json) -> Json:
    """Return what the holder leaves behind at an orderly stop: no replica has to wait."""
    return {**found, "spec": {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}


def still_held(renewed_s: float, now_s: float) -> bool:
    """Whether the holder may work on. `renewed_s`: before its last successful write was sent."""
    return now_s - renewed_s < RENEW_DEADLINE_S


def pause_s(renewed_s: float, now_s: float) -> float:
    """Return the seconds until the next try to renew; the less is left, the sooner."""
    left_s = _left_s(renewed_s, now_s)
    return min(RENEW_S, left_s, max(left_s / 2, _MIN_TIMEOUT_S))


def patience_s(renewed_s: float, now_s: float) -> float:
    """Return the limit of that try: an API server that hangs lets no replica work too long."""
    return min(RENEW_S, _left_s(renewed_s, now_s))


def _left_s(renewed_s: float, now_s: float) -> float:
    return max(0.0, renewed_s + RENEW_DEADLINE_S - now_s)


def _spec(old: Json, me: str, now_text: str, *, taken: bool) -> Json:
    changes = int(old.get("leaseTransitions") or 0)
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": DURATION_S,
        "acquireTime": now_text if taken else old.get("acquireTime", now_text),
        "renewTime": now_text,
        "leaseTransitions": changes + 1 if taken and old else changes,
    }
