"""The guards of a master whose journal was lost while other members lost theirs too. Pure.

They follow the rules of `guards.py`. On Kubernetes a lost volume is replaced by an empty one, so an
empty journal does not mean that a person has given up what was acknowledged (ADR 0058).
"""

from dataclasses import replace
from typing import Final

from fmqcore.failover.context import Case, Guard
from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId
from fmqcore.policy import Flush, HowMany, slaves_to_hear

BEGIN_AGAIN: Final = (
    "to go on without what is lost, start all members, take those that are lost for good out of "
    "the configuration, and then run `fmq cluster begin-again {group} --epoch {epoch}`"
)
"""Part of each reason that only a person can mend."""


def lost_journals(case: Case) -> frozenset[BrokerId]:
    """Return the brokers that may have acknowledged with this one and lost their journals too."""
    links = case.evidence.links
    emptied = {b for b in _acknowledgers(case) if b in links and links[b].emptied}
    return frozenset(emptied | _given_up(case))


def _acknowledgers(case: Case) -> frozenset[BrokerId]:
    """Return the in-sync set; if it is empty, all slaves: any may have been its last member."""
    return case.state.isr or frozenset(m.id for m in case.config.slaves)


def _given_up(case: Case) -> set[BrokerId]:
    """Return the lost master in whose place this broker is to open its first term, if any."""
    return (
        {case.state.declared_lost}
        if case.state.required_epoch and case.state.declared_lost
        else set()
    )


def _recoverable(case: Case) -> bool:
    """Every set that can have made an acknowledgement has a member whose journal was not lost.

    Members that are not heard yet count: other guards wait for them. In a promotion this broker was
    in sync with the lost master, so the two alone may have made acknowledgements.
    """
    lost = lost_journals(case)
    if not (case.evidence.unproven and case.evidence.may_lack) or not lost:
        return True  # made whole since, if only in memory: this process has all it acknowledged
    isr, policy = case.state.isr, case.config.policy
    if not isr or policy.how_many is HowMany.NONE or case.evidence.other_policy:
        return False
    policy = replace(policy, flush=Flush.OS_CACHE)  # what this broker had fsynced is lost too
    in_sync = len(isr) + len(_given_up(case))
    return len(isr - lost) >= slaves_to_hear(policy, in_sync, len(case.config.slaves))


RECOVERABLE: Final = Guard(
    "the other members can have what the lost journal held",
    _recoverable,
    "the data directory of {me} was lost or replaced, and so was that of {emptied}: some "
    "acknowledged messages may be in no journal that is left, and {me} does not serve without them "
    "by itself; " + BEGIN_AGAIN,
    Remedy.BEGIN_AGAIN,
)
NOT_EMPTY: Final = Guard(
    "a group that was opened has a journal",
    lambda c: c.evidence.journal_epoch > 0,
    "the group was in service before, and the journal of {me} is empty: its data directory was "
    "lost or replaced, and no slave has given anything back; " + BEGIN_AGAIN,
    Remedy.BEGIN_AGAIN,
)
