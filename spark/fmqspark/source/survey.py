"""Find what the replicas of one journal hold: segments, topics, and how far to read.

Only what is known to be committed is read: what lies below the commit end in a replica's own
checkpoint. A checkpoint vouches for its own replica's bytes alone, so a tail that was never agreed
upon (of a master that died) is not shown, even where another replica's commit end is higher. In a
directory with a running broker, that is as of the newest checkpoint. `uncommitted` reads to the
last good batch.

A replica is a data directory, or a live broker (`fmq://host:port`), which itself reports what is
committed. Slaves come first, so that a master is asked only for what no other replica can give.

Reads one SNAP per segment, and the headers of the newest one. What no replica can give ends the
survey, unless the caller wants the rest (`around`): then that is a gap, and the headers of the
segment before a gap are read, too, as no SNAP holds what that segment adds up to. Leaves nothing on
disk.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import (
    CorruptJournal,
    FmqError,
    InvalidArgument,
    NewerJournal,
    NotFound,
    Unavailable,
)
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.segments import Segment, segment_name
from fmqcore.scan.headers import HeaderBlock
from fmqcore.scan.selection import NO_END, Range
from fmqspark.source.brokers import connections, is_broker
from fmqspark.source.replicas import Replica, find_replicas, first_good
from fmqspark.source.snaps import Ends, Snap, counted, goes_on, headers_of, same_journal, snap_of
from fmqspark.source.stitch_replicas import Joined, join, require_alike

_LOOKS: Final = 3
_UNKNOWN: Final = "no directory has a readable checkpoint, so the commit end is unknown"


class NoSegmentFile(CorruptJournal):
    """A range of which no named replica has a segment file; what else they have is whole."""


class Gap(NamedTuple):
    """A range that some replica must have and none can give; the reader of the rest reports it."""

    begin: Position
    end: Position
    why: FmqError | OSError


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as far as it may be read; `after` is None if the segment is not full."""

    segment: Segment
    until: Position
    store_ms: Range
    before: Mapping[QueueKey, Offset]
    after: Mapping[QueueKey, Offset] | None
    sources: tuple[str, ...]  # replicas that hold all of the range, in the order in which to ask
    partly: tuple[tuple[str, Position], ...]
    """Replicas that hold it up to the given position only, as a slave that is behind does."""
    marks: dict[int, int]
    """Header CRCs, by position, that identify the journal: see `Snap.marks`."""
    closing: int | None
    """Header CRC of the segment's last batch, if the segment behind it has that."""

    def holders(self, end: int) -> tuple[str, ...]:
        """Return the sources for what begins below `end`: those behind first, the master last."""
        return (*(path for path, reach in self.partly if reach >= end), *self.sources)


@dataclass(slots=True)
class Survey:
    """The part of a journal that can be read: [begin, end)."""

    begin: Position = Position(0)
    end: Position = Position(0)
    segments: list[SegmentView] = field(default_factory=list)
    names: dict[TopicId, str] = field(default_factory=dict)
    tail: HeaderBlock = field(default_factory=HeaderBlock)
    """Headers of the newest segment."""
    gaps: list[Gap] = field(default_factory=list)  # none, if the whole journal was asked for
    last: str = ""  # the source asked only for what no other has: of brokers the last
    notices: list[str] = field(default_factory=list)
    """Sentences to report: which replica could not give what, so that others had to."""
    left_out: list[str] = field(default_factory=list)
    """Sentences among these on replicas that reported nothing: what they hold is not known."""
    journal: str = ""  # of brokers: their cluster and group
    listed: frozenset[str] | None = None
    """Topics that the brokers list for this group, with messages or without; None: not asked."""

    def topic_ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """Return the ids of these topics; a listed topic without a message has none.

        Raises `InvalidArgument` for a topic that neither the brokers list nor the journal holds.
        """
        found: set[TopicId] = set()
        for name in names:
            ids = {topic_id for topic_id, known in self.names.items() if known == name}
            if not ids and name not in (self.listed or ()):
                known = ", ".join(sorted(set(self.names.values()))[:20]) or "none"
                raise InvalidArgument(
                    f"no topic {name!r} in this journal; its topics: {known}; {self._unlisted}"
                )
            found |= ids
        return frozenset(found)

    @property
    def _unlisted(self) -> str:
        if self.listed is not None:
            return (
                "nor do the brokers list it for this group: `fmq topic describe` names a topic's "
                "groups"
            )
        return (
            "one without a message here is not in it: live brokers (connect) know it all the same, "
            "and `fmq topic list` names all"
        )


def survey(
    directories: Sequence[str], *, uncommitted: bool = False, since: int = 0, around: bool = False
) -> Survey:
    """Look at the replicas of one journal, from the segment that holds `since` on.

    Leaves out segments that end below `since`, and replicas that end below the segment in which
    `since` lies (they are behind), if others go on. Of brokers the last one, the master, is asked
    last. Damage of one replica, or one that cannot be read, ends the survey only where no other one
    can give the same; with `around` there is a gap. Raises `InvalidArgument`, `CorruptJournal`,
    `Unavailable`, `OSError`.
    """
    if not directories:
        raise InvalidArgument("no directory is named: name a broker's data directory")
    with connections():
        for _ in range(_LOOKS - 1):
            try:
                return _Look(around).survey(directories, uncommitted, since)
            except (FileNotFoundError, NotFound):
                continue  # retention removed a file meanwhile
        return _Look(around, last=True).survey(directories, uncommitted, since)


@dataclass(slots=True)
class _Part:
    """A segment, or a stretch in which no replica knows where segments begin."""

    begin: Position
    end: Position
    holders: list[Replica]
    snap: Snap | None = None
    why: FmqError | OSError | None = None  # no replica can give it
    until: Position = Position(NO_END)  # no replica has what follows, to the newest segment's end


@dataclass(slots=True)
class _Look:
    """One survey of the replicas."""

    around: bool
    last: bool = False  # what is not there now was not removed by retention a moment ago
    known: list[Replica] = field(default_factory=list)
    found: Survey = field(default_factory=Survey)

    def survey(self, directories: Sequence[str], uncommitted: bool, since: int) -> Survey:
        """See `survey`."""
        notices: list[str] = []
        known = find_replicas(directories, uncommitted, notices)
        if not known:
            raise CorruptJournal(
                f"{', '.join(directories)}: {_UNKNOWN}; name another replica, too, or read "
                "uncommitted data as well (option uncommitted)"
            )
        known = [r for r in known if r.end > r.begin] or known[:1]  # a fresh one holds nothing yet
        self.known = _reaching(known, since)
        begin, end = min(r.begin for r in self.known), max(r.end for r in self.known)
        self.found = Survey(
            begin, end, notices=notices, left_out=list(notices)
        )  # so far nothing else
        if not uncommitted:
            self.found.notices += _less_than_known(known, end)
        self.found.notices += _withheld(known, end)
        self.found.journal = next((r.journal for r in known if r.journal), "")
        self.found.last = directories[-1] if is_broker(directories[-1]) else ""
        parts = self._parts(since)
        if parts and parts[-1].snap is not None:
            self._tail(parts[-1], parts[-1].snap.segment)
        for number, part in enumerate(parts):
            self._add(part, parts[number + 1] if number + 1 < len(parts) else None, number)
        return self.found

    def _parts(self, since: int) -> list[_Part]:
        """Return segments, and what is missing between them, in journal order."""
        found, parts = self.found, list[_Part]()
        at = found.begin
        bases = self._bases()
        if older := [base for base in bases if base <= since][:-1]:
            bases = bases[len(older) :]
            at = bases[0]
        for base in bases:
            if base < at and parts:
                continue  # within the segment before: a file that belongs to nothing
            if base != at:
                parts.append(self._missing(at, base))
            parts.append(self._part(base))
            at = parts[-1].end
        if at < found.end:
            parts.append(self._missing(at, found.end))
        return parts

    def _bases(self) -> list[Position]:
        bases = {base for r in self.known for base in r.bases if base < r.end}
        if self.around:  # a missing file leaves a separate gap
            bases |= {base for r in self.known for base in r.named if base < r.end}
        return sorted(bases)

    def _part(self, base: Position) -> _Part:
        """Return the segment that begins at `base`."""
        holders = [r for r in self.known if base in r.bases and base < r.end]
        behind = self._behind(base) if self.around else self.found.end
        if not holders:
            return self._missing(base, behind)
        part = _Part(base, behind, holders)
        try:
            snap = first_good(holders, partial(snap_of, base), self.found.notices)
        except (FmqError, OSError) as error:
            self._give_up(part, error)
            return part
        same_journal(snap, holders)
        self.found.names |= snap.names
        part.snap, part.end = snap, snap.segment.end
        return part

    def _behind(self, base: Position) -> Position:
        """Return where the next segment begins, if the segment at `base` does not show it.

        A file that no checkpoint knows counts only where it is newer than all checkpoints.
        """
        firm = {b for r in self.known for b in r.named}
        firm |= {b for r in self.known for b in r.bases if b >= r.durable_end}
        return min((b for b in firm if base < b < self.found.end), default=self.found.end)

    def _missing(self, begin: Position, end: Position) -> _Part:
        part = _Part(begin, end, [])
        self._give_up(part, no_file(begin, end))
        return part

    def _give_up(self, part: _Part, error: FmqError | OSError) -> None:
        """Make a part a gap; raises `error` where a gap is not allowed.

        A broker that is away comes back. What no replica ever had is no damage: one replica ends
        below it, the others begin above it.
        """
        passing = isinstance(error, FileNotFoundError | NotFound) and not self.last
        if not self.around or passing or isinstance(error, InvalidArgument | Unavailable):
            raise error
        at, end = part.begin, min(part.end, self.found.end)
        while at < end:
            reach = max((r.end for r in self.known if r.begin <= at < r.end), default=None)
            if reach is None:
                raise error
            at = reach
        part.why = error

    def _tail(self, part: _Part, segment: Segment) -> None:
        """Add headers and topics of the newest segment, as far as some replica gives them."""
        end = min(segment.end, self.found.end)
        try:
            headers, names, part.until, why = self._headers(part, segment)
            require_alike(segment, part.holders, headers)
            if why is not None and part.until > part.begin:
                rest = _Part(part.until, end, part.holders)
                self._give_up(rest, why if self.around else _no_replica_has(rest, why))
                self.found.gaps.append(Gap(rest.begin, rest.end, _whose(rest)))
            elif why is not None:
                raise why
        except (FmqError, OSError) as error:
            self._give_up(part, error)
            return
        self.found.tail = headers
        self.found.names |= names

    def _headers(self, part: _Part, segment: Segment) -> Joined:
        """Return the headers of one replica, if one has all; else of several."""
        until = min(segment.end, self.found.end)
        # A replica that is a moment behind, as slaves are, is not damaged: nothing to report.
        holders = [r for r in part.holders if r.known_end >= until]
        with suppress(FmqError, OSError):
            if holders:
                headers, names = first_good(
                    holders, partial(headers_of, segment, until), self.found.notices
                )
                return Joined(headers, names, until, None)
        return join(segment, until, part.holders, self.found.notices)

    def _add(self, part: _Part, behind: _Part | None, number: int) -> None:
        """Add a part to what is found, as a segment or a gap."""
        found = self.found
        if part.snap is not None and part.why is None:
            try:
                if behind is not None:
                    require_alike(part.snap.segment, part.holders, HeaderBlock())
                after = self._after(part, part.snap, behind)
                view = _view(found, part, behind.snap if behind else None, after, number)
            except (FmqError, OSError) as error:
                self._give_up(part, error)
            else:
                found.segments.append(view)
                return
        assert part.why is not None, "what is not there was given up"
        found.gaps.append(Gap(part.begin, min(part.end, found.end), _whose(part)))

    def _after(
        self, part: _Part, snap: Snap, behind: _Part | None
    ) -> Mapping[QueueKey, Offset] | None:
        """Return next offsets at a segment's end; None for the newest one: all is known there."""
        if behind is None:
            return None
        if behind.snap is not None:
            goes_on(snap, behind.snap)
            return behind.snap.next_offsets
        headers, names, _, why = self._headers(part, snap.segment)
        if why is not None:
            raise why
        self.found.names |= names
        return Ends({**snap.next_offsets, **counted(headers)})


def _less_than_known(known: Sequence[Replica], end: Position) -> list[str]:
    """Report committed positions that are on no replica; a running slave is still to get them."""
    most = max(known, key=lambda replica: replica.known_end)
    if most.known_end <= end or any(replica.live for replica in known):
        return []
    return [
        f"{most.path} knows that all below position {most.known_end} is committed, and what is "
        f"named ends at {end}: name the group's other replicas, too"
    ]


def _withheld(known: Sequence[Replica], end: Position) -> list[str]:
    """Report what a broker stores and may not let read: the read ends before it."""
    return [
        f"{r.path} stores {r.stored_end - end:,} bytes more, from position {end} on, which may not "
        f"be read yet: {r.withheld_reason}; if brokers are away (`fmq status`), start them, and "
        "run this again"
        for r in known
        if r.withheld_reason and r.stored_end > end
    ]


def _reaching(known: list[Replica], since: int) -> list[Replica]:
    """Return the replicas that go on beyond `since`, and those that end in its segment.

    The begin of that segment shows what it is, and another replica may have just that damaged.
    """
    beyond = [r for r in known if r.end > since] or known
    newest_base = max((base for r in beyond for base in r.bases if base <= since), default=None)
    return [r for r in known if r in beyond or (newest_base in r.bases and r.end > newest_base)]


def _whose(part: _Part) -> FmqError | OSError:
    """Return why a part cannot be read; an error of the disk names the file."""
    error = part.why
    assert error is not None
    if isinstance(error, OSError) and error.strerror and not error.filename and part.holders:
        file = f"{part.holders[0].path}/{segment_name(part.begin)}"
        return OSError(error.errno, error.strerror, file)
    return error


def _no_replica_has(rest: _Part, error: FmqError | OSError) -> FmqError | OSError:
    """Return the error, with the range that is missing where it is damage."""
    if not isinstance(error, CorruptJournal):
        return error
    kind = NewerJournal if isinstance(error, NewerJournal) else CorruptJournal
    return kind(
        f"positions {rest.begin} to {rest.end} are committed, and none of the replicas can give "
        f"them: {error}"
    )


def _view(
    found: Survey,
    part: _Part,
    behind: Snap | None,
    after: Mapping[QueueKey, Offset] | None,
    number: int,
) -> SegmentView:
    snap = part.snap
    assert snap is not None, "a part whose first position is unknown was given up"
    until = min(snap.segment.end, found.end, part.until)
    good = [r.path for r in part.holders if r.end >= until]
    if not good:
        raise no_file(snap.segment.base, until)
    last = [path for path in good if path == found.last and len(good) > 1]
    good = [path for path in good if path not in last]
    turn = number % len(good)  # each segment begins with another disk
    return SegmentView(
        snap.segment,
        until,
        Range(snap.store_ms, NO_END if behind is None else _newest_ms(behind) + 1),
        snap.next_offsets,
        after,
        tuple(good[turn:] + good[:turn] + last),
        tuple((r.path, r.end) for r in part.holders if snap.segment.base < r.end < until),
        snap.marks,
        None if behind is None else behind.prev_header_crc,
    )


def _newest_ms(behind: Snap) -> int:
    """Return a bound of the store times in the segment before."""
    return behind.corrected_from_ms or behind.store_ms


def no_file(begin: int, end: int) -> NoSegmentFile:
    """Return the error for a range of which there is no segment file."""
    return NoSegmentFile(
        f"positions {begin} to {end} are on none of the directories: a segment file is missing; "
        "name a replica that has it, too"
    )
