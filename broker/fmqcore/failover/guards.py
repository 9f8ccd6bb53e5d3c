"""The named guards of the failover table: each asks one question about a case. Pure.

`unmet` is the sentence that people read in `reason` while the guard does not hold; it may name
{me}, {group}, {master}, {reader}, {wanted}, {lost}, {newer} and {isr}.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fmqcore.failover.context import Case, Guard, newer_journals
from fmqcore.failover.evidence import Remedy
from fmqcore.failover.lost_journals import BEGIN_AGAIN
from fmqcore.failover.term_rules import is_best, reads, record_term
from fmqcore.ids import BrokerId, Epoch
from fmqcore.policy import Flush, HowMany, SlaveCounts, slaves_to_hear
from fmqcore.zk.group_state import Mode


def successor(case: Case) -> BrokerId | None:
    """Return a live, in-sync, caught-up slave that can take the reads; None if there is none.

    Both that slave and the master must be configured to serve reads.
    """
    links, evidence = case.evidence.links, case.evidence
    able = [
        broker
        for broker in sorted(case.state.isr)
        if broker in evidence.live and broker in links and reads(case.config, broker)
        if links[broker].connected and links[broker].caught_up
    ]
    return able[0] if able and reads(case.config, case.state.master) else None


# ---- this broker and ZooKeeper

SESSION: Final = Guard(
    "this broker's session is live and announced",
    lambda c: c.evidence.session_live,
    "{me} has no live ZooKeeper session: it changes nothing",
)
NOT_HELD: Final = Guard(
    "this broker does not hold this term",
    lambda c: c.evidence.held != c.state.epoch,
    "{me} serves as master",
)
HELD: Final = Guard(
    "this broker holds this term",
    lambda c: c.evidence.held == c.state.epoch and not _is_frozen(c),
    "{me} does not hold this term",
)
STATE_CURRENT: Final = Guard(
    # A claim would reuse an epoch, and show readers an epoch below one that they have seen.
    # A term opened beside a newer journal would reuse an epoch that it has, and diverge.
    "no journal that is there has an epoch that the state lacks",
    lambda c: not newer_journals(c),
    "{newer} holds a newer epoch than the group's state in ZooKeeper: that state was restored from "
    "an older backup, or is another group's; with all members running, fmq cluster begin-again "
    "{group} says how to go on above it",
    Remedy.BEGIN_AGAIN,
)

# ---- as master: the conditions for opening a term


def _all_heard(case: Case, brokers: Iterable[BrokerId]) -> bool:
    links = case.evidence.links
    return all(b in links and links[b].heard for b in brokers)


def _enough_heard(case: Case) -> bool:
    """The heard slaves meet every set of slaves that can have made an acknowledgement.

    In two cases every live in-sync slave must be heard, even if no acknowledgement needed a slave.
    First, a tail that could not be read may have been durable, acknowledged and damaged since; only
    a slave can distinguish it from an unfinished write. Second, a master that acknowledges before
    it fsyncs may have lost in a power failure what its slaves hold and served as committed. A term
    opened without those records would leave the slaves ahead for ever: nothing below a known commit
    end is truncated (R5). Slaves that an acknowledgement needed are waited for even if they are not
    live: a lone master with a damaged tail would truncate their good copies when they return.

    F18: a slave that lost power together with the master and did not fsync before it counted
    proves nothing by what it lacks: then all are waited for, because one may have kept the records.
    """
    if not case.evidence.may_lack:
        return True
    links, isr = case.evidence.links, case.state.isr
    heard = {b for b in isr if b in links and links[b].heard}
    if heard >= isr:
        return True
    if case.evidence.other_policy:  # it says nothing of who made an acknowledgement
        return False
    policy = case.config.policy
    if case.evidence.unproven and policy.how_many is HowMany.NONE:
        return False  # whatever was acknowledged was on one disk alone, and may be at any of them
    lossy = case.evidence.tail_lost or policy.flush is not Flush.FSYNC
    if lossy and not heard >= isr & case.evidence.live.keys():
        return False
    policy = replace(policy, flush=Flush.OS_CACHE) if lossy else policy
    fsyncs = policy.counts is SlaveCounts.DURABLE
    sure = {b for b in heard if links[b].whole or (fsyncs and links[b].kept)}
    return len(sure) >= slaves_to_hear(policy, len(isr), len(case.config.slaves))


def _journal_whole(case: Case) -> bool:
    """The journal has the last opened term: the state names one once its EPOCH batch is durable."""
    state = case.state
    opened = state.epoch if state.mode is Mode.MASTER else Epoch(state.epoch - 1)
    return _has_term(case, opened)


def _journal_kept(case: Case) -> bool:
    """As `_journal_whole`, but correct after any number of claims."""
    return _has_term(case, case.state.last_opened_epoch or Epoch(1))


def _has_term(case: Case, opened: Epoch) -> bool:
    state = case.state
    if state.required_epoch:
        return True  # it opened none yet: `GATHERED`
    if state.isr and _all_heard(case, state.isr):
        return True  # they gave back all that there is
    return case.evidence.journal_epoch >= opened and _not_by_chance(case)


def _not_by_chance(case: Case) -> bool:
    """The journal's content is the broker's own, or from slaves that have everything (ADR 0043).

    After a lost disk the journal is a copy from whichever slave came first, and a slave that has
    long been out of sync has that term, too. While no slave is in sync, any member may have what
    this broker alone acknowledged.
    """
    if not case.evidence.unproven:
        return True
    if case.state.isr:
        return case.config.policy.how_many is not HowMany.NONE and _enough_heard(case)
    return _all_heard(case, (m.id for m in case.config.slaves))


def _gathered(case: Case) -> bool:
    """The new master has all that the old one had, or all that any other member may have.

    Every member is asked, in sync or not: an acknowledgement was made by the in-sync set of that
    time. A person takes a member that is gone for good out of the configuration.
    """
    evidence, lost = case.evidence, case.state.declared_lost
    # F16: otherwise a term could be opened without records that only one member has.
    base = case.state.required_epoch
    if evidence.journal_epoch >= base and not (base and evidence.unproven):  # ADR 0043
        return True
    others = (m.id for m in case.config.slaves if m.id != lost)
    return evidence.journal_epoch > 0 and _all_heard(case, others)


def _all_heard_if_records(case: Case) -> bool:
    live, slaves = case.evidence.live, [m.id for m in case.config.slaves]
    stored = case.evidence.has_records or any(live[b].epoch for b in slaves if b in live)
    return not stored or _all_heard(case, slaves)


def _all_heard_again(case: Case) -> bool:
    # The epoch of a NEW group is not 0 only if a person let it begin again.
    return case.state.epoch == 0 or _all_heard(case, (m.id for m in case.config.slaves))


def _reader_heard(case: Case) -> bool:
    link = case.evidence.links.get(case.state.reader)
    return link is not None and link.heard


def _record_in(case: Case) -> bool:
    record = case.evidence.record
    return (
        record is not None
        and record.term == record_term(case.state)
        and record.reader == case.state.reader
    )


def lacks_served(case: Case) -> bool:
    """Whether a reader of this takeover may have served records that this journal lacks.

    What was kept is a prefix of what the journal was before the crash, so comparing positions is
    enough. A term that this broker tried to open, in vain, lies above it: its batches take the
    positions of what is missing.
    """
    return case.evidence.kept_end < case.state.max_delivered_position


def reader_wait_ms(case: Case) -> int:
    """How long to wait for a reader that is gone: longer if it may have served what is missing."""
    params = case.params
    return params.served_wait_ms if lacks_served(case) else params.takeover_wait_ms


def _served_is_in(case: Case) -> bool:
    """What readers served is here or was waited for: an earlier reader may come back with more."""
    if not lacks_served(case):
        return True
    since = case.evidence.lacking_since_ms
    if _all_heard(case, case.state.isr):
        return True  # no slave has it
    waited = since is not None and case.now_ms - since >= case.params.served_wait_ms
    return waited and not case.config.strict_takeover


def _reader_gone_long(case: Case) -> bool:
    since = case.evidence.reader_gone_since_ms
    return since is not None and case.now_ms - since >= reader_wait_ms(case)


ENOUGH_HEARD: Final = Guard(
    "enough in-sync slaves heard after an unclean start",
    _enough_heard,
    "{me} stopped uncleanly and may lack what it acknowledged: it waits to hear its in-sync "
    "slaves ({isr})",
)
JOURNAL_WHOLE: Final = Guard(
    "the journal has the term that this broker opened last",
    _journal_whole,
    "the journal of {me} lacks a term that it had opened, so its data directory was lost or "
    "replaced: it waits for its in-sync slaves ({isr}; if no slave is in sync, for every member) "
    "to give back what they have; with none of them left: " + BEGIN_AGAIN,
    Remedy.BEGIN_AGAIN,
)
JOURNAL_KEPT: Final = replace(
    # F17: otherwise acknowledged records would be given up although a member still has them.
    JOURNAL_WHOLE,
    name="the journal has the term opened before the claim",
    holds=_journal_kept,
)
GATHERED: Final = Guard(
    "the takeover reader has heard all members, or has all itself",
    _gathered,
    "{me} is to be master and waits to hear every other member but {lost}",
)
ALL_HEARD_IF_RECORDS: Final = Guard(
    "a journal with records under a new state: every slave heard",
    _all_heard_if_records,
    "the journal of {me}, or of a slave, has records, and ZooKeeper knows no state of this group: "
    "{me} waits to hear every configured slave",
)
ALL_HEARD_AGAIN: Final = Guard(
    # F19: the decision is about journals that are lost, not about members that start later.
    "a group that begins again: every slave heard",
    _all_heard_again,
    "a person let group {group} begin again: {me} waits to hear every configured slave, because "
    "one that is not started may have what is missing; start it, or take it out of the "
    "configuration",
)
RECORD_IN: Final = Guard(
    "the reader's frozen record is in",
    _record_in,
    "{me} waits for reader {reader} to hand over its offsets",
)
SERVED_HERE: Final = Guard(
    "what readers have shown is in the journal",
    lambda c: not lacks_served(c),
    "{me} lacks what reader {reader} may have shown: it waits for {reader}",
)
RECORD_SEALED: Final = Guard(
    "the state holds the reader's whole record",
    lambda c: c.state.offsets_final,
    "{me} waits for reader {reader} to hand over its offsets",
)
READER_HEARD: Final = Guard(
    "nothing of the reader's suffix is missing here",
    _reader_heard,
    "{me} waits for the stream of reader {reader}",
)
READER_GONE_LONG: Final = Guard(
    "the reader is gone for longer than the bound",
    _reader_gone_long,
    "{me} waits for reader {reader}: with its offsets, and with what it served, it returns without "
    "loss",
)
SERVED_IN: Final = Guard(
    "what readers have shown is in the journal, or was waited for",
    _served_is_in,
    "{me} lacks what a reader before {reader} may have shown: it waits for its slaves ({isr})",
)
LENIENT: Final = Guard(
    "a lost takeover record is accepted",
    lambda c: not c.config.strict_takeover,
    "reader {reader} is gone with its offsets and strict_takeover is set: bring {reader} back, or "
    "unset strict_takeover to go on with the offsets known to ZooKeeper",
)
LINKED_HEARD: Final = Guard(
    "every slave that is linked is heard",
    lambda c: all(link.heard for link in c.evidence.links.values() if link.connected),
    "{me} waits for the missing end of the journal from a slave",
)

STOPPING: Final = Guard(
    "this broker was asked to stop",
    lambda c: c.evidence.stopping,
    "{me} serves as master",
)
SUCCESSOR: Final = Guard(
    "a slave can take over the reads at once",
    lambda c: successor(c) is not None,
    "no live in-sync slave may serve reads: no broker serves while {me} is down",
)

# ---- as slave: which brokers are live


def _is_frozen(case: Case) -> bool:
    term = record_term(case.state)
    return term != 0 and case.evidence.frozen == term


def _linked(case: Case) -> bool:
    return case.evidence.upstream_connected and case.evidence.upstream_caught_up


def _not_emptied(case: Case) -> bool:
    """F20: the master may not know of the lost disk, or be unable to change the in-sync set."""
    evidence = case.evidence
    return evidence.journal_epoch > 0 and not (evidence.unproven and evidence.may_lack)


MASTER_GONE: Final = Guard(
    "the master's live node is gone",
    lambda c: c.state.master not in c.evidence.live,
    "master {master} is there",
)
READER_GONE: Final = Guard(
    "the reader's live node is gone",
    lambda c: c.state.reader not in c.evidence.live,
    "{reader} is there and serves reads",
)
MASTER_BACK: Final = Guard(
    "the master is live, and the stream to it is up and caught up",
    lambda c: _linked(c) and c.state.master in c.evidence.live,
    "{reader} serves reads until master {master} is back",
)
LINKED: Final = Guard(
    "the stream to the master is up and caught up",
    _linked,
    "{me} waits for its stream to master {master}",
)
STREAM_DOWN: Final = Guard(
    "this broker's stream to the master is down",
    lambda c: not c.evidence.upstream_connected,
    "master {master} is gone from ZooKeeper but its stream lives: it may serve on",
)
PROMISE_OVER: Final = Guard(
    "this broker's grant to the master has expired",
    lambda c: c.now_ms > c.evidence.promised_until_ms,
    "master {master} is gone; {me} waits until its promise to it runs out",
)
IN_ISR: Final = Guard(
    "this broker is in sync",
    lambda c: c.me in c.state.isr,
    "{me} was not in sync: it must not claim, whoever is gone",
)
HAS_JOURNAL: Final = Guard(
    "the journal was not emptied since this broker was in sync",
    _not_emptied,
    "the disk of {me} was lost or replaced, and no master has filled it again to the end: it must "
    "not claim, it may lack what was acknowledged",
)
SHOWS_ALL: Final = Guard(
    # C2: otherwise consumers start at 0, and their new progress outranks what they had before.
    "the journal was not emptied since this broker served",
    lambda c: (
        c.evidence.journal_epoch > 0
        # Beside a master that is back: it cannot hand over what it does not hold.
        and (_linked(c) or not (c.evidence.unproven and lacks_served(c)))
    ),
    "the disk of {me} was lost or replaced while it served reads: it has nothing to show before "
    "master {master} is back and has filled it again",
)
READS_CONFIGURED: Final = Guard(
    "reads are configured for the master and this broker",
    lambda c: reads(c.config, c.state.master) and reads(c.config, c.me),
    "{me} does not take over: the administrator does not let both {master} and {me} serve reads",
)
READS_HERE: Final = Guard(
    "reads are configured for this broker",
    lambda c: reads(c.config, c.me),
    "{me} does not serve reads on: the administrator does not let it",
)
BEST: Final = Guard(
    "no live claimant is more advanced (or it does not claim)",
    lambda c: (
        c.evidence.checks >= c.params.patience_checks
        or is_best(
            c.me,
            (c.evidence.journal_epoch, c.evidence.journal_end),
            c.config,
            c.state,
            c.evidence.live,
        )
    ),
    "another slave is more advanced and may claim",
)
CHECK_DUE: Final = Guard(
    "the next claim check is due",
    lambda c: c.now_ms >= c.evidence.next_check_ms,
    "{me} checks again before it claims",
)
CHECKS_DONE: Final = Guard(
    "this is the last of the claim checks",
    lambda c: c.evidence.checks + 1 >= c.params.claim_checks,
    "{me} checks again before it claims",
)
FROZEN: Final = Guard(
    "this broker's record of this term is frozen",
    _is_frozen,
    "the offsets of {me} are not frozen",
)
RECORD_FITS: Final = Guard(
    "the frozen record fits into the group's state",
    lambda c: c.evidence.frozen_offsets is not None,
    "the offsets of {me} are too many for ZooKeeper: they stay on its disk",
)
NOT_SERVING: Final = Guard(
    "this broker no longer holds this term, or has frozen it",
    lambda c: not HELD.holds(c),
    "serving reads until master {master} is back",
)
CUT_OFF: Final = Guard(
    "this broker's session and lease are gone",
    lambda c: not c.evidence.session_live and c.evidence.lease_out,
    "serving reads until master {master} is back",
)
