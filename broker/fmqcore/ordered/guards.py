"""The questions of the table, each with the sentence to report while the answer is no. Pure."""

from typing import Final

from fmqcore.ordered.chain_ends import chain_end
from fmqcore.ordered.context import (
    Case,
    Guard,
    deadline_ms,
    given_end,
    has_room,
    last_segment,
    no_room_text,
    target_of,
    view_of,
)
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.eligibility import eligible, obstacles
from fmqcore.ordered.evidence import GroupView, Serving
from fmqcore.ordered.lowering import has_gap, leaves_gap, loses, only_consumed
from fmqcore.ordered.sending import least_members
from fmqcore.ordered.transitions import droppable, give_end, lower_end
from fmqcore.zk.chain import Chain, Segment

# ---- duty SEND


def _sender_changed(case: Case) -> bool:
    return bool(case.evidence.line) and case.evidence.line[0] != case.chain.sender.id


def _another_eligible(case: Case) -> bool:
    return any(group != last_segment(case).group for group in eligible(case))


def _another_free(case: Case) -> bool:
    last = last_segment(case).group
    views = {group: view_of(case, group) for group in eligible(case) if group != last}
    return any(not view.avoid and not view.cut for view in views.values())


def _group_left(case: Case) -> bool:
    return all(g.group != last_segment(case).group for g in case.chain.groups)


def has_trouble(chain: Chain, view: GroupView) -> bool:
    """Return whether a group cannot acknowledge: silent, no writes, no room, or a member less."""
    whole = not view.missing and view.members >= least_members(chain)
    return not (view.reachable and view.takes_writes and whole) or view.full


def _trouble_lasts(case: Case) -> bool:
    since = case.evidence.trouble_since_ms
    return since is not None and case.now_ms - since >= case.params.trouble_ms


def _below_start(case: Case) -> bool:
    last = last_segment(case)
    ends = view_of(case, last.group).ends
    return ends is not None and any(e < s for e, s in zip(ends, last.start, strict=True))


def _lease_over(case: Case) -> bool:
    deadline = deadline_ms(case)
    return deadline is not None and case.now_ms >= deadline


def _reported(case: Case) -> bool:
    report, last = case.evidence.report, last_segment(case)
    return (
        report is not None
        and (report.sender, report.segment) == (case.chain.sender.id, last.number)
        # Nothing below the segment's first sequence was left without an ack.
        and all(u >= f for u, f in zip(report.unacked, last.first_sequence, strict=True))
    )


def _holds_acknowledged(case: Case) -> bool:
    report = case.evidence.report
    return report is None or not leaves_gap(case.chain, report.unacked)


SENDER_WAITS: Final = Guard(
    "a sender is in line",
    lambda c: bool(c.evidence.line),
    "no sender has asked for the role",
)
SENDER_CHANGED: Final = Guard(
    "another sender is first in line",
    _sender_changed,
    "{sender} sends into segment {segment} in {group}",
)
SAME_SENDER: Final = Guard(
    "the sender is first in line",
    lambda c: bool(c.evidence.line) and not _sender_changed(c),
    "sender {sender} is gone and no other is in line",
)
REPORTED: Final = Guard(
    # Of an earlier segment, or of another sender, a report may lack what is not acknowledged.
    "the sender has reported what of this segment is not acknowledged",
    _reported,
    "sender {sender} has not reported yet what of segment {segment} is not acknowledged: if this "
    "lasts, see whether that program runs",
)
HOLDS_ACKED: Final = Guard(
    # Its group gave this end, or lowered it, after all disks were lost: a person has to decide.
    # A new sender knows of no acknowledged record, and goes on after what the segments hold:
    # nothing is left out.
    "the segments hold all that was acknowledged",
    _holds_acknowledged,
    "{group} has lost acknowledged records of segment {segment}, and sends wait: restart the "
    "sender if it can send again all after its `last` record (consumers may get some twice), or "
    "accept the loss by `fmq ordered release {topic} {segment} --accept-loss`",
)
ELIGIBLE: Final = Guard(
    "a group may take the next segment",
    lambda c: bool(eligible(c)),
    lambda c: "no group may take sends: " + obstacles(c),
)
ANOTHER_ELIGIBLE: Final = Guard(
    "another group may take the next segment",
    _another_eligible,
    lambda c: "no other group may take sends: " + obstacles(c),
)
ANOTHER_FREE: Final = Guard(
    # Otherwise two groups that are kept out, or cut off, would send the topic back and forth.
    "another group, which is not kept out or cut off, may take the next segment",
    _another_free,
    ANOTHER_ELIGIBLE.unmet,
)
ROOM: Final = Guard(
    # A segment that may stay open is not closed without it, or the sends would wait for readers.
    "the chain has room for another segment",
    lambda c: has_room(c.chain),
    lambda c: no_room_text(c.chain),
)
GROUP_LEFT: Final = Guard(
    "the group was taken out of the topic",
    _group_left,
    "{group} takes the sends",
)
KEPT_OUT: Final = Guard(
    "the group is kept out",
    lambda c: bool(view_of(c, last_segment(c).group).avoid),
    "{group} takes the sends",
)
SENDER_CUT: Final = Guard(
    "the sender does not reach the group",
    lambda c: view_of(c, last_segment(c).group).cut,
    "{group} takes the sends",
)
READ_ONLY: Final = Guard(
    # Closed even if no other group can go on: only a known end lets the reader show the tail.
    "a takeover reader serves the group",
    lambda c: view_of(c, last_segment(c).group).read_only,
    "{group} takes the sends",
)
TROUBLE: Final = Guard(
    "the group does not answer, takes no writes, has no room, or lacks a member",
    lambda c: has_trouble(c.chain, view_of(c, last_segment(c).group)),
    "{group} takes the sends",
)
TROUBLE_LASTS: Final = Guard(
    "the trouble lasts",
    _trouble_lasts,
    "{trouble}: the sends wait a moment for it",
)
BELOW_START: Final = Guard(
    "the group's queues end below the segment's start",
    _below_start,
    "{group} takes the sends",
)
LEASE_OVER: Final = Guard(
    # Before, the group's master may still acknowledge records of the segment.
    "the lease of the segment's master is certainly over",
    _lease_over,
    "waits for {group} to give the end of segment {segment}",
)
LAST_KNOWN: Final = Guard(
    # Otherwise the sender would leave out, or repeat, records of the one before it.
    "the chain's last record is known",
    lambda c: chain_end(c.chain) is not None,
    "sender {next_sender} waits for the end of segment {unended} in {unended_group}: bring its "
    "members back (`fmq ordered status` names them), or let the sender accept an unknown end",
)
ACCEPTS_UNKNOWN: Final = Guard(
    "the sender accepts not to know the chain's last record",
    lambda c: bool(c.evidence.line) and c.evidence.accepts_unknown == c.evidence.line[0],
    LAST_KNOWN.unmet,
)

# ---- duty END


def target(case: Case) -> Segment:
    """Return the segment whose end is due; there is one in phases CLOSING and UNKNOWN."""
    segment = target_of(case)
    assert segment is not None
    return segment


def _reaches_start(case: Case) -> bool:
    end = given_end(case)
    return end is None or all(e >= s for e, s in zip(end, target(case).start, strict=True))


def _leaves_no_gap(case: Case) -> bool:
    """A later segment of this sender starts with its lowest unacknowledged record (K5)."""
    if given_end(case) is None or not _reaches_start(case):
        return True
    return not has_gap(give_end(case))


IS_MASTER: Final = Guard(
    "this broker serves the group as master",
    lambda c: c.evidence.serving is Serving.MASTER,
    "segment {segment} waits for the broker that serves {group}",
)
IS_READER: Final = Guard(
    # Its claim ended every later ack; before it, the master's acks could pass the end.
    "this broker has claimed the group's reads",
    lambda c: c.evidence.serving is Serving.READER,
    "segment {segment} waits for the broker that serves {group}",
)
NOT_SEALED: Final = Guard(
    "the segment is not sealed here",
    lambda c: target(c).number not in c.evidence.sealed,
    "segment {segment} is sealed",
)
SEALED: Final = Guard(
    # Otherwise this master could take and acknowledge records above the end that it gives.
    "the segment is sealed here, durably",
    lambda c: target(c).number in c.evidence.sealed,
    "segment {segment} is not sealed yet",
)
HELD_KNOWN: Final = Guard(
    # A master alone must not end a segment at its own end: its tail lies on one disk.
    "this master knows what every member holds",
    lambda c: given_end(c) is not None,
    "the master of {group} waits for all members: it does not know what they hold of segment "
    "{segment}",
)
REACHES_START: Final = Guard(
    "the end is not below the segment's start",
    _reaches_start,
    "the journal of {group} ends below the start of segment {segment}: records were lost; run "
    "`fmq ordered release` for the segment",
)
NO_GAP: Final = Guard(
    "no acknowledged record is missing between this end and the next segment",
    _leaves_no_gap,
    "{group} lacks acknowledged records of segment {segment}: bring back the member that holds "
    "them, or accept the loss by `fmq ordered release --accept-loss`",
)
NOTHING_LOST: Final = Guard(
    # Otherwise a person has to decide.
    "no record that counts as stored lies between the group's ends and the segment's end",
    lambda c: not loses(c.chain, lower_end(c)),
    "{group} has lost acknowledged records of segment {segment}, and consumers wait there: accept "
    "the loss by `fmq ordered release --accept-loss`",
)
SENT_AGAIN: Final = Guard(
    "what consumers have finished there was sent again",
    lambda c: not only_consumed(lower_end(c)),
    "{group} has lost records of segment {segment} that consumers have finished: waits until a "
    "later segment with them has ended",
)

# ---- duties HEADS and TIDY

HEADS_DUE: Final = Guard(
    "a subscription has finished a segment",
    lambda c: bool(due_heads(c.chain, c.evidence.group, c.evidence.progress)),
    "no subscription has finished its segment",
)
DROP_DUE: Final = Guard(
    "all subscriptions have left the first segment",
    lambda c: droppable(c) > 0,
    "no segment is left by all subscriptions",
)
