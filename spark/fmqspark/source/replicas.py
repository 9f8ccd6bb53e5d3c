"""Find how far each replica of a journal may be read; each vouches for its own bytes alone.

A replica is a data directory, or a live broker (`fmq://host:port`), which itself reports what is
committed. Leaves nothing on disk.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fmqcore.errors import (
    CorruptJournal,
    FmqError,
    InvalidArgument,
    Malformed,
    NotFound,
    Unavailable,
)
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.scan import Sealed
from fmqcore.journal.segments import CHECKPOINT, Segment, segment_base, segment_name
from fmqcore.scan.headers import ScanRange, scan_headers
from fmqcore.scan.selection import NO_END
from fmqspark.source.brokers import BrokerGone, is_broker, listing
from fmqspark.source.claims import require_own
from fmqspark.source.files import SegmentBytes, Throttle, inspect_directory, open_segment

T = TypeVar("T")
_PIECE: Final = 1024 * 1024
_NO_CHECKPOINT: Final = "it has no readable checkpoint, so its commit end is unknown"


class Replica(NamedTuple):
    """One replica: a directory or a broker."""

    path: str
    begin: Position
    end: Position  # reads end here
    durable_end: Position
    bases: tuple[Position, ...]
    journal: str = ""  # of a broker: its cluster and group
    named: tuple[Position, ...] = ()
    """Segments that its checkpoint knows: each must have a file."""
    known_end: Position = Position(0)
    """How far it reports to go; `end` is below that where its files do not hold it."""
    live: bool = False
    """A broker runs there and goes on: a slave may know of more than it holds yet."""
    stored_end: Position = Position(0)
    withheld_reason: str = ""
    """Why a broker may not let read what it stores from `end` on; "" = for a moment."""

    def until(self, base: Position) -> Position:
        """Return how far a segment may be read here."""
        behind = bisect_right(self.bases, base)
        return self.bases[behind] if behind < len(self.bases) else self.end


def find_replicas(sources: Sequence[str], uncommitted: bool, notices: list[str]) -> list[Replica]:
    """Return the replicas of which something is known; `notices` gets why others are left out."""
    known: list[Replica] = []
    failures: list[FmqError | OSError] = []
    for source in sources:
        try:
            replica = _broker(source) if is_broker(source) else _replica(source, uncommitted)
        except (BrokerGone, CorruptJournal, OSError) as error:
            failures.append(error)
            notices.append(f"{source} is left out: {error}")
        else:
            known += [replica] if replica is not None else []
            notices += [] if replica is not None else [f"{source} is left out: {_NO_CHECKPOINT}"]
    if failures and not known:
        raise _no_answer(failures)
    journals = {replica.journal for replica in known}
    if len(journals) > 1:
        raise InvalidArgument(f"these are brokers of several groups: {', '.join(sorted(journals))}")
    return known


def _no_answer(failures: Sequence[FmqError | OSError]) -> FmqError | OSError:
    """Return the error to raise if nothing could be read of any replica."""
    if isinstance(failures[0], BrokerGone):
        failed = "; ".join(map(str, failures))
        return Unavailable(f"no broker answers ({failed}): check the addresses and the network")
    return failures[0]


def _broker(source: str) -> Replica:
    listed = listing(source)
    begin, end, bases = listed.begin, listed.end, listed.bases
    whole = Replica(source, begin, end, end, bases, listed.journal, bases, known_end=end)
    stored_end, reason = listed.stored_end, listed.withheld_reason
    return whole._replace(stored_end=stored_end, withheld_reason=reason)


def _replica(path: str, uncommitted: bool) -> Replica | None:
    """Return how far a directory may be read; None if nothing there shows that.

    Raises `OSError`, and `CorruptJournal` if its checkpoint is of another journal.
    """
    view = inspect_directory(Path(path))
    bases = [
        base
        for name, _ in view.listing
        if (base := segment_base(name)) is not None and name != view.empty
    ]
    begin, limit, durable = (bases[0] if bases else Position(0)), Position(0), Position(0)
    named: tuple[Position, ...] = ()
    try:
        checkpoint = decode_checkpoint(view.checkpoint or b"")
    except Malformed:
        if not uncommitted:
            if view.unread:
                view.read(CHECKPOINT)  # raises why: the disk's fault, or a right that is missing
            return None
    else:
        if not view.live:  # a broker at work rewrites it all the time
            require_own(path, checkpoint, bases)
        begin, limit, durable = (
            checkpoint.journal_start,
            checkpoint.commit_end,
            checkpoint.durable_end,
        )
        if checkpoint.drop_from is not None:
            limit = min(limit, checkpoint.drop_from)
            bases = [base for base in bases if base < checkpoint.drop_from]
        named = tuple(base for base in checkpoint.bases if begin <= base < limit)
    bases = [base for base in bases if base >= begin]
    if uncommitted:
        limit = Position(NO_END)
    end = max(limit, begin)
    replica = Replica(
        path, begin, end, durable, tuple(bases), named=named, known_end=end, live=view.live
    )
    if limit > durable:
        replica = replica._replace(end=_real_end(replica, limit))
    return replica


def _real_end(replica: Replica, limit: Position) -> Position:
    """Return where the bytes end, if the durable end is below what may be read.

    Damage does not end them, nor does what cannot be read: the reader meets that, and takes it from
    another replica; it does not hide what is behind a durable end. What is below a newer segment is
    durable, whatever the checkpoint knows; but a wreck (nothing shows how far it went) ends with
    its last good batch. So does what a running broker is writing; without one, bytes that are no
    batch are damage, or torn by a crash.
    """
    durable = max(replica.durable_end, replica.begin)
    if limit != NO_END and replica.bases:
        durable = max(durable, min(replica.bases[-1], limit))
    end = durable
    for base, behind in zip_longest(replica.bases, replica.bases[1:]):
        if base >= limit or (behind is not None and behind <= durable):
            continue
        try:
            with open_segment(replica.path, segment_name(base), Throttle(0), sparse=True) as data:
                whole = Segment(base, Position(base + len(data)))
                reach = min(whole.end, limit)
                _, done = scan_headers(data.read, ScanRange(whole, base, reach))
                if done.position < durable:
                    _, done = scan_headers(data.read, ScanRange(whole, durable, reach))
                still = limit != NO_END and not replica.live
                torn = still and _anything(data, base, done.position, reach)
        except OSError:
            if limit == NO_END:  # nothing says how far it went
                raise
            return limit
        if torn:
            return limit
        end = min(done.position, limit)
        if not isinstance(done.stop, Sealed):
            break
    return end


def _anything(data: SegmentBytes, base: Position, begin: Position, end: Position) -> bool:
    """Return whether anything was ever written in the range."""
    for at in range(begin - base, end - base, _PIECE):
        if any(data.read(min(_PIECE, end - base - at), at)):
            return True
    return False


def first_good(
    holders: Sequence[Replica], look_at: Callable[[Replica], T], notices: list[str]
) -> T:
    """Return the first replica's answer that succeeds; else raise the first one's error."""
    failures: list[tuple[str, FmqError | OSError]] = []
    for replica in holders:
        try:
            found = look_at(replica)
        except (FmqError, OSError) as error:
            failures.append((replica.path, error))
        else:
            notices += [
                f"{path} cannot give what {replica.path} can: {error}"
                for path, error in failures
                if not isinstance(error, FileNotFoundError | NotFound)  # retention, most likely
            ]
            return found
    assert failures, "each segment has a holder"
    raise failures[0][1]
