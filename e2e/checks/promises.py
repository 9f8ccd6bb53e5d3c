"""The promise of an OK, and the faults that may break it: `may_lose`. Pure.

An OK says that certain brokers held a copy when it was given, and how well each held it. A fault
takes copies away up to a kind: a killed process loses its memory, a machine without power also what
was not fsynced, a damaged or empty disk everything. So a record may be lost only if at one moment
every copy of some set of brokers that can have made the OK was gone. Nothing else excuses a loss:
not time, not who became master, not how often.

| `acks=` | master holds it | slaves hold it |
|---|---|---|
| one_way | nothing is promised | |
| received | in memory | - |
| persisted | on disk | - |
| replicated | as the policy's flush says | as many, as well as the policy says |
| all | on disk | every slave in sync, one at least, on disk |
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import combinations
from math import inf
from typing import Final, NamedTuple, assert_never

from e2e.history.cluster_events import Ending, FaultKind, GroupSetup
from fmqcore.policy import EVERYWHERE, AckPolicy, Flush, HowMany, SlaveCounts, majority_slaves

SETTLE_MS: Final = 2000.0
"""Background writes and fsyncs are done at most this many milliseconds after they were due."""


class Copy(IntEnum):
    """How well a broker holds a record."""

    NONE = 0
    MEMORY = 1  # of the process
    CACHE = 2  # of the operating system
    DISK = 3


TAKES: Final[dict[FaultKind, Copy]] = {
    FaultKind.STOP: Copy.NONE,
    FaultKind.KILL: Copy.MEMORY,
    FaultKind.POWER: Copy.CACHE,
    FaultKind.PAUSE: Copy.NONE,
    FaultKind.WEDGE: Copy.NONE,
    FaultKind.CUT: Copy.NONE,
    FaultKind.RESET: Copy.NONE,
    FaultKind.DELAY: Copy.NONE,
    FaultKind.LOSS: Copy.NONE,
    FaultKind.STALL: Copy.NONE,
    FaultKind.ZOOKEEPER: Copy.NONE,
    FaultKind.ZOOKEEPER_DATA: Copy.NONE,
    FaultKind.EXPIRE: Copy.NONE,
    FaultKind.DISK_ERROR: Copy.CACHE,  # a failed fsync: the kernel may have dropped the pages
    FaultKind.DISK_FULL: Copy.NONE,  # data in memory is tried again until there is space
    FaultKind.DISK_SLOW: Copy.NONE,
    FaultKind.DISK_DAMAGE: Copy.DISK,
    FaultKind.DISK_EMPTY: Copy.DISK,
    FaultKind.DESCRIPTORS: Copy.NONE,
    FaultKind.CLOCK: Copy.NONE,
    FaultKind.OPERATOR: Copy.NONE,
    FaultKind.CLIENT: Copy.NONE,
}
"""The best copy that a fault can take from the broker it is done to."""

ENDS_TAKE: Final[dict[Ending, Copy]] = {
    Ending.STOPPED: Copy.NONE,
    Ending.KILLED: Copy.MEMORY,
    Ending.POWER: Copy.CACHE,
    Ending.FATAL: Copy.MEMORY,
}

FROZEN: Final = frozenset({FaultKind.PAUSE, FaultKind.WEDGE})
"""During one of these faults the broker does nothing at all."""

FAILING: Final = frozenset({FaultKind.DISK_ERROR, FaultKind.DISK_FULL})
"""During one of these faults a broker may not be able to start."""

STANDSTILL: Final = FROZEN | {FaultKind.DISK_SLOW, FaultKind.DISK_FULL}
"""During one of these faults nothing needs to get from memory to the disk."""


class Loss(NamedTuple):
    """A broker lost its copies up to a kind, and had them again at `until_ms`."""

    broker: str
    from_ms: float
    until_ms: float
    takes: Copy
    idle: tuple[tuple[float, float], ...] = ()  # earlier times in which nothing need have been done
    settled_ms: float = -inf  # by then all data was on disk: the journal was opened, or closed
    kept: int = -1  # journal end at the next start; -1: not known


class Promise(NamedTuple):
    """Which brokers held a record when its OK was given, and how well."""

    since_ms: float  # the copies are not older
    reported_ms: float
    master: str
    master_copy: Copy
    slave_copy: Copy
    ways: tuple[frozenset[str], ...]  # each: slaves that together with the master made the ack
    flush_ms: float | None  # until a cached copy is on disk; None: not known
    below: float = inf  # the batch's end position, as far as observed


def promise_of(
    level: str,
    setup: GroupSetup,
    isrs: Iterable[frozenset[str]],
    since_ms: float,
    reported_ms: float,
    master: str = "",
    below: float = inf,
) -> Promise | None:
    """Return what an OK between the two times promised; None: nothing.

    `isrs`: every in-sync set that stood between the two; none known: all slaves.
    """
    master = master or setup.master
    policy = setup.policy
    flush_ms = None if policy.flush is Flush.OS_CACHE else float(policy.flush_interval_ms)
    alone: tuple[frozenset[str], ...] = (frozenset(),)
    match level:
        case "one_way":
            return None
        case "received":
            copies = (Copy.MEMORY, Copy.NONE, alone)
        case "persisted":
            copies = (Copy.DISK, Copy.NONE, alone)
        case "all":
            copies = _copies(EVERYWHERE, setup, isrs, master)
        case "replicated":
            copies = _copies(policy, setup, isrs, master)
        case _:
            raise ValueError(f"acks={level} is not known")
    return Promise(since_ms, reported_ms, master, *copies, flush_ms, below)


def may_lose(promise: Promise | None, losses: Sequence[Loss]) -> str:
    """Return why the record may be lost, as a sentence; "" if it must still be there."""
    if promise is None:
        return "nothing was promised"
    for way in promise.ways:
        holders = sorted({promise.master} | way)
        by_broker = [[x for x in losses if x.broker == b and _takes(promise, x)] for b in holders]
        for moment in sorted(x.from_ms for losses_of in by_broker for x in losses_of):
            gone = [
                next((x for x in of if x.from_ms <= moment < x.until_ms), None) for of in by_broker
            ]
            if all(gone):
                losses_text = ", ".join(
                    f"{x.broker} what was no better than {x.takes.name} at {x.from_ms:.0f}"
                    for x in gone
                    if x is not None
                )
                return f"every copy may have been gone at {moment:.0f} ms: lost by {losses_text}"
    return ""


def _takes(promise: Promise, loss: Loss) -> bool:
    if loss.from_ms < promise.since_ms:
        return False  # the copy is younger
    if loss.takes is not Copy.DISK and loss.kept >= promise.below:
        return False  # the batch was seen after the fault: not lost
    copy = promise.master_copy if loss.broker == promise.master else promise.slave_copy
    worked_ms = _worked_ms(promise, loss)
    if copy is Copy.MEMORY and worked_ms > SETTLE_MS:
        copy = Copy.CACHE
    flush_ms = promise.flush_ms
    if copy is Copy.CACHE and flush_ms is not None and worked_ms > flush_ms + SETTLE_MS:
        copy = Copy.DISK
    if copy is not Copy.NONE and promise.reported_ms <= loss.settled_ms:
        copy = Copy.DISK  # or the loss came before that
    return loss.takes >= copy


def _worked_ms(promise: Promise, loss: Loss) -> float:
    """Milliseconds in which the broker could write between the OK and the loss."""
    reported_ms, lost_ms = promise.reported_ms, loss.from_ms
    stood = (min(to_ms, lost_ms) - max(from_ms, reported_ms) for from_ms, to_ms in loss.idle)
    return lost_ms - reported_ms - sum(max(0.0, ms) for ms in stood)


def _copies(
    policy: AckPolicy, setup: GroupSetup, isrs: Iterable[frozenset[str]], master: str
) -> tuple[Copy, Copy, tuple[frozenset[str], ...]]:
    slaves = frozenset(setup.members) - {master}
    standing = [isr & slaves for isr in isrs] or [slaves]
    ways = {way for isr in standing for way in _ways(policy, setup, isr, slaves, master)}
    slave_copy = _SLAVE_COPY[policy.counts]
    if slave_copy is Copy.NONE:
        ways = {frozenset()}
    return _MASTER_COPY[policy.flush], slave_copy, tuple(sorted(ways, key=sorted))


_MASTER_COPY: Final = {
    Flush.OS_CACHE: Copy.CACHE,
    Flush.INTERVAL: Copy.CACHE,
    Flush.FSYNC: Copy.DISK,
}
_SLAVE_COPY: Final = {
    SlaveCounts.SENT: Copy.NONE,
    SlaveCounts.RECEIVED: Copy.MEMORY,
    SlaveCounts.DURABLE: Copy.DISK,
}


def _ways(
    policy: AckPolicy,
    setup: GroupSetup,
    isr: frozenset[str],
    slaves: frozenset[str],
    master: str,
) -> list[frozenset[str]]:
    """Return the smallest sets of slaves that meet the policy with that in-sync set."""
    match policy.how_many:
        case HowMany.NONE:
            return [frozenset()]
        case HowMany.ONE:
            return [frozenset({slave}) for slave in isr]
        case HowMany.MAJORITY:
            return [frozenset(s) for s in combinations(sorted(isr), majority_slaves(len(slaves)))]
        case HowMany.ALL:
            whole = slaves if policy.strict else isr
            return [whole] if whole or not slaves else []
        case HowMany.ZONES:
            zones = dict(zip(setup.members, setup.zones, strict=False))
            here = zones.get(master, "")
            near = [s for s in isr if zones.get(s, "") == here]
            far = [s for s in isr if zones.get(s, "") != here]
            return [frozenset({one, other}) for one in near for other in far]
        case _:
            assert_never(policy.how_many)
