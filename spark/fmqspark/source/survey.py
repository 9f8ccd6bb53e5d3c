"""What the replicas of one journal hold: segments, topics, and how far it may be read.

Read is what is known to be committed: below the commit end that a replica's own checkpoint names.
It is the replica's own word for its own bytes, so a tail that was never agreed upon (a master's
that died) is not shown, even where another replica's commit end is higher. On a directory that a
broker is at work in, that is as of its newest checkpoint. `uncommitted` reads to the last good
batch.

A replica is a data directory, or a live broker (`fmq://host:port`), which says itself what is
committed. Slaves come first, so that a master is asked only for what nobody else can give.

Reads one SNAP a segment, and the headers of the newest one. Leaves nothing on disk.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fmqcore.batch import (
    HEADER_LEN,
    BadBatch,
    BatchType,
    check_payload,
    parse_header,
)
from fmqcore.errors import (
    CorruptJournal,
    FmqError,
    InvalidArgument,
    Malformed,
    NotFound,
    Unavailable,
)
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.control import decode_topic
from fmqcore.journal.offsets import QueueKey
from fmqcore.journal.scan import Fault, Sealed
from fmqcore.journal.segments import Segment, segment_base, segment_name, segment_of_snap
from fmqcore.journal.state import snap_tables
from fmqcore.scan.headers import HeaderBlock, Read, ScanRange, scan_headers
from fmqcore.scan.payloads import damaged
from fmqcore.scan.select import NO_END, Range
from fmqcore.words import Offset, Position, TopicId
from fmqspark.brokers import BrokerGone, connections, is_broker, listing
from fmqspark.files import Throttle, look, open_segment
from fmqspark.source.access import open_bytes

T = TypeVar("T")
_LOOKS: Final = 3
_NO_CHECKPOINT: Final = "it has no readable checkpoint, so nobody knows what of it is committed"
_UNKNOWN: Final = "no directory has a readable checkpoint, so nobody knows what is committed"


class Replica(NamedTuple):
    """One directory, or broker."""

    path: str
    begin: Position
    end: Position  # what may be read of it
    durable_end: Position
    bases: tuple[Position, ...]
    journal: str = ""  # of a broker: its cluster and group

    def until(self, base: Position) -> Position:
        """How far a segment may be read here."""
        behind = bisect_right(self.bases, base)
        return self.bases[behind] if behind < len(self.bases) else self.end


class Snap(NamedTuple):
    """What a segment's first batch says."""

    segment: Segment
    header_crc: int
    store_ms: int
    next_offsets: dict[QueueKey, Offset]
    names: dict[TopicId, str]


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as far as it may be read; `after` is None for one that is not full."""

    segment: Segment
    until: Position
    store_ms: Range
    before: dict[QueueKey, Offset]
    after: dict[QueueKey, Offset] | None
    sources: tuple[str, ...]  # who holds all of it, in the order in which to ask
    snap_crc: int  # header CRC of its first batch


@dataclass(slots=True)
class Survey:
    """What there is to read: [begin, end)."""

    begin: Position = Position(0)
    end: Position = Position(0)
    segments: list[SegmentView] = field(default_factory=list)
    names: dict[TopicId, str] = field(default_factory=dict)
    tail: HeaderBlock = field(default_factory=HeaderBlock)
    """Headers of the newest segment."""
    last: str = ""  # who is asked only for what nobody else can give: of brokers the last one
    told: list[str] = field(default_factory=list)
    """Which replica could not give what, so that others had to: to be told."""
    left_out: list[str] = field(default_factory=list)
    """Of these, who said nothing at all: what they hold nobody knows."""

    def topic_ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """Raises `InvalidArgument` for a topic that is not in the journal."""
        found: set[TopicId] = set()
        for name in names:
            ids = {topic_id for topic_id, known in self.names.items() if known == name}
            if not ids:
                known = ", ".join(sorted(set(self.names.values()))[:20]) or "none"
                raise InvalidArgument(f"no topic {name!r} in this journal; its topics: {known}")
            found |= ids
        return frozenset(found)


def survey(directories: Sequence[str], *, uncommitted: bool = False, since: int = 0) -> Survey:
    """Look at the replicas of one journal; at segments that end below `since` not, nor at a replica
    that ends there (it is behind), if others go on.

    Of brokers the last one, the master, is asked last. Damage of one replica, or one that cannot be
    read, ends it only where no other one can give the same. Raises `InvalidArgument`,
    `CorruptJournal`, `Unavailable`, `OSError`.
    """
    if not directories:
        raise InvalidArgument("no directory is named: name a broker's data directory")
    with connections():
        for _ in range(_LOOKS - 1):
            try:
                return _survey(directories, uncommitted, since)
            except (FileNotFoundError, NotFound):
                continue  # retention removed a file meanwhile
        return _survey(directories, uncommitted, since)


def _survey(directories: Sequence[str], uncommitted: bool, since: int) -> Survey:
    told: list[str] = []
    known = _replicas(directories, uncommitted, told)
    if not known:
        raise CorruptJournal(
            f"{', '.join(directories)}: {_UNKNOWN}; name another replica, too, or read "
            "uncommitted data as well (option uncommitted)"
        )
    known = [r for r in known if r.end > r.begin] or known[:1]  # a fresh one holds nothing yet
    known = [r for r in known if r.end > since] or known
    left_out = list(told)  # so far nothing else is told
    begin, end = min(r.begin for r in known), max(r.end for r in known)
    found = Survey(begin, end, told=told, left_out=left_out)
    found.last = directories[-1] if is_broker(directories[-1]) else ""
    snaps: list[tuple[Snap, list[Replica]]] = []
    at = found.begin
    bases = sorted({base for r in known for base in r.bases if base < r.end})
    if older := [base for base in bases if base <= since][:-1]:
        bases = bases[len(older) :]
        at = bases[0]
    for base in bases:
        if base < at and snaps:
            continue  # within the segment before: a file that belongs to nothing
        holders = [r for r in known if base in r.bases and base < r.end]
        snap = _first_good(holders, partial(_snap_of, base), told)
        _same_journal(snap, holders)
        if base != at:
            raise _gap(at, base)
        at = snap.segment.end
        snaps.append((snap, holders))
        found.names |= snap.names
    if snaps:
        _tail(found, snaps[-1][0].segment, snaps[-1][1])
    if at < found.end:
        raise _gap(at, found.end)
    for number, (snap, holders) in enumerate(snaps):
        behind = snaps[number + 1][0] if number + 1 < len(snaps) else None
        found.segments.append(_view(found, snap, behind, holders, number))
    return found


def _snap_of(base: Position, replica: Replica) -> Snap:
    return read_snap(replica.path, base, replica.until(base))


def _same_journal(snap: Snap, holders: Sequence[Replica]) -> None:
    """What replicas know to be committed is the same bytes; raises `InvalidArgument` if not."""
    base = snap.segment.base
    for replica in holders if len(holders) > 1 else ():
        try:
            head = Position(base + HEADER_LEN)
            with open_bytes(replica.path, base, Throttle(0), head) as data:
                header = parse_header(data.read(HEADER_LEN, 0))
        except (BadBatch, OSError, FmqError):
            continue  # damage of its own: told by who reads it
        if header.position != base or header.type != BatchType.SNAP:
            continue  # as well: another segment's bytes
        if header.header_crc != snap.header_crc:
            raise InvalidArgument(
                f"{replica.path} and {holders[0].path} are not replicas of one journal: their "
                f"segments at {base} begin otherwise; name the directories of one group"
            )


def _view(
    found: Survey, snap: Snap, behind: Snap | None, holders: list[Replica], number: int
) -> SegmentView:
    until = min(snap.segment.end, found.end)
    good = [r.path for r in holders if r.end >= until]
    if not good:
        raise _gap(snap.segment.base, until)
    last = [path for path in good if path == found.last and len(good) > 1]
    good = [path for path in good if path not in last]
    turn = number % len(good)  # each segment begins with another disk
    last_ms = behind.store_ms + 1 if behind else NO_END
    return SegmentView(
        snap.segment,
        until,
        Range(snap.store_ms, last_ms),
        snap.next_offsets,
        behind.next_offsets if behind else None,
        tuple(good[turn:] + good[:turn] + last),
        snap.header_crc,
    )


def read_snap(path: str, base: Position, until: Position) -> Snap:
    """A segment's first batch. Raises `CorruptJournal`, `OSError`, `BrokerGone`."""
    with open_bytes(path, base, Throttle(0), until) as data:
        try:
            header = parse_header(data.read(HEADER_LEN, 0))
            if header.position != base or header.type != BatchType.SNAP:
                raise Malformed(f"it begins with a {BatchType(header.type).name}")
            segment = segment_of_snap(header)
            if segment is None:
                raise Malformed(f"a segment of {header.base_offset} bytes")
            payload = data.read(header.payload_len, HEADER_LEN)
            check_payload(header, payload)
            next_offsets, names = snap_tables(payload)
        except (BadBatch, Malformed) as error:
            raise damaged(base, base, f"{path}: {error}") from error
    return Snap(segment, header.header_crc, header.store_ms, next_offsets, names)


def names_told(read: Read, base: Position, headers: HeaderBlock) -> dict[TopicId, str]:
    """The topics that CONFIG batches among these headers name."""
    names = {}
    configs = [i for i, kind in enumerate(headers.column("type")) if kind == BatchType.CONFIG]
    for i in configs:
        header = parse_header(headers.header_bytes(i))
        payload = read(header.payload_len, header.position - base + HEADER_LEN)
        try:
            check_payload(header, payload)
            topic_id, name, _ = decode_topic(payload)
        except (BadBatch, Malformed) as error:
            raise damaged(base, header.position, str(error)) from error
        names[topic_id] = name
    return names


def _tail(found: Survey, segment: Segment, holders: list[Replica]) -> None:
    """Headers and topics of the newest segment."""

    def scan(replica: Replica) -> tuple[HeaderBlock, dict[TopicId, str]]:
        until = min(segment.end, found.end)
        if replica.end < until:
            raise damaged(segment.base, replica.end, f"{replica.path} ends there")
        with open_bytes(replica.path, segment.base, Throttle(0), until) as data:
            headers, done = scan_headers(data.read, ScanRange(segment, segment.base, until))
            if done.position < until:
                why = done.stop.sentence if isinstance(done.stop, Fault) else "nothing is there"
                raise damaged(segment.base, done.position, f"{replica.path}: {why}")
            return headers, names_told(data.read, segment.base, headers)

    found.tail, names = _first_good(holders, scan, found.told)
    found.names |= names


def _replicas(sources: Sequence[str], uncommitted: bool, told: list[str]) -> list[Replica]:
    """Those of which something is known; who does not answer, or cannot be read, is left out."""
    known: list[Replica] = []
    failures: list[FmqError | OSError] = []
    for source in sources:
        try:
            replica = _broker(source) if is_broker(source) else _replica(source, uncommitted)
        except (BrokerGone, CorruptJournal, OSError) as error:
            failures.append(error)
            told.append(f"{source} is left out: {error}")
        else:
            known += [replica] if replica is not None else []
            told += [] if replica is not None else [f"{source} is left out: {_NO_CHECKPOINT}"]
    if failures and not known:
        raise _nobody(failures)
    journals = {replica.journal for replica in known}
    if len(journals) > 1:
        raise InvalidArgument(f"these are brokers of several groups: {', '.join(sorted(journals))}")
    return known


def _nobody(failures: Sequence[FmqError | OSError]) -> FmqError | OSError:
    """What to tell if nothing could be read of any replica."""
    if isinstance(failures[0], BrokerGone):
        return Unavailable(f"no broker answers: {'; '.join(map(str, failures))}")
    return failures[0]


def _broker(source: str) -> Replica:
    told = listing(source)
    return Replica(source, told.begin, told.end, told.end, told.bases, told.journal)


def _replica(path: str, uncommitted: bool) -> Replica | None:
    """How far a directory may be read; None if nothing says so."""
    view = look(Path(path))
    bases = [
        base
        for name, _ in view.listing
        if (base := segment_base(name)) is not None and name != view.empty
    ]
    begin, limit, durable = (bases[0] if bases else Position(0)), Position(0), Position(0)
    try:
        checkpoint = decode_checkpoint(view.checkpoint or b"")
    except Malformed:
        if not uncommitted:
            return None
    else:
        begin, limit, durable = checkpoint.log_start, checkpoint.commit_end, checkpoint.durable_end
        if checkpoint.drop_from is not None:
            limit = min(limit, checkpoint.drop_from)
            bases = [base for base in bases if base < checkpoint.drop_from]
    bases = [base for base in bases if base >= begin]
    if uncommitted:
        limit = Position(NO_END)
    replica = Replica(path, begin, max(limit, begin), durable, tuple(bases))
    if limit > durable:
        replica = replica._replace(end=_real_end(replica, limit))
    return replica


def _real_end(replica: Replica, limit: Position) -> Position:
    """Where what is there ends, if what is durable ends below what may be read.

    Damage does not end it, nor what cannot be read: that is met where it is read, and taken from
    another replica there.
    """
    end = max(replica.durable_end, replica.begin)
    for base, behind in zip_longest(replica.bases, replica.bases[1:]):
        if base >= limit or (behind is not None and behind <= replica.durable_end):
            continue
        try:
            with open_segment(replica.path, segment_name(base), Throttle(0), sparse=True) as data:
                whole = Segment(base, Position(base + len(data)))
                _, done = scan_headers(data.read, ScanRange(whole, base, min(whole.end, limit)))
        except OSError:
            if limit == NO_END:  # nothing says how far it went
                raise
            return limit
        if done.position < replica.durable_end:
            return replica.durable_end
        end = min(done.position, limit)
        if not isinstance(done.stop, Sealed):
            break
    return end


def _first_good(holders: Sequence[Replica], look_at: Callable[[Replica], T], told: list[str]) -> T:
    """The first replica's answer that is one; else what was wrong with the first."""
    failures: list[tuple[str, FmqError | OSError]] = []
    for replica in holders:
        try:
            found = look_at(replica)
        except (FmqError, OSError) as error:
            failures.append((replica.path, error))
        else:
            told += [
                f"{path} cannot give what {replica.path} can: {error}"
                for path, error in failures
                if not isinstance(error, FileNotFoundError | NotFound)  # retention, most likely
            ]
            return found
    assert failures, "each segment has a holder"
    raise failures[0][1]


def _gap(begin: int, end: int) -> CorruptJournal:
    return CorruptJournal(
        f"positions {begin} to {end} are on none of the directories: a segment file is missing; "
        "name a replica that has it, too"
    )
