"""Compare replicas by the digests of their blocks; where they differ, batch by batch. Pure.

Two steps. `suspects` returns the blocks that are not equal on all that have them: these alone are
read again (`Drill`), so equal terabytes cost their headers once. `Judge` turns what was drilled, a
few blocks at a time (`rounds`), into findings: R001 and R002 where content differs, R003 for a
replica that lacks what is committed, R004 where there is nothing to compare. What lies within one
replica's own damage is that damage's finding, not a difference; it counts as not compared.

The replica that is not with the majority is blamed; of two, the one named later: name the master
first.
"""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fmqcore.ids import Epoch, Position
from fmqcore.journal.findings import Code, Severity
from fmqcore.journal.segments import segment_name
from fmqcore.scan.digests import BLOCK, Batch, Digest
from fmqspark.check.rows import NOT_OK, Covered, Found, SegmentResult, State

MAX_DRILLS: Final = 64
"""Maximum blocks of a differing stretch to look at batch by batch; the rest as a whole."""
AT_ONCE: Final = 64
"""Blocks read again at a time, then judged and forgotten: of small batches one is megabytes."""

_DIFFERS: Final = (
    "find out which replica is right (fmq journal dump of both, at these positions); stop the "
    "other broker, move its data directory away and let it copy the journal from the master"
)
_PARTED: Final = (
    "none: it is above the commit end, and is truncated when the replica meets its master"
)
_BEHIND: Final = "let the replica run until it has caught up; if it is stopped, start it"
_NOTHING: Final = "name data directories of brokers of one group, or wait until they overlap again"

Key = tuple[int, int]
"""(the segment's base, number of the block)"""


@dataclass(slots=True)
class Replica:
    """One replica as it was read."""

    name: str
    start: int
    end: int
    commit_end: int
    bases: list[int] = field(default_factory=list)
    blocks: dict[Key, list[Digest]] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)  # not readable, ascending
    cut_at: int | None = None  # its last good batch ends there, and files behind it are not there

    def readable(self, begin: int, end: int) -> bool:
        """Return whether a range is all there and free of damage."""
        return (
            self.start <= begin
            and end <= self.end
            and not any(a < end and begin < b for a, b in self.holes)
        )

    def base_of(self, position: int) -> int:
        """Return the base of the segment that holds a position."""
        return self.bases[max(bisect_right(self.bases, position) - 1, 0)]


class Drill(NamedTuple):
    """A block to read again on one replica, batch by batch."""

    replica: str
    base: int
    first: int
    end: int
    key: Key


def replica_of(
    name: str, results: Iterable[SegmentResult], commit_end: int, missing: Iterable[Covered] = ()
) -> Replica:
    """Put a replica's segments together; what is `missing` is its own damage, not its end."""
    ordered = sorted((r for r in results if not r.retired), key=lambda r: r.base)
    start = ordered[0].base if ordered else 0
    replica = Replica(name, start, start, commit_end)
    for result in ordered:
        if replica.bases and result.base > replica.end:
            replica.holes.append((replica.end, result.base))  # a file is missing
        replica.bases.append(result.base)
        replica.end = max(replica.end, result.end)
        for digest in result.digests:
            key = (result.base, digest.first // BLOCK)
            replica.blocks.setdefault(key, []).append(digest)
        bad = [c for c in result.coverage if c.state in [state.value for state in NOT_OK]]
        replica.holes += [(c.begin, c.end) for c in bad]
        # Where the newest segment cannot be read, or moves, its end is not known.
        replica.end = max([replica.end, *(c.end for c in bad)])
    for lost in missing:
        replica.holes.append((lost.begin, lost.end))
        if lost.end > replica.end:
            replica.cut_at = max((r.end for r in ordered), default=start)
            replica.end = lost.end
    return replica


def alone(replica: Replica) -> list[Found]:
    """Return R003 of a single replica, as far as its checkpoint knows what is committed."""
    return _ends([replica], replica.commit_end)


def suspects(replicas: Sequence[Replica]) -> list[Key]:
    """Return blocks that are not the same on all replicas that could have them, ascending."""
    found = []
    for key in sorted({key for replica in replicas for key in replica.blocks}):
        blocks = [replica.blocks.get(key) for replica in replicas]
        some = next(digests for digests in blocks if digests)
        if len({tuple(digests) for digests in blocks if digests}) > 1 or any(
            digests is None and replica.start <= some[0].first < replica.end
            for digests, replica in zip(blocks, replicas, strict=True)
        ):
            found.append(key)
    return found


def drills(replicas: Sequence[Replica], keys: Sequence[Key]) -> list[Drill]:
    """Return what to read again.

    That is the first `MAX_DRILLS` blocks of each replica's every stretch of difference, as its
    begin shows what it is; and all blocks with damage in them: reported as a whole that would be a
    difference.
    """
    made = []
    stretches: dict[str, tuple[int, int]] = {}  # number of blocks, end of the last
    for key in keys:
        wanted = _partly_readable(replicas, key)
        for replica, begin, end in _deviating(replicas, key):
            count, before = stretches.get(replica.name, (0, 0))
            count = count + 1 if before >= begin else 1
            stretches[replica.name] = count, end
            wanted |= count <= MAX_DRILLS
        if not wanted:
            continue
        for replica in replicas:
            made += [
                Drill(replica.name, key[0], digest.first, digest.end, key)
                for digest in replica.blocks.get(key, [])
            ]
    return made


def rounds(
    replicas: Sequence[Replica], keys: Sequence[Key]
) -> Iterator[tuple[list[Key], list[Drill]]]:
    """Yield blocks to judge, and what of them to read again before: a few at a time."""
    of: dict[Key, list[Drill]] = {}
    for drill in drills(replicas, keys):
        of.setdefault(drill.key, []).append(drill)
    some: list[Key] = []
    todo: list[Drill] = []
    for key in keys:
        if todo and len(todo) + len(of.get(key, [])) > AT_ONCE:
            yield some, todo
            some, todo = [], []
        some.append(key)
        todo += of.get(key, [])
    if some:
        yield some, todo


def _partly_readable(replicas: Sequence[Replica], key: Key) -> bool:
    """Return whether a replica that has some of a block lacks, or does not know, another part."""
    having = [replica for replica in replicas if key in replica.blocks]
    begin = min(replica.blocks[key][0].first for replica in having)
    end = max(replica.blocks[key][-1].end for replica in having)
    return not all(replica.readable(begin, end) for replica in having)


class _Difference(NamedTuple):
    """A place where a replica differs from the reference."""

    begin: int
    end: int
    theirs: Epoch | None = None  # the reference's there; None: not known
    own: Epoch | None = None


class Comparison(NamedTuple):
    """The result of a comparison."""

    findings: list[Found]
    coverage: list[Covered]


class Judge:
    """Collects findings, and what was not compared: `take` the drilled blocks, then `made`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._differing: dict[str, list[_Difference]] = {r.name: [] for r in replicas}

    def take(self, keys: Sequence[Key], drilled: Mapping[tuple[str, Key], Sequence[Batch]]) -> None:
        """Take these blocks; one of which nothing is drilled is reported as a whole."""
        for key in keys:
            batches = {
                r.name: list(drilled[r.name, key])
                for r in self._replicas
                if (r.name, key) in drilled
            }
            if batches:
                _differences(_ranked(self._replicas, key), batches, self._differing)
            else:
                _whole(self._replicas, key, self._differing)

    def made(self) -> Comparison:
        """Return the comparison of all that was taken."""
        replicas = self._replicas
        committed = max((replica.commit_end for replica in replicas), default=0)
        findings = [
            found
            for replica in replicas
            for found in _ranges(replica, self._differing[replica.name], committed)
        ]
        return Comparison(findings + _ends(replicas, committed), _not_compared(replicas))


def _ranked(replicas: Sequence[Replica], key: Key) -> list[Replica]:
    """Return replicas, ranked by whose content counts as right.

    That is the majority's; of equally many, the first one named.
    """
    counts = Counter(tuple(r.blocks[key]) for r in replicas if key in r.blocks)
    return sorted(replicas, key=lambda r: -counts[tuple(r.blocks.get(key, ()))])


def _differences(
    ranked: Sequence[Replica],
    batches: Mapping[str, Sequence[Batch]],
    into: dict[str, list[_Difference]],
) -> None:
    """Note where each replica differs from the first one that can be read there."""
    all_of = {r.name: {batch.position: batch for batch in batches.get(r.name, [])} for r in ranked}
    order = {name: sorted(own) for name, own in all_of.items()}
    for position in sorted({position for own in all_of.values() for position in own}):
        some = next(own[position] for own in all_of.values() if position in own)
        able = [replica for replica in ranked if replica.readable(some.position, some.end)]
        other = all_of[able[0].name].get(position) if able else None
        for replica in able[1:]:
            own_batch = all_of[replica.name].get(position)
            batch = own_batch or other
            if own_batch == other or batch is None:
                continue
            if replica.readable(position, batch.end) and able[0].readable(position, batch.end):
                theirs, own = (
                    _epoch_at(all_of[r.name], order[r.name], position) for r in (able[0], replica)
                )
                into[replica.name].append(_Difference(position, batch.end, theirs, own))


def _epoch_at(
    batches: Mapping[Position, Batch], order: Sequence[Position], position: Position
) -> Epoch | None:
    """Return the epoch of the batch at a position, which may begin before; None: no batch."""
    number = bisect_right(order, position) - 1
    batch = batches[order[number]] if number >= 0 else None
    return batch.epoch if batch is not None and position < batch.end else None


def _whole(
    replicas: Sequence[Replica],
    key: Key,
    into: dict[str, list[_Difference]],
) -> None:
    """Note a block far into a long difference as a whole."""
    for replica, begin, end in _deviating(replicas, key):
        into[replica.name].append(_Difference(begin, end))


def _deviating(replicas: Sequence[Replica], key: Key) -> Iterator[tuple[Replica, int, int]]:
    """Yield readable replicas with another block than the one that counts as right, and where."""
    reference, *others = _ranked(replicas, key)
    for replica in others:
        if replica.blocks.get(key) == reference.blocks[key]:
            continue
        some = replica.blocks.get(key) or reference.blocks[key]
        if replica.readable(some[0].first, some[-1].end):
            yield replica, some[0].first, some[-1].end


def _ranges(
    replica: Replica,
    differing: Sequence[_Difference],
    committed: int,
) -> list[Found]:
    """Join differences side by side into findings.

    The first place of a range where both epochs are known decides its kind.
    """
    joined: list[list[_Difference]] = []
    end = -1
    for piece in sorted(differing, key=lambda piece: piece.begin):
        if piece.begin > end:
            joined.append([])
        joined[-1].append(piece)
        end = max(end, piece.end)
    return [_range(replica, pieces, committed) for pieces in joined]


def _range(replica: Replica, pieces: Sequence[_Difference], committed: int) -> Found:
    epochs = ((piece.own, piece.theirs) for piece in pieces)
    own, theirs = next((pair for pair in epochs if None not in pair), (None, None))
    begin, end = pieces[0].begin, max(piece.end for piece in pieces)
    parts = own != theirs
    code = Code.R002 if parts else Code.R001
    sure = code is Code.R001 or begin < committed
    sentence = f"{code.value}; all below {committed} is known to be committed"
    if parts:
        sentence = f"epoch {own}, the others have {theirs}: {sentence}"
    return Found(
        replica.name,
        code.name,
        (Severity.ERROR if sure else Severity.WARNING).value,
        segment_name(Position(replica.base_of(begin))),
        begin,
        end,
        sentence,
        _DIFFERS if sure else _PARTED,
    )


def _ends(replicas: Sequence[Replica], committed: int) -> list[Found]:
    """Return findings for replicas that lack what is committed, or share nothing with the first."""
    found: list[Found] = []
    for replica in replicas[1:]:
        first = replicas[0]
        if max(first.start, replica.start) >= min(first.end, replica.end):
            sentence = (
                f"it holds positions [{replica.start}, {replica.end}), "
                f"{first.name} [{first.start}, {first.end})"
            )
            file = segment_name(Position(replica.start))
            found.append(
                Found(
                    replica.name,
                    Code.R004.name,
                    Severity.WARNING.value,
                    file,
                    replica.start,
                    replica.end,
                    sentence,
                    _NOTHING,
                )
            )
    for replica in replicas:
        if replica.end < committed:  # all of them may end below: then no replica has it
            ends = f"it ends at {replica.end}"
            if replica.cut_at is not None:  # damage findings report what it lacks below that
                ends = f"it ends at {replica.cut_at}, and all below {replica.end} was there"
            sentence = f"{ends}; all below {committed} is known to be committed"
            file = segment_name(Position(replica.base_of(replica.end) if replica.bases else 0))
            found.append(
                Found(
                    replica.name,
                    Code.R003.name,
                    Severity.WARNING.value,
                    file,
                    replica.end,
                    committed,
                    sentence,
                    _BEHIND,
                )
            )
    return found


def _not_compared(replicas: Sequence[Replica]) -> list[Covered]:
    """Return what only one replica has, or only one could read."""
    edges = sorted(
        {edge for r in replicas for edge in (r.start, r.end)}
        | {edge for r in replicas for hole in r.holes for edge in hole}
    )
    rows: list[Covered] = []
    for begin, end in itertools.pairwise(edges):
        having = [r for r in replicas if r.readable(begin, end)]
        if len(having) != 1:
            continue
        last = rows[-1] if rows else None
        if last is not None and (last.replica, last.end) == (having[0].name, begin):
            rows[-1] = last._replace(end=end)
            continue
        file = segment_name(Position(having[0].base_of(begin)))
        why = "no other replica has it, or could be read there"
        rows.append(Covered(having[0].name, file, begin, end, State.NOT_COMPARED.value, why))
    return rows
