"""Define what a stream's offset holds beside its position, and must agree with. Pure.

Spark stores the end of each micro-batch, and no start for the first one. Each run that has not
committed that one asks for the start again, a run even twice, and the answer may have changed by
then. So an offset holds the start (`starting`), and the options that select records (`selection`):
a changed option must not skip records without an error. An offset of an earlier version has
neither.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fmqcore.errors import InvalidArgument
from fmqcore.scan.selection import EVERYTHING, Range, Wanted

Offset = dict[str, Any]
POSITION: Final = "position"
MARKS: Final = "marks"
JOURNAL: Final = "journal"
STARTING: Final = "starting"
SELECTION: Final = "selection"
TOPICS: Final = "topic"
QUEUES: Final = "queues"
_SETS: Final = (TOPICS, QUEUES)
_RANGES: Final = ("offset", "time")


class BatchStart(NamedTuple):
    """Where a micro-batch begins; `note`: what a person should know about that, or ""."""

    position: int
    note: str = ""


def batch_start(start: Offset, end: Offset) -> BatchStart:
    """Return the start of the micro-batch that ends at `end`; the stored one if Spark lost it.

    Raises `InvalidArgument` if `startingPosition` was changed before the first one was committed.
    """
    now, stored = start.get(STARTING), end.get(STARTING)
    position = int(start[POSITION])
    if now is None or now == stored:  # stored by Spark, or still the same answer
        return BatchStart(position)
    if stored is None:
        return BatchStart(
            position,
            f"an earlier version planned the first micro-batch (up to position {end[POSITION]}) "
            f"and did not store where it begins; it is read from position {position} on "
            f"(startingPosition {now['option']}): if records are missing, begin again with "
            "another checkpointLocation",
        )
    if now["option"] != stored["option"] and now["position"] != stored["position"]:
        raise InvalidArgument(
            f"startingPosition was {stored['option']!r} (position {stored['position']}) when this "
            f"stream started and is now {now['option']!r} (position {now['position']}), but the "
            f"first micro-batch, up to position {end[POSITION]}, is not committed yet: set "
            f"startingPosition back to {stored['option']!r}, or begin again with another "
            "checkpointLocation"
        )
    return BatchStart(int(stored[POSITION]))


def ignored_start(start: Offset, option: str) -> str:
    """Return a note if `startingPosition` was changed and has no effect any more; else ""."""
    stored = start.get(STARTING)
    if stored is None or stored["option"] == option:
        return ""
    return (
        f"startingPosition is {option!r} and was {stored['option']!r} when this stream started: it "
        f"goes on at position {start[POSITION]}; the option decides only where a stream with a "
        "new checkpointLocation begins"
    )


def selection_of(topics: tuple[str, ...] | None, wanted: Wanted) -> Offset:
    """Return the options that select records; one that is left out selects all."""
    found: Offset = {}
    if topics is not None:
        found[TOPICS] = sorted(topics)
    if wanted.queues is not None:
        found[QUEUES] = sorted(wanted.queues)
    for name, part in zip(_RANGES, (wanted.offsets, wanted.store_ms), strict=True):
        if part != EVERYTHING:
            found[name] = list(part)
    return found


def widened(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that now select records that they did not select before."""
    found = [
        name
        for name in _SETS
        if name in before and (name not in now or not set(now[name]) <= set(before[name]))
    ]
    for name in _RANGES:
        was, is_now = Range(*before.get(name, EVERYTHING)), Range(*now.get(name, EVERYTHING))
        if is_now.first < was.first or is_now.end > was.end:
            found.append(name)
    return tuple(found)


def changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that do not select the same as before."""
    return tuple(name for name in (*_SETS, *_RANGES) if before.get(name) != now.get(name))
