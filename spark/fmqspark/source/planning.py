"""Divide what is read of a journal into splits, and the splits into Spark tasks.

Planning reads no segment. A segment that cannot match is left out by the SNAPs at its two ends; the
newest segment, by its headers, which the survey has read. Nothing is written to disk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from fmqcore.ids import Position, TopicId
from fmqcore.scan.selection import Range, Wanted, boundary, may_hold, places_in_headers
from fmqspark.source.splits import Split, Tables
from fmqspark.source.survey import SegmentView, Survey

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Default bytes of journal of one split."""
LARGE_SPLIT_BYTES: Final = 3 * SPLIT_BYTES
"""Maximum bytes of one task, where it is known how many tasks all of Spark runs at once.

A task costs some 40 ms of CPU, whatever it reads.
"""
_LEAST: Final = SPLIT_BYTES // 4
"""Minimum bytes of one task: smaller ones cost more than they gain, even if cores are idle."""
_SLACK: Final = 8
"""A split is not divided for less than this part of a task."""
_MOST: Final = 1000
"""Topics and queues that a split carries itself; of more, its reader reads what it needs."""

Task = tuple[Split, ...]
"""Splits that are read one after the other, in journal order."""


def plan(found: Survey, wanted: Wanted, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Return the splits of what is wanted, in journal order.

    Segments that cannot match are left out. Each split has at most `split_bytes`, of one segment.
    """
    splits: list[Split] = []
    for here, make in _parts(found, wanted):
        at = here.first
        while at < here.end:
            splits.append(make.until(at, at + split_bytes, here.end))
            at = splits[-1].end
    return splits


def plan_tasks(found: Survey, wanted: Wanted, most: int, at_once: int) -> list[Task]:
    """Return tasks of equal size, so that `at_once` of them, in turn, end together.

    Each has about `most` bytes at most. Tasks do not end where segments do: three tasks of two and
    a half segments would be five halves of work for two cores, of which one waits.
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
    """Return the bytes of a split, up to `most`, so that `total` takes whole rounds of `at_once`.

    Spark divides its own files likewise (`FilePartition.maxSplitBytes`: a core's share, at most
    128 MB), but not in whole rounds: 300 MB are three tasks on two cores, and one core waits.
    """
    rounds = max(1, -(-total // (most * at_once)))
    return min(most, max(_LEAST, -(-total // (rounds * at_once))))


def _parts(found: Survey, wanted: Wanted) -> Iterator[tuple[Range, "_Splits"]]:
    """Yield the ranges of segments that can match, each with the maker of splits."""
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
    """Makes the splits of one segment."""

    def __init__(self, found: Survey, view: SegmentView, wanted: Wanted, behind: Position) -> None:
        self._found = found
        self._view = view
        self._wanted = wanted
        self._tables = _tables(view, wanted, found.names)
        self._ends = [end for _, end in view.partly]
        self._behind = behind

    def until(self, begin: int, end: int, last: int) -> Split:
        """Return the split from `begin` up to `end` or less, where the range ends at `last`.

        In an open segment it ends where a batch does. A split also ends where a replica does: what
        is before can come from that replica, too.
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
        """Return where a batch begins, at or before `begin`: the segment, or a replica's end."""
        return max([self._view.segment.base, *(end for end in self._ends if end <= begin)])


def _tables(view: SegmentView, wanted: Wanted, names: Mapping[TopicId, str]) -> Tables | None:
    """Return the tables for all splits of a segment; None if they are too many."""
    topics, ends = wanted.topics, (view.before, view.after or {})
    there = sum(1 for each in (view.after or view.before) if wanted.takes(each))
    if there + (len(names) if topics is None else len(topics)) > _MOST:
        return None
    return Tables(
        {i: name for i, name in names.items() if topics is None or i in topics},
        *({key: end for key, end in each.items() if wanted.takes(key)} for each in ends),
    )
