"""Plan reads of an ordered topic: what each segment gives, from its group's journal.

Tasks come by queue, and within a queue in the order of the chain, so rows that are collected as
they were planned are in order. Each record comes once: orphans and what a sender sent again are
left out, as for consumers. Of the open segment comes what all named members of the group hold.
Leaves nothing on disk.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from fmqcore.batch.header import HEADER_LEN
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.reading import Reading, Stretch, read_order
from fmqcore.scan.headers import HeaderBlock, ScanRange, scan_headers
from fmqcore.scan.selection import Range, Wanted
from fmqcore.zk.chain import Chain
from fmqspark.source.access import open_bytes
from fmqspark.source.chain_openings import Openings
from fmqspark.source.files import Throttle
from fmqspark.source.members import members_of, paths_of, read_chain
from fmqspark.source.names import add_topic_names
from fmqspark.source.options import Request
from fmqspark.source.planning import Task
from fmqspark.source.snaps import counted
from fmqspark.source.survey import Survey, survey

KEEPING: Final = "a named consumer group that reads later keeps segments until then"


class OrderedTask(NamedTuple):
    """A task within one stretch: the records' segment, and sequence minus offset."""

    task: Task
    segment: int
    queue: int
    shift: int


@dataclass(slots=True)
class OrderedPlan:
    """What an ordered read does."""

    chain: Chain
    tasks: list[OrderedTask] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    deleted: dict[Stretch, str] = field(default_factory=dict)
    """Stretches of which retention took the begin, or all, each with the sentence on that."""
    left_out: dict[GroupName, list[str]] = field(default_factory=dict)
    """By group the directories that could not be read: they may hold what others have deleted."""


def plan_ordered(
    request: Request, narrow: Callable[[Wanted, Survey], Wanted] = lambda wanted, _: wanted
) -> OrderedPlan:
    """Plan a read; `narrow` leaves out what a query's filters do not let pass.

    Raises `InvalidArgument`, `Unavailable` if a journal lacks what the chain names, and what
    reading raises.
    """
    chain = chain_of(request)
    journals = _Journals(chain, request)
    plan = _planned(request, chain, read_order(chain, journals.held()), journals, narrow)
    if journals.is_chain_older:
        plan.notices.append(
            f"nothing is read from segment {chain.next_number} on, which was opened after the "
            "chain was written: write it again (fmq ordered status -o json)"
        )
    if dropped := dropped_until(chain):
        plan.notices.append(
            f"nothing is read of segments 1 to {dropped}: the chain has dropped them, because all "
            f"consumer groups had read them, or retention had emptied them; {KEEPING}"
        )
    return plan


def plan_ended(request: Request, chain: Chain, is_wanted: Callable[[Stretch], bool]) -> OrderedPlan:
    """Plan a read of those wanted of the ended segments; the journals of others may be away.

    Raises what `plan_ordered` raises.
    """
    ended, notices = read_order(chain, {})
    reading = Reading([stretch for stretch in ended if is_wanted(stretch)], notices)
    return _planned(request, chain, reading, _Journals(chain, request), lambda wanted, _: wanted)


def chain_of(request: Request) -> Chain:
    """Return the chain that a request names. Raises `InvalidArgument`, `OSError`."""
    topics = request.topics or ("",)
    if len(topics) > 1:
        raise InvalidArgument(
            f"topics {', '.join(topics)}: name one topic, as a chain belongs to one"
        )
    return read_chain(Path(request.chain), topics[0])


def _planned(
    request: Request,
    chain: Chain,
    reading: Reading,
    journals: "_Journals",
    narrow: Callable[[Wanted, Survey], Wanted],
) -> OrderedPlan:
    plan = OrderedPlan(chain, stretches=reading.stretches, notices=list(reading.notices))
    for stretch in reading.stretches:
        found = journals.require(stretch)
        if deleted := journals.deleted(stretch, found):
            plan.deleted[stretch] = deleted
            plan.notices.append(deleted)
        wanted = narrow(_wanted(request, chain, stretch), found)
        plan.tasks += [
            OrderedTask(task, stretch.segment, stretch.queue, stretch.shift)
            for task in request.cut(found, wanted)
        ]
    for group, found in journals.surveys.items():
        plan.notices += found.notices
        plan.left_out[group] = found.left_out
    return plan


def dropped_until(chain: Chain) -> int:
    """Return the last dropped segment that had records; 0: there is none."""
    floor = chain.floor
    records = [place.segment for place in floor.last_records if place is not None]
    if records:
        return max(records)
    return floor.number if any(floor.last_sequence) else 0


def _wanted(request: Request, chain: Chain, stretch: Stretch) -> Wanted:
    """Return what the options leave of a stretch."""
    asked = request.wanted.queues
    return replace(
        request.wanted,
        topics=frozenset([chain.topic_id]),
        queues=frozenset([stretch.queue])
        & (frozenset([stretch.queue]) if asked is None else asked),
        offsets=request.wanted.offsets.cut(Range(stretch.first, stretch.end)),
    )


class _Journals:
    """The journals of the groups, surveyed when a stretch needs them."""

    def __init__(self, chain: Chain, request: Request) -> None:
        self._chain = chain
        self._request = request
        self._members = members_of(chain, request.directories)
        self.surveys: dict[GroupName, Survey] = {}
        self.is_chain_older = False
        """Whether a journal holds a segment that was opened after the chain was written."""

    def held(self) -> Mapping[GroupName, tuple[int, ...]]:
        """Return what all named members of the open segment's group hold, per queue."""
        last = self._chain.last
        if last is None or last.end is not None:
            return {}
        paths = paths_of(self._members, last.group)
        ends = [self._ends_of(path) for path in paths]
        if not ends:
            return {}
        queues = range(self._chain.queues)
        return {last.group: tuple(min(each.get(queue, 0) for each in ends) for queue in queues)}

    def _ends_of(self, path: str) -> dict[int, int]:
        """Return per queue what a member holds, without segments that the chain does not know."""
        found = survey([path], uncommitted=self._request.uncommitted)
        chain = self._chain
        for view in reversed(found.segments):
            with open_bytes(path, view.segment.base, Throttle(0), view.until) as data:
                openings = Openings(data.read, view.segment.base, chain.topic_id, chain.next_number)
                if openings.begins_behind():
                    continue
                wanted = ScanRange(view.segment, view.segment.base, view.until)
                headers, _ = scan_headers(data.read, wanted)
                opened = openings.find(headers)
            if opened is None and view is found.segments[-1]:
                return self._ends(found)
            self.is_chain_older = True
            known = {**view.before, **counted(_below(headers, opened or view.until))}
            return self._of_topic(known)
        self.is_chain_older |= bool(found.segments)
        return {}

    def require(self, stretch: Stretch) -> Survey:
        """Return the journal that holds a stretch up to its end."""
        found = self._survey(stretch)
        end = self._ends(found).get(stretch.queue, 0)
        if end < stretch.end:
            raise Unavailable(
                f"segment {stretch.segment} queue {stretch.queue} ends at offset {stretch.end} in "
                f"{stretch.group}, but its directories are committed up to {end} only: name the "
                "directory of another member, wait 2 s for a checkpoint, or set option uncommitted"
            )
        return found

    def deleted(self, stretch: Stretch, found: Survey) -> str:
        """Return the sentence on what retention took of a stretch; "" if all is there."""
        before = found.segments[0].before if found.segments else {}
        begin = before.get((self._chain.topic_id, stretch.queue), 0)
        if begin <= stretch.first:
            return ""
        return (
            f"segment {stretch.segment} queue {stretch.queue}: retention of {stretch.group} "
            f"has deleted offsets {stretch.first} to {min(begin, stretch.end)}"
        )

    def _survey(self, stretch: Stretch) -> Survey:
        found = self.surveys.get(stretch.group)
        if found is not None:
            return found
        paths = paths_of(self._members, stretch.group)
        if not paths:
            raise InvalidArgument(
                f"segment {stretch.segment} of {self._chain.topic} lies in {stretch.group}: name "
                f"a directory of that group, {stretch.group}=DIRECTORY"
            )
        found = replace(self._request, directories=paths).survey()
        add_topic_names(found)
        name = found.names.get(self._chain.topic_id, self._chain.topic)
        if name != self._chain.topic:
            raise InvalidArgument(
                f"{', '.join(paths)}: topic number {self._chain.topic_id} is {name} there, and "
                f"{self._chain.topic} in the chain: they are of different clusters"
            )
        self.surveys[stretch.group] = found
        return found

    def _ends(self, found: Survey) -> dict[int, int]:
        """Return per queue the next offset at the end of what may be read."""
        ends: dict[int, int] = {}
        for table in (
            *((v.before if v.after is None else v.after) for v in found.segments),
            counted(found.tail),
        ):
            ends |= self._of_topic(table)
        return ends

    def _of_topic(self, ends: Mapping[QueueKey, Offset]) -> dict[int, int]:
        return {queue: end for (i, queue), end in ends.items() if i == self._chain.topic_id}


def _below(headers: HeaderBlock, position: int) -> HeaderBlock:
    """Return the headers of the batches that begin below a position."""
    count = bisect_left(headers.column("position"), position)
    return HeaderBlock(headers.raw[: count * HEADER_LEN])
