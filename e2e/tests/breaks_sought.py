"""Histories in which a consumer group that was moved to a time gets too little, or too much."""

from collections.abc import Sequence
from typing import Final

from e2e.checks.findings import Check
from e2e.history.client_events import OrderedSought
from e2e.history.cluster_events import FaultKind
from e2e.tests.breaks import breaks
from e2e.tests.breaks_ordered import CHAIN, Chain
from e2e.tests.kit import MASTER, Kit

SEEKERS: Final = "seekers"
LATER: Final = 1000
"""Milliseconds after records 1001 and 1002 were stored; 1003 and 1004 come still later."""
FUTURE: Final = 60_000


def moved(to_ms: int, came: Sequence[int], *, late: bool = False) -> Kit:
    """The group is moved before record 1004 is sent, to a time counted from the first records.

    `late`: it is moved when all are stored.
    """
    chain = Chain()
    since_ms = chain.kit.writer.now_ms
    chain.open("copier")
    chain.send("copier", [1001, 1002, 1003])
    chain.store("copier", 1, [1001, 1002])
    chain.kit.writer.now_ms = since_ms + 2 * LATER
    chain.store("copier", 1, [1003], sequence=3)
    sought = SEEKERS, CHAIN, since_ms + to_ms
    if not late:
        chain.kit.add(OrderedSought(chain.kit.at(), chain.kit.at(), *sought))
    chain.send("copier", [1004])
    chain.store("copier", 1, [1004], sequence=4)
    if late:
        chain.kit.add(OrderedSought(chain.kit.at(), chain.kit.at(), *sought))
    chain.deliver(1, [1001, 1002, 1003, 1004])
    for record in came:
        chain.deliver(1, [record], record - 1001, readers=SEEKERS)
    return chain.end()


@breaks(Check.I13)
def a_record_stored_after_the_sought_time_that_is_left_out() -> Kit:
    return moved(LATER, [1004])


@breaks(Check.I13)
def a_record_behind_the_first_one_that_is_left_out() -> Kit:
    return moved(0, [1001, 1003, 1004])


@breaks(Check.I13)
def a_last_record_left_out_while_a_clock_was_set() -> Kit:
    kit = moved(0, [1001, 1002], late=True)
    kit.fault(FaultKind.CLOCK, MASTER)
    return kit


@breaks(Check.I13)
def a_seek_after_which_the_last_record_does_not_come() -> Kit:
    return moved(LATER, [1003])


@breaks(Check.I13)
def a_seek_to_the_future_after_which_nothing_comes() -> Kit:
    return moved(FUTURE, [])


@breaks(Check.I13)
def a_seek_to_a_time_that_goes_to_the_start() -> Kit:
    return moved(LATER, [1001, 1002, 1003, 1004])


@breaks(Check.I13)
def a_first_record_after_a_seek_in_another_queue() -> Kit:
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002])
    chain.store("copier", 1, [1001, 1002])
    chain.kit.add(OrderedSought(chain.kit.at(), chain.kit.at(), SEEKERS, CHAIN, 0))
    chain.deliver(1, [1001, 1002])
    chain.deliver(1, [1001, 1002], queue=1, readers=SEEKERS)
    return chain.end()
