"""What of a journal is read, cut into splits, and which splits a task of Spark reads.

Planning reads no segment: what cannot match is left out by what the SNAPs at both ends of one say,
and of the newest by its headers, which the survey has. Leaves nothing on disk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from fmqcore.ids import Position, TopicId
from fmqcore.scan.selection import Range, Wanted, boundary, may_hold, places_in_headers
from fmqspark.source.splits import Split, Tables
from fmqspark.source.survey import SegmentView, Survey

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of journal of one split, if nothing else is said."""
LARGE_SPLIT_BYTES: Final = 3 * SPLIT_BYTES
"""At most of one task, where it is known how many the whole of Spark runs at once.

A task costs some 40 ms of CPU, whatever it reads."""
_LEAST: Final = SPLIT_BYTES // 4
"""More tasks than that makes of it are not worth what they cost, whoever would be idle."""
_SLACK: Final = 8
"""A split is not cut for less than this part of a task."""
_MOST: Final = 1000
"""Topics and queues that a split carries itself; of more it is read what is needed of them."""

Task = tuple[Split, ...]
"""What is read by one after the other, in journal order."""


def plan(found: Survey, wanted: Wanted, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """The splits of what is wanted, in journal order; segments that cannot match are left out.

    Of at most `split_bytes`, each of one segment.
    """
    splits: list[Split] = []
    for here, make in _parts(found, wanted):
        at = here.first
        while at < here.end:
            splits.append(make.until(at, at + split_bytes, here.end))
            at = splits[-1].end
    return splits


def plan_tasks(found: Survey, wanted: Wanted, most: int, at_once: int) -> list[Task]:
    """The splits of tasks that are as large as each other, so that `at_once` in turn end together.

    Of about `most` bytes at most. Where segments end is not where tasks do: three of two segments
    and a half would be five halves of work for two cores, of which one waits.
    """
    parts = list(_parts(found, wanted))
    total = sum(here.end - here.first for here, _ in parts)
    share = even_size(total, most, at_once)
    slack = share // _SLACK
    tasks: list[list[Split]] = [[]]
    done, bound = 0, share  # of all the bytes: read by tasks so far, and by the last of them too
    for here, make in parts:
        at = here.first
        while at < here.end:
            if bound - done <= slack < total - done:
                tasks.append([])
                bound += share
            until = at + max(bound - done, slack)
            split = make.until(at, here.end if here.end - until <= slack else until, here.end)
            tasks[-1].append(split)
            done += split.end - at
            at = split.end
    return [tuple(task) for task in tasks if task]


def even_size(total: int, most: int, at_once: int) -> int:
    """At most `most` bytes of a split, so that `total` are read in whole rounds of `at_once`.

    Spark's own files are cut likewise (`FilePartition.maxSplitBytes`: a core's share, at most
    128 MB), but not in whole rounds: 300 MB are three tasks on two cores, and one of them waits.
    """
    rounds = max(1, -(-total // (most * at_once)))
    return min(most, max(_LEAST, -(-total // (rounds * at_once))))


def _parts(found: Survey, wanted: Wanted) -> Iterator[tuple[Range, "_Splits"]]:
    """What of which segments can match, and who makes its splits."""
    untils = {view.segment.base: view.until for view in found.segments}
    within = wanted.positions.cut(Range(found.begin, found.end))
    for view in found.segments:
        here = within.cut(Range(view.segment.base, view.until))
        if here.empty or not may_hold(wanted, view.before, view.after, view.store_ms):
            continue
        if view.after is None:  # its headers are here
            places = places_in_headers(found.tail, replace(wanted, positions=here))
            if not len(places):
                continue
            here = Range(places.positions[0], places.positions[-1] + places.lengths[-1])
        behind = untils.get(view.segment.end, Position(0))
        yield here, _Splits(found, view, wanted, behind)


class _Splits:
    """Makes those of one segment."""

    def __init__(self, found: Survey, view: SegmentView, wanted: Wanted, behind: Position) -> None:
        self._found = found
        self._view = view
        self._wanted = wanted
        self._tables = _tables(view, wanted, found.names)
        self._ends = [end for _, end in view.partly]
        self._behind = behind

    def until(self, begin: int, end: int, last: int) -> Split:
        """From there up to `end`, or less: of what ends at `last`.

        Of an open segment it ends where a batch does. One ends where a replica does: what is
        before can come from it, too.
        """
        view, ends = self._view, self._ends
        end = min(end, last, *(each for each in ends if each > begin))
        if view.after is None and end < last:
            end = min(boundary(self._found.tail, end), last)
        return Split(
            view.segment,
            Position(begin),
            Position(end),
            Position(begin if view.after is None else self._known(begin)),
            view.holders(end),
            self._wanted,
            self._tables,
            view.after is None,
            min((each for each in ends if each >= end), default=view.until),
            self._behind,
            view.partly,
            view.closing,
        )

    def _known(self, begin: int) -> int:
        """Where a batch begins, at or before there: where the segment does, or a replica ends."""
        return max([self._view.segment.base, *(end for end in self._ends if end <= begin)])


def _tables(view: SegmentView, wanted: Wanted, names: Mapping[TopicId, str]) -> Tables | None:
    """One for all splits of a segment."""
    topics, ends = wanted.topics, (view.before, view.after or {})
    there = sum(1 for each in (view.after or view.before) if wanted.takes(each))
    if there + (len(names) if topics is None else len(topics)) > _MOST:
        return None
    return Tables(
        {i: name for i, name in names.items() if topics is None or i in topics},
        *({key: end for key, end in each.items() if wanted.takes(key)} for each in ends),
    )
