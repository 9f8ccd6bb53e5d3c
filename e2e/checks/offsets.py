"""Check I7: committed offsets go back only by a seek, and pass no unacknowledged message.

They are compared with what brokers reported while they served reads, and with what is stored in the
end. An ack of a message that was lost (I4 judges that) promises nothing: a client may send it after
the loss, and the new reader answers OK, since no broker has the message any more.
"""

from bisect import bisect_right
from collections.abc import Iterator

from e2e.checks.content import may_be_gone
from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.progress import Confirmed, Read
from e2e.checks.takeover import excuse
from e2e.history.client_events import Delivered, Place
from e2e.history.cluster_events import Floor
from fmqcore.zk.group_state import Mode


def offsets(facts: Facts) -> Iterator[Finding]:
    """I7: committed offsets go back only by a seek, and pass no unacknowledged message."""
    by_place: dict[tuple[str, Place], list[Floor]] = {}
    for look in facts.floors:
        by_place.setdefault((look.readers, look.place), []).append(look)
    for readers, place, read in facts.reads():
        for look in by_place.get((readers, place), ()):
            yield from _compared(facts, read, look)
        yield from _final(facts, read, readers, place)
        yield from _passed(facts, read, readers, place)


def _compared(facts: Facts, read: Read, look: Floor) -> Iterator[Finding]:
    """Check a reported committed offset.

    The ack that counts is that of the message at the offset: those above it had to wait.
    """
    promises = read.promises
    at = bisect_right(promises, look.asked_ms, key=lambda p: p.at_ms)
    until = bisect_right(promises, look.at_ms, key=lambda p: p.at_ms)
    if at == 0 or any(p.by is None for p in promises[at - 1 : until]):
        return
    promised = promises[at - 1]
    if promised.by is None or look.committed >= promised.floor:
        return
    lost = read.behind(promised, look.committed)
    if _without_message(facts, look.readers, look.place, lost, look.committed, look.at_ms):
        return
    if not excuse(facts, look.place, lost, look.at_ms):
        text = (
            f"{look.broker} serves reads and says {look.readers} is at {look.committed}; "
            f"{promised.floor} was confirmed at {promised.at_ms:.0f} ms, and the ack of the "
            f"message at which it stands to {lost.who} at {lost.at_ms:.0f} ms"
        )
        about = (look.broker, look.place.group, lost.who)
        yield Finding(Check.I7, look.at_ms, text, about, look.place, look.committed)


def _final(facts: Facts, read: Read, readers: str, place: Place) -> Iterator[Finding]:
    promises = read.promises
    journal = facts.final_journal(place.group)
    states = facts.states.get(place.group)
    if journal is None or not promises or (states and states[-1].mode is not Mode.MASTER):
        return
    promised, stored = promises[-1], journal.floors.get((readers, place), 0)
    if promised.by is None or stored >= promised.floor:
        return
    lost = read.behind(promised, stored)
    if _without_message(facts, readers, place, lost, stored, facts.end_ms):
        return
    if not excuse(facts, place, lost, facts.end_ms):
        text = (
            f"{readers} is stored at {stored} in the end; {promised.floor} was confirmed at "
            f"{promised.at_ms:.0f} ms, and the ack of the message at which it stands to {lost.who} "
            f"at {lost.at_ms:.0f} ms"
        )
        about = (place.group, lost.who)
        yield Finding(Check.I7, facts.end_ms, text, about, place, stored)


def _without_message(
    facts: Facts, readers: str, place: Place, ack: Confirmed, offset: int, by_ms: float
) -> bool:
    """Whether the acked message at that offset is gone, and may have been lost by then."""
    truth = facts.truth(place)
    if ack.offset != offset or offset < truth.begin:
        return False
    came = [
        event
        for event in facts.progress[readers, place]
        if isinstance(event, Delivered)
        and (event.who, event.offset) == (ack.who, offset)
        and event.at_ms <= ack.acked_ms
    ]
    if not came or truth.records.get(offset) == came[-1].record:
        return False
    return bool(may_be_gone(facts, came[-1], by_ms))


def _passed(facts: Facts, read: Read, readers: str, place: Place) -> Iterator[Finding]:
    """Check that every message below the committed offset was acknowledged or skipped."""
    journal = facts.final_journal(place.group)
    if journal is None or not read.ever:
        return
    stored = journal.floors.get((readers, place), 0)
    low = max(facts.deleted_to(place), min(read.ever), read.skipped_to)
    missing = [offset for offset in range(low, stored) if offset not in read.acked]
    if missing:
        text = (
            f"{readers} is stored at {stored} in the end, but no member acknowledged "
            f"{len(missing)} messages below, the first at {missing[0]}"
        )
        yield Finding(Check.I7, facts.end_ms, text, (place.group,), place, missing[0])
