"""What `fmq consume -e` still has to read, and what is withheld. Pure.

The end is what was stored when the command started, queue by queue, readable or withheld
(`fmqcore.consume.visibility`): records whose acks were on the way are read, too. An end falls where
withheld records are gone: no producer had an ack for them, and another broker has the term.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fmqcli.common import counted
from fmqclient.admin.infos import QueueOffsets

Place = tuple[str, int]
"""A broker group and a queue."""

WAITS_FOR_ACKS = "they wait for acks"
_NAMED = 5
"""Queues named in one sentence, at most."""


class ReadEnd:
    """The ends that are not reached yet."""

    def __init__(self, rows: Iterable[QueueOffsets]) -> None:
        self._unread: dict[Place, QueueOffsets] = {}
        self._readable: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._printed: dict[Place, int] = {}  # one past the last; acks may be stored far later
        for row in rows:  # of any consumer group
            place = (row.broker_group, row.queue)
            self._unread[place] = replace(row, committed=row.begin, acked=0)
            self._readable[place] = max(row.end, self._readable.get(place, 0))
            self._ends[place] = max(row.end, row.stored_end, self._ends.get(place, 0))

    def __bool__(self) -> bool:
        """Return whether some end is not reached."""
        return bool(self._ends)

    def note_printed(self, messages: Iterable[Any]) -> None:
        """Drop the ends that these messages reach: they are in order in each queue."""
        for m in messages:
            place, end = (m.group, m.queue), m.offset + 1
            self._printed[place] = max(end, self._printed.get(place, 0))
            if end >= self._ends.get(place, end + 1):
                del self._ends[place]

    def is_reached(self, rows: Sequence[QueueOffsets]) -> bool:
        """Return whether all messages to the end were printed, or finished by any member.

        `rows`: its progress now. A queue of an ordered topic may hold records that never come:
        dropped, or sent again elsewhere.
        """
        for row in rows:
            place = (row.broker_group, row.queue)
            if place in self._ends:
                self._ends[place] = self._lowered(place, row)
        now = self._unread | {(row.broker_group, row.queue): row for row in rows}
        return not self._behind(now)

    def withheld(self, rows: Sequence[QueueOffsets]) -> list[QueueOffsets]:
        """Return the rows that lack only withheld records; none if some other row lacks more.

        A queue without a row, as the group's start is not stored yet, has only what was printed.
        """
        now = self._unread | {(row.broker_group, row.queue): row for row in rows}
        behind = self._behind(now)
        readable = any(self._done(p, now[p]) < now[p].end or not now[p].withheld for p in behind)
        return [] if readable else [now[place] for place in behind]

    def unconnected(
        self, rows: Sequence[QueueOffsets], connected: Mapping[str, str]
    ) -> dict[str, str]:
        """Return by broker group why nothing comes from it, of those whose end is not reached."""
        now = self._unread | {(row.broker_group, row.queue): row for row in rows}
        groups = sorted({group for group, _ in self._behind(now)})
        return {group: reason for group in groups if (reason := connected.get(group))}

    def lacks(self, rows: Iterable[QueueOffsets]) -> bool:
        """Return whether a queue whose end is not reached has no row: not started, or gone."""
        return bool(self._ends.keys() - {(row.broker_group, row.queue) for row in rows})

    def vanished(self, rows: Sequence[QueueOffsets]) -> list[Place]:
        """Return the queues that are behind, if none has a message to come or withheld.

        Their messages were lost, or the topic was recreated. `rows`: of every queue of the topic.
        """
        now = {(row.broker_group, row.queue): row for row in rows}
        behind = self._behind(self._unread | now)
        there = [place for place in behind if place in now]
        more = any(self._done(p, now[p]) < now[p].end or now[p].withheld for p in there)
        return [] if more else behind

    def _behind(self, now: Mapping[Place, QueueOffsets]) -> list[Place]:
        return [p for p, end in self._ends.items() if self._done(p, now[p]) < end]

    def _done(self, place: Place, row: QueueOffsets) -> int:
        printed = self._printed.get(place, 0)
        if row.end_to_come and printed >= row.end_to_come:
            printed = max(printed, row.end)  # the rest is dropped, or sent again elsewhere
        finished = row.committed if row.lag else max(row.committed, row.end)
        return max(finished, printed)

    def _lowered(self, place: Place, row: QueueOffsets) -> int:
        stored = max(row.stored_end, row.end, self._readable[place])
        return min(self._ends[place], stored)


def withheld_by_reason(
    rows: Iterable[QueueOffsets], *, lasting: bool = True
) -> dict[tuple[str, str, str], str]:
    """Return what may not be read yet: a sentence by topic, broker group and reason.

    `lasting`: only what may stay so, or what a consumer group has read before: a restarted master
    does not know yet that it was committed.
    """
    counts: dict[tuple[str, str, str], dict[int, int]] = {}
    for row in rows:  # a queue has a row for each consumer group
        lasts = row.withheld_reason or row.committed > row.end
        if row.withheld and (lasts or not lasting):
            queues = counts.setdefault((row.topic, row.broker_group, row.withheld_reason), {})
            queues[row.queue] = max(row.withheld, queues.get(row.queue, 0))
    return {
        (topic, group, reason): withheld_sentence(
            group, sum(queues.values()), f"of topic {topic}", reason
        )
        for (topic, group, reason), queues in sorted(counts.items())
    }


def withheld_sentence(group: str, count: int, which: str, reason: str) -> str:
    """Return that `count` messages of a broker group may not be read yet, and why."""
    reason = reason or WAITS_FOR_ACKS
    return f"group {group}: {counted(count, 'message')} {which} may not be read yet: {reason}"


def not_reached(reason: str) -> str:
    """Return that the end is not reached, and why."""
    return f"the end is not reached: {reason}"


def messages_vanished(topic: str, places: Sequence[Place]) -> str:
    """Return that messages before the end are gone, and what to do."""
    queues = ", ".join(f"{group}/{queue}" for group, queue in sorted(places)[:_NAMED])
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return not_reached(
        f"messages of topic {topic} that were there at the start are gone in {queues}{more}: the "
        "topic was recreated, or a failover lost them; to read what is there now, run this again"
    )


def only_withheld_left(rows: Sequence[QueueOffsets]) -> str:
    """Return that nothing is left before the end but these withheld records, and what to do.

    A master that was restarted alone does not know which of them were acknowledged before.
    """
    what = "; ".join(withheld_by_reason(rows, lasting=False).values())
    step = "see `fmq status`, and run this again"
    if any(row.withheld_reason for row in rows):
        step = "if brokers are away (`fmq status`), start them, and run this again"
    return not_reached(f"{what}. Which of them are acknowledged is not known yet: {step}")
