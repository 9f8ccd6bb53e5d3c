"""Histories in which a cluster does what it must not: checks I11 and I12."""

from e2e.checks.findings import Check
from e2e.history.client_events import Committed, Committing, Failed, Left, Seeking, Sought, Unsure
from e2e.history.cluster_events import Ending, PhaseName
from e2e.tests.breaks import breaks
from e2e.tests.kit import (
    MASTER,
    MEMBER,
    NONE,
    READERS,
    SLAVE,
    Kit,
    place,
)
from fmqcore.zk.group_state import Mode

# ---- I11


@breaks(Check.I11)
def a_message_that_waits_for_ever_for_a_member_that_is_gone() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1])
    kit.deliver([2])
    kit.add(Left(kit.at(), MEMBER, READERS, orderly=False))
    kit.drained()
    return kit


@breaks(Check.I11)
def a_send_without_an_outcome() -> Kit:
    kit = Kit()
    kit.send(1)
    return kit


@breaks(Check.I11)
def a_message_that_never_comes() -> Kit:
    kit = Kit()
    kit.produce(3)
    kit.consume([0, 1])
    kit.drained()
    return kit


@breaks(Check.I11)
def a_group_that_is_never_whole_again() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.HEALED)
    kit.wait(70_000)
    kit.phase(PhaseName.OVER)
    return kit


@breaks(Check.I11)
def a_group_that_is_whole_too_late() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.HEALED)
    kit.wait(70_000)
    kit.phase(PhaseName.WHOLE)
    return kit


# ---- I12


def _calm() -> Kit:
    kit = Kit()
    kit.phase(PhaseName.CALM)
    kit.wait(1000)
    kit.produce(3)
    return kit


@breaks(Check.I12)
def a_failover_in_the_calm() -> Kit:
    kit = _calm()
    kit.serves(MASTER, NONE)
    kit.epoch += 1
    kit.state(Mode.SLAVE_CONSUME, SLAVE)
    return kit


@breaks(Check.I12)
def a_slave_leaves_the_in_sync_set_in_the_calm() -> Kit:
    kit = _calm()
    kit.epoch += 1
    kit.state(Mode.MASTER, MASTER, isr=())
    return kit


@breaks(Check.I12)
def an_unknown_outcome_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Unsure(kit.at(), "p", kit.send(1)[0], "no answer"))
    return kit


@breaks(Check.I12)
def a_refusal_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Failed(kit.at(), "p", kit.send(1)[0], "overloaded"))
    return kit


@breaks(Check.I12)
def acks_that_are_not_stored_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Committing(kit.at(), MEMBER, READERS))
    kit.add(Committed(kit.at(), MEMBER, READERS, "not in time"))
    return kit


@breaks(Check.I12)
def a_seek_that_is_refused_in_the_calm() -> Kit:
    kit = _calm()
    kit.add(Seeking(kit.at(), "s", READERS, place(), 0))
    kit.add(Sought(kit.at(), "s", READERS, place(), "no broker serves the reads"))
    return kit


@breaks(Check.I12)
def delivered_twice_in_the_calm() -> Kit:
    kit = _calm()
    kit.wait(6000)
    kit.deliver([0, 1, 2])
    kit.deliver([1])
    return kit


@breaks(Check.I12)
def a_restart_in_the_calm() -> Kit:
    kit = _calm()
    kit.end(SLAVE, Ending.STOPPED, int(kit.writer.end))
    kit.up(SLAVE)
    return kit
