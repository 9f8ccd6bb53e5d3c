"""Mistakes in the rules of a chain, one at a time: an exploration has to find each."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from fmqcore.ids import GroupName, Offset
from fmqcore.ordered import delivery, sending
from fmqcore.ordered import guards as g
from fmqcore.ordered import transitions as t
from fmqcore.ordered.context import Case, Guard
from fmqcore.ordered.delivery import Window
from fmqcore.ordered.evidence import Action, Serving
from fmqcore.ordered.machine import RULES, Rules
from fmqcore.ordered.sending import AckEvidence, Judgement, OrderedBatch, Verdict
from fmqcore.tests.ordered.world import NEVER, Faults, Protocol, Size
from fmqcore.zk.chain import Chain, Floor, Segment, sorted_pairs

OPENED: Final = """
    open 1
    A follows to 1
"""
ACKED: Final = f"""{OPENED}
    A sends 1
    A sends 2
    g1 replicates
    g1's slave acks
    g1 acks A
"""  # 1 is acknowledged, 2 is on the master only
BOTH_DEAD: Final = f"""{ACKED}
    g1's master dies
    g1's slave dies
    close
    declare the end unknown 1
"""
WITHOUT_END: Final = f"""{BOTH_DEAD}
    A reports
    open 2
    A follows to 2
"""  # 1 is in segment 1, whose end is unknown; 2 has to be sent into segment 2
ANOTHER_SENDER: Final = f"""{OPENED}
    the first sender's node goes
    close
    g1 seals 1
    give the end 1
    open 2
    B follows to 2
"""
READER_AHEAD: Final = f"""{ACKED}
    g1 replicates
    g1's master dies, its tail is lost
    g1's slave claims
    close
    give the end 1
"""  # 1 is acknowledged, 2 is on the takeover reader only, and below the end of segment 1
READER_LOST: Final = f"""{READER_AHEAD}
    A reports
    open 2
    A follows to 2
    g1's slave is lost, its master goes on
    g1 links
"""
READER_FORGOTTEN: Final = f"""{READER_AHEAD}
    g1 delivers 1
    g1 delivers 2
    A reports
    open 2
    A follows to 2
    g1's slave is lost, its master goes on
    g1 links
    g1 replicates
    g1's slave is in sync
"""  # 2 is consumed, and in no journal now: it is sent again into segment 2, and comes again
TAKEN_OVER: Final = f"""{OPENED}
    g1 reads the chain
    the first sender's node goes
    g1's stream breaks
    g1's slave claims
    close
    give the end 1
    open 2
    B follows to 2
    g1's master takes the reads back
    g1's slave is in sync
"""
PLANNED_SWITCH: Final = """
    close as planned
    g1 seals 1
    give the end 1
    A reports
    open 2
    A follows to 2
"""  # from segment 1 in g1 to segment 2 in g2
SWITCHED_HELD: Final = f"""{OPENED}
    A sends 1
    g1 replicates
    g1's slave acks
{PLANNED_SWITCH}"""  # 1 is in segment 1 and not acknowledged: it comes again in segment 2
REPEATS_LOST: Final = f"""{SWITCHED_HELD}
    A sends 1
    g2 replicates
    g2's master dies, its tail is lost
    g2's slave claims
    close
    give the end 2
    g1 delivers 1
    heads move
    g2's slave is lost, its master goes on
    g2 links
    g2's slave is in sync
"""  # 1 is in segment 1, and came again in segment 2, whose end no member reaches now
SHOWN: Final = f"""{OPENED}
    A sends 1
    g1 delivers 1
    g1's master dies, its tail is lost
    g1's slave claims
    close
    give the end 1
    A reports
"""
SWITCHED: Final = f"""{OPENED}
    A sends 1
{PLANNED_SWITCH}"""
ORPHANED: Final = f"""{OPENED}
    A sends 1
    close as planned
    g1 seals 1
    give the end 1
    g1 replicates
    g1's slave acks
    A reports
    open 2
    A follows to 2
"""  # 1 lies above the end of segment 1


@dataclass(frozen=True)
class Mistake:
    """A protocol with one mistake, a way to a world near it, and what may happen from there."""

    name: str
    protocol: Callable[[], Protocol]
    faults: Faults
    script: str = OPENED
    size: Size = Size()


def without(*guards: Guard) -> Rules:
    """Return rules whose rows do not ask these guards."""
    names = {guard.name for guard in guards}
    rows = {
        key: tuple(
            replace(row, guards=tuple(x for x in row.guards if x.name not in names)) for row in rows
        )
        for key, rows in RULES.rows.items()
    }
    return replace(RULES, rows=rows)


def with_edit(action: Action, edit: Callable[[Case], Chain]) -> Rules:
    """Return rules in which a step makes another chain."""
    rows = {
        key: tuple(replace(row, edit=edit) if row.action is action else row for row in rows)
        for key, rows in RULES.rows.items()
    }
    return replace(RULES, rows=rows)


def _no_seal() -> Protocol:
    rows = {
        key: tuple(r for r in rows if r.action is not Action.SEAL)
        for key, rows in without(g.SEALED).rows.items()
    }
    return Protocol(rules=replace(RULES, rows=rows))


def _acks_without_lease(
    chain: Chain, sealed: Collection[int], segment: int, evidence: AckEvidence, now_ms: int
) -> str | None:
    leased = replace(evidence, lease_until_ms=now_ms + 1)
    return sending.may_acknowledge(chain, sealed, segment, leased, now_ms)


def _past_an_open_segment(case: Case) -> Chain:
    """As if what is consumed of a segment without an end were all."""
    chain = case.chain
    ended = tuple(
        replace(s, end=case.evidence.progress["app"], end_unknown=False)
        if s.end is None and s.group == case.evidence.group and s is not chain.last
        else s
        for s in chain.segments
    )
    moved = delivery.due_heads(
        replace(chain, segments=ended), case.evidence.group, case.evidence.progress
    )
    return replace(chain, heads=sorted_pairs(dict(chain.heads) | moved))


def _heads_pass_open() -> Protocol:
    moved = with_edit(Action.MOVE_HEADS, _past_an_open_segment).rows
    rows = {
        key: tuple(replace(r, guards=()) if r.action is Action.MOVE_HEADS else r for r in rows)
        for key, rows in moved.items()
    }
    return Protocol(rules=replace(RULES, rows=rows))


def _any_report() -> Protocol:
    guard = replace(g.REPORTED, holds=lambda c: c.evidence.report is not None)
    rows = {
        key: tuple(
            replace(row, guards=tuple(guard if x is g.REPORTED else x for x in row.guards))
            for row in rows
        )
        for key, rows in RULES.rows.items()
    }
    return Protocol(rules=replace(RULES, rows=rows), report_stays=True)


def _not_exactly_next(
    chain: Chain, group: GroupName, sealed: Collection[int], end: Offset, batch: OrderedBatch
) -> Judgement:
    made = sending.judge_batch(chain, group, sealed, end, batch)
    return Judgement(Verdict.APPEND, end) if made.verdict is Verdict.GAP else made


def _any_sender(
    chain: Chain, group: GroupName, sealed: Collection[int], end: Offset, batch: OrderedBatch
) -> Judgement:
    last = chain.last
    number, sender = last.number if last else 0, chain.sender
    own = replace(batch, sender=sender.id, sender_epoch=sender.epoch, segment=number)
    return sending.judge_batch(chain, group, sealed, end, own)


def _bare(chain: Chain, keep: Callable[[Segment, Segment], bool], number: int) -> Chain:
    """The chain in which other segments than those kept seem to be another sender's."""
    at = chain.segment(number)
    if at is None:
        return chain
    segments = tuple(
        s if s.number >= number or keep(s, at) else replace(s, sender_epoch=-1)
        for s in chain.segments
    )
    return replace(chain, segments=segments, floor=replace(chain.floor, sender_epoch=-1))


def _window(keep: Callable[[Segment, Segment], bool]) -> Callable[..., Window]:
    def shown(
        chain: Chain, subscription: str, queue: int, group: GroupName, progress: int, held: int
    ) -> Window:
        numbers = chain.heads_of(subscription) or (0,)
        bare = _bare(chain, keep, numbers[queue])
        return delivery.window(bare, subscription, queue, group, progress, held)

    return shown


def _above_the_end(
    chain: Chain, subscription: str, queue: int, group: GroupName, progress: int, held: int
) -> Window:
    made = delivery.window(chain, subscription, queue, group, progress, held)
    return replace(made, end=Offset(NEVER)) if not made.reason else made


def _as_if_reached(
    chain: Chain, segment: Segment, queue: int, serving: Serving, held: int | None, stored: int
) -> int:
    return delivery.shown_end(chain, segment, queue, serving, held, max(stored, NEVER))


def _drop_without_floor(case: Case) -> Chain:
    dropped = t.drop(case)
    floor = dropped.floor
    return replace(dropped, floor=Floor(floor.number, -1, floor.last_sequence))


def _from_known_end() -> Rules:
    rows = {
        key: tuple(
            replace(r, edit=t.open_without_end) if r.edit is t.open_new_sender else r for r in rows
        )
        for key, rows in without(g.LAST_KNOWN).rows.items()
    }
    return replace(RULES, rows=rows)


def _forgets_passed(case: Case) -> Chain:
    made = t.lower_end(case)
    return replace(made, segments=tuple(replace(s, passed=()) for s in made.segments))


def _forgets_unended() -> Rules:
    kept = tuple(c for c in RULES.conditions if c.name != "no segment without an end")
    return replace(RULES, conditions=kept)


TWO: Final = Size()
CALM: Final = Faults()
DEATH: Final = Faults(deaths=1)
SWITCH: Final = Faults(switches=1)
MISTAKES: Final = (
    # the eight of the design
    Mistake("no seal", _no_seal, SWITCH, ACKED),
    Mistake(
        "a master alone seals at its own end",
        lambda: Protocol(seals_at_own_end=True),
        DEATH,
        ACKED + "g1's slave dies\nclose\ng1 seals 1\ngive the end 1\nA reports\n",
    ),
    Mistake(
        "acks without the chain's lease",
        lambda: Protocol(may_ack=_acks_without_lease),
        DEATH,
        ACKED,
    ),
    Mistake(
        "unknown before the lease is over", lambda: Protocol(rules=without(g.LEASE_OVER)), DEATH
    ),
    Mistake("acks by the in-sync set", lambda: Protocol(acks_by_in_sync_set=True), DEATH),
    Mistake("head moved past an open segment", _heads_pass_open, CALM, WITHOUT_END),
    Mistake(
        "no last-sequence rule",
        lambda: Protocol(window=_window(lambda s, at: False)),
        CALM,
        SWITCHED_HELD,
    ),
    Mistake(
        "a sequence that is not exactly next", lambda: Protocol(judge=_not_exactly_next), DEATH
    ),
    # and others
    Mistake(
        "a slave gives the end before its claim", lambda: Protocol(reader_before_claim=True), SWITCH
    ),
    Mistake(
        "only the segment before counts as delivered",
        lambda: Protocol(window=_window(lambda s, at: s.number == at.number - 1)),
        CALM,
        SWITCHED_HELD + "close as planned\ng2 seals 2\ngive the end 2\nA reports\nopen 3\n"
        "A follows to 3\n",
    ),
    Mistake(
        "dropped segments are forgotten",
        lambda: Protocol(rules=with_edit(Action.DROP, _drop_without_floor)),
        CALM,
        SWITCHED_HELD,
    ),
    Mistake(
        "the client takes acks of what it reported",
        lambda: Protocol(acks_after_report=True),
        SWITCH,
    ),
    Mistake("a report of an earlier segment counts", _any_report, SWITCH, SWITCHED),
    Mistake(
        "a group without an end is chosen again",
        lambda: Protocol(rules=_forgets_unended()),
        CALM,
        WITHOUT_END
        + "g1's slave starts\ng1's master starts\ng1 replicates\ng1's slave is in sync\n"
        "close as planned\ng2 seals 2\ngive the end 2\nA reports\n",
    ),
    Mistake(
        "a new sender starts after what is known",
        lambda: Protocol(rules=_from_known_end()),
        CALM,
        BOTH_DEAD + "the first sender's node goes\n",
    ),
    Mistake(
        "any sender's batch is taken", lambda: Protocol(judge=_any_sender), SWITCH, ANOTHER_SENDER
    ),
    Mistake(
        "a master keeps its view over a term",
        lambda: Protocol(view_outlives_term=True),
        CALM,
        TAKEN_OVER + "close as planned\ng2 seals 2\ngive the end 2\nB reports\nopen 3\n",
    ),
    Mistake(
        "consumers see what one member holds", lambda: Protocol(shows_unheld=True), CALM, SHOWN
    ),
    Mistake(
        "consumers see more of a closing segment",
        lambda: Protocol(shows_closing=True),
        Faults(delays=1),
        ACKED + "close as planned\ng1 seals 1\n",
    ),
    Mistake(
        "progress of a removed group counts for the next one",
        lambda: Protocol(keeps_progress=True),
        Faults(starts=1),
        ACKED + "g1 delivers 1\n",
    ),
    Mistake(
        "an end falls below what a new sender was shown",
        lambda: Protocol(rules=without(g.NOTHING_LOST)),
        Faults(wipes=1),
        READER_AHEAD + "the first sender's node goes\nopen 2\nB follows to 2\n",
        Size(messages=3),
    ),
    Mistake(
        "what was consumed above a lower end comes again",
        lambda: Protocol(rules=with_edit(Action.LOWER_END, _forgets_passed)),
        Faults(wipes=1, switches=1),
        READER_AHEAD + "A reports\nopen 2\nA follows to 2\nA sends 2\n",
    ),
    Mistake(
        "an end falls below what was consumed and not sent again",
        lambda: Protocol(rules=without(g.SENT_AGAIN)),
        Faults(expiries=1, wipes=1),
        READER_AHEAD,
        TWO,
    ),
    Mistake(
        "progress passes a known end that no member reaches",
        lambda: Protocol(shown_end=_as_if_reached),
        Faults(expiries=1),
        REPEATS_LOST,
        Size(messages=3),
    ),
    Mistake(
        # With 3 messages nothing follows the skipped one: only `properties._skips` finds it.
        "progress stays above a journal that lost records",
        lambda: Protocol(keeps_lost_progress=True),
        SWITCH,
        READER_FORGOTTEN,
        Size(messages=3, segments=3, senders=1),
    ),
    Mistake(
        "consumers see orphans above the end",
        lambda: Protocol(window=_above_the_end),
        CALM,
        ORPHANED,
    ),
)
"""The mistakes; each has to be found."""
