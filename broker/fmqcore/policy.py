"""What an acknowledgement needs: flush × a slave counts when × how many. Pure.

Computes the commit end from the ends of master and slaves, whether a policy can be met at all, and
how many slaves a master must hear after an unclean restart. Time plays no part here.

| how many | holds when so many in-sync slaves count          | cannot be met when                 |
|----------|--------------------------------------------------|------------------------------------|
| NONE     | none                                             | never                              |
| ONE      | any one                                          | no slave is in sync                |
| MAJORITY | half of all members: with the master a majority  | fewer are in sync                  |
| ALL      | every one, and at least one if slaves are        | slaves are configured, but none is |
|          | configured; `strict`: every configured slave     | in sync; `strict`: not all are     |
| ZONES    | one in the master's zone and one in another      | either kind is not in sync         |

ALL follows the in-sync set as it shrinks, but never down to an acknowledgement that only the master
holds: that would be NONE under another name. In a group without slaves ALL always holds, and ONE
never does.

Slaves out of sync never count. While a change of the in-sync set is in doubt, the policy must hold
under both the old set and the new one (R6): for ALL that is their union.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, assert_never

from fmqcore.batch.crc import crc32c
from fmqcore.ids import BrokerId, Epoch, Position


class Flush(Enum):
    """When the master counts a batch."""

    OS_CACHE = "os-cache"  # written to the page cache
    INTERVAL = "interval"  # as os-cache; fsynced every `flush_interval_ms` in the background
    FSYNC = "fsync"  # fsynced


class SlaveCounts(Enum):
    """When a slave counts towards the policy."""

    SENT = "sent"  # handed to its stream
    RECEIVED = "received"  # acknowledged as received
    DURABLE = "durable"  # acknowledged as fsynced


class HowMany(Enum):
    """The number of slaves that must have a batch."""

    NONE = "none"
    ONE = "one"
    MAJORITY = "majority"  # of all members, the master included
    ALL = "all"  # every slave of the in-sync set; see `AckPolicy.strict`
    ZONES = "zones"  # one slave in the master's zone and one in another


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """A group's policy. `strict`: ALL means every configured slave, in sync or not."""

    flush: Flush = Flush.FSYNC
    flush_interval_ms: int = 1000
    counts: SlaveCounts = SlaveCounts.DURABLE
    how_many: HowMany = HowMany.ONE
    strict: bool = False


EVERYWHERE: Final = AckPolicy(Flush.FSYNC, 0, SlaveCounts.DURABLE, HowMany.ALL)
"""What the producer's level ALL requires: durable on the master and on every in-sync slave."""

NOTHING: Final = Position(0)
MIXED: Final = 2**24 - 1
"""The `mark_of` a mixture of policies."""


class MasterEnds(NamedTuple):
    """The ends of the master's own journal in its term."""

    written_end: Position
    durable_end: Position
    epoch: Epoch
    epoch_start: Position  # of this term's EPOCH batch
    zone: str = ""


class SlaveEnds(NamedTuple):
    """The ends in a configured slave's newest ack; `epoch` is that of the message it read."""

    sent_end: Position = NOTHING
    received_end: Position = NOTHING
    durable_end: Position = NOTHING
    epoch: Epoch = Epoch(0)
    zone: str = ""


class CommitEnds(NamedTuple):
    """How far the group's policy holds, and how far `EVERYWHERE` does. 0 = not in this epoch."""

    commit_end: Position
    all_end: Position


def commit_ends(
    policy: AckPolicy,
    master: MasterEnds,
    slaves: Mapping[BrokerId, SlaveEnds],
    isrs: Sequence[frozenset[BrokerId]],
) -> CommitEnds:
    """Return how far the policy holds under each in-sync set that may be in force (R6).

    `slaves` has every configured slave, heard of or not. A slave whose ack is from another epoch
    does not count, and an end at or before the term's EPOCH batch is no commit of this term.
    """
    return CommitEnds(
        _end_of(policy, master, slaves, isrs), _end_of(EVERYWHERE, master, slaves, isrs)
    )


def _end_of(
    policy: AckPolicy,
    master: MasterEnds,
    slaves: Mapping[BrokerId, SlaveEnds],
    isrs: Sequence[frozenset[BrokerId]],
) -> Position:
    end = master.durable_end if policy.flush is Flush.FSYNC else master.written_end
    counted = {
        broker: (ends.zone, _counted(policy.counts, ends))
        for broker, ends in slaves.items()
        if ends.epoch == master.epoch
    }
    for isr in isrs:
        # A slave that is no longer a member does not count, and ALL waits until it left the set: if
        # it became a member again, it could claim the reads with less than was acknowledged.
        in_sync = [counted.get(broker, ("", NOTHING)) for broker in sorted(isr)]
        end = min(end, _slaves_end(policy, master.zone, in_sync, len(slaves), end))
    return end if end > master.epoch_start else NOTHING


def counted_end(policy: AckPolicy, ends: SlaveEnds) -> Position:
    """Return how far a slave counts under the policy."""
    return _counted(policy.counts, ends)


def _counted(counts: SlaveCounts, ends: SlaveEnds) -> Position:
    match counts:
        case SlaveCounts.SENT:  # what it has was sent, by whichever stream
            return max(ends.sent_end, ends.received_end)
        case SlaveCounts.RECEIVED:
            return ends.received_end
        case SlaveCounts.DURABLE:
            return ends.durable_end
        case _:
            assert_never(counts)


def _slaves_end(
    policy: AckPolicy,
    zone: str,
    in_sync: Sequence[tuple[str, Position]],
    configured: int,
    unbounded: Position,
) -> Position:
    """How far enough in-sync slaves hold the journal; `unbounded` if no slave is needed."""
    ends = [end for _, end in in_sync]
    match policy.how_many:
        case HowMany.NONE:
            return unbounded
        case HowMany.ONE:
            return max(ends, default=NOTHING)
        case HowMany.MAJORITY:
            return _nth_largest(ends, majority_slaves(configured), unbounded)
        case HowMany.ALL:
            if configured == 0 and not ends:
                return unbounded
            if policy.strict and len(ends) < configured:
                return NOTHING
            return min(ends, default=NOTHING)
        case HowMany.ZONES:
            local = max((end for z, end in in_sync if z == zone), default=NOTHING)
            remote = max((end for z, end in in_sync if z != zone), default=NOTHING)
            return min(local, remote)
        case _:
            assert_never(policy.how_many)


def _nth_largest(ends: Iterable[Position], nth: int, unbounded: Position) -> Position:
    if nth == 0:
        return unbounded
    ordered = sorted(ends, reverse=True)
    return ordered[nth - 1] if len(ordered) >= nth else NOTHING


def majority_slaves(configured: int) -> int:
    """Return how many slaves make, together with the master, a majority of all members."""
    return (configured + 1) // 2


def can_meet(
    policy: AckPolicy,
    zones: Mapping[BrokerId, str],
    zone: str,
    isr: frozenset[BrokerId],
) -> str:
    """Return "" if that in-sync set can meet the policy, else a sentence that says why not.

    `zones` has the zone of every configured slave, `zone` is the master's.
    """
    in_sync = isr & zones.keys()
    now = f"in sync now: {', '.join(sorted(in_sync)) or 'none'} of {len(zones)} configured"
    match policy.how_many:
        case HowMany.NONE:
            return ""
        case HowMany.ONE:
            return "" if in_sync else f"the policy needs one in-sync slave; {now}"
        case HowMany.MAJORITY:
            need = majority_slaves(len(zones))
            return "" if len(in_sync) >= need else f"the policy needs {need} in-sync slaves; {now}"
        case HowMany.ALL:
            if policy.strict and len(in_sync) < len(zones):
                return f"the policy needs every configured slave in sync; {now}"
            return "" if in_sync or not zones else f"the policy needs an in-sync slave; {now}"
        case HowMany.ZONES:
            if not any(zones[broker] == zone for broker in in_sync):
                return f"the policy needs an in-sync slave in the master's zone {zone!r}; {now}"
            if not any(zones[broker] != zone for broker in in_sync):
                return f"the policy needs an in-sync slave outside the zone {zone!r}; {now}"
            return ""
        case _:
            assert_never(policy.how_many)


def slaves_to_hear(policy: AckPolicy, isr_size: int, configured: int | None = None) -> int:
    """Return how many in-sync slaves a master must hear after an unclean start to open a term.

    The heard slaves must meet every set of slaves that can have made an acknowledgement. 0 if the
    master fsyncs before it acknowledges: then it lacks nothing. The number of `configured` slaves
    decides the majority; without it MAJORITY is taken as ONE, which is never too few.
    """
    if policy.flush is Flush.FSYNC:
        return 0
    match policy.how_many:
        case HowMany.NONE:
            return 0
        case HowMany.ONE:
            least = 1
        case HowMany.MAJORITY:
            least = max(1, majority_slaves(configured or 0))
        case HowMany.ALL:
            least = isr_size
        case HowMany.ZONES:
            least = 2
        case _:
            assert_never(policy.how_many)
    return _hear_all_but(isr_size, least)


def mark_of(policy: AckPolicy, zones: Iterable[str]) -> int:
    """Return a number, 1 to 2**24 - 2, that identifies a policy and the slaves' zones."""
    asked = policy.flush, policy.counts, policy.how_many, policy.strict
    text = " ".join((*(str(rule) for rule in asked), *sorted(zones)))
    return 1 + crc32c(text.encode()) % (MIXED - 1)


def _hear_all_but(isr_size: int, least: int) -> int:
    """How many of `isr_size` slaves meet every subset of `least`; all if there is none such."""
    return isr_size - least + 1 if 0 < least <= isr_size else isr_size


def flush_mode(policy: AckPolicy, *, master: bool) -> tuple[bool, int]:
    """Return `(sync, interval_ms)` for `Journal.set_flush`: `sync` is fsync before acknowledging.

    A slave fsyncs each group commit only if it counts when durable; otherwise in the background,
    every `flush_interval_ms`, even where the master never does: a producer that asks for ALL waits
    for it, and a policy may need only the master's own fsync.
    """
    match policy.flush:
        case Flush.FSYNC:
            mode = (True, policy.flush_interval_ms)
        case Flush.INTERVAL:
            mode = (False, policy.flush_interval_ms)
        case Flush.OS_CACHE:
            mode = (False, 0)
        case _:
            assert_never(policy.flush)
    if master:
        return mode
    return policy.counts is SlaveCounts.DURABLE, policy.flush_interval_ms
