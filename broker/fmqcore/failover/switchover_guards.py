"""The guards of a master change (ADR 0022): switchover and promotion. Pure.

As in `guards.py`. The configuration is only a wish (`Evidence.wanted`); the state is the truth.
"""

from typing import Final

from fmqcore.failover.context import Case, Guard
from fmqcore.ids import Permission
from fmqcore.policy import HowMany


def _successor_ready(case: Case) -> bool:
    """The wanted broker can soon have all that the master has, and may serve everything."""
    evidence, wanted = case.evidence, case.evidence.wanted
    link, live = evidence.links.get(wanted), evidence.live.get(wanted)
    member = case.config.member(wanted)
    return (
        wanted in case.state.isr
        and (link is not None and link.connected and link.caught_up)
        and (live is not None and live.incarnation == link.incarnation)
        and (member is not None and member.permission is Permission.FULL)
    )


ANOTHER_WANTED: Final = Guard(
    "another member is wanted as master",
    lambda c: c.evidence.wanted not in ("", c.me),
    "{me} serves as master",
)
SUCCESSOR_READY: Final = Guard(
    "the wanted master is live, in sync, caught up and allowed to serve everything",
    _successor_ready,
    "{me} serves as master until {wanted}, which is wanted, is there, in sync and allowed to "
    "serve everything",
)
MOVE_DUE: Final = Guard(
    "the last try to move is some time ago",
    lambda c: c.now_ms >= c.evidence.next_move_ms,
    "{me} serves as master: {wanted} did not have all in time, it is tried again",
)
WANTED: Final = Guard(
    "this broker is wanted as master",
    lambda c: c.evidence.wanted == c.me,
    "{reader} serves reads until master {master} is back",
)
SUCCESSOR: Final = Guard(
    "the master gave way to this incarnation",
    lambda c: c.state.successor_incarnation == c.evidence.incarnation != "",
    "{me} restarted since {master} gave way to it",
)
UNUSED: Final = Guard(
    # A claim writes the claimant's journal end, which is beyond 0.
    "this broker gave way, and no broker has claimed since",
    lambda c: c.state.max_delivered_position == 0,
    "{me} waits for reader {reader} to hand over its offsets",
)
GIVEN_UP: Final = Guard(
    "the master is declared lost for good",
    lambda c: c.config.declared_lost == c.state.master,
    "{reader} serves reads until master {master} is back",
)
NOT_BEHIND: Final = Guard(
    "no unclean start since this broker had all that a master had",
    lambda c: not c.evidence.behind,
    "{me} is wanted as master, but stopped uncleanly and may lack what it acknowledged: it waits "
    "for master {master}",
)
SLAVES_ASKED: Final = Guard(
    "no acknowledgement was made by the master alone",
    lambda c: c.config.policy.how_many is not HowMany.NONE,
    "{me} is wanted as master, but the policy asks no slave: what {master} alone acknowledged "
    "would be lost; change the policy if it is to be given up",
)
NOT_GATHERING: Final = Guard(
    "the master that is gone lacks nothing itself",
    lambda c: c.state.required_epoch <= c.evidence.journal_epoch,
    "{me} is wanted as master, but {master} had not heard all slaves when it went: it must return",
)
ALL_LIVE: Final = Guard(
    "every other member is live",
    lambda c: all(m.id in c.evidence.live for m in c.config.slaves if m.id != c.me),
    "{me} is wanted as master and waits for every other member but {master}: one may have what it "
    "has not (one that is gone for good must be taken out of the configuration)",
)
