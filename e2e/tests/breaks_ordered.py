"""Histories in which an ordered topic is not consumed as it was sent: check I13."""

from collections.abc import Sequence

from e2e.checks.findings import Check
from e2e.history.events import (
    FaultKind,
    OrderedDelivered,
    OrderedOpened,
    OrderedSent,
    OrderedStored,
    PhaseName,
)
from e2e.tests.breaks import breaks
from e2e.tests.kit import MASTER, Kit, sound

CHAIN, LEDGER = "chain", "ledger"


class Chain:
    """One queue of an ordered topic: segment 1 in g1, segment 2 in g2, and so on."""

    def __init__(self, *, drained: bool = True) -> None:
        self.kit = sound()
        self.drained = drained

    def open(self, who: str, last: int = -1) -> None:
        self.kit.add(OrderedOpened(self.kit.at(), who, CHAIN, (last,)))

    def send(self, who: str, records: Sequence[int]) -> None:
        for record in records:
            self.kit.add(OrderedSent(self.kit.at(), who, CHAIN, record, "k"))

    def store(self, who: str, segment: int, records: Sequence[int], sequence: int = 1) -> None:
        for at, record in enumerate(records):
            stored = OrderedStored(
                *(self.kit.at(), who, CHAIN, record, 0, segment),
                *(sequence + at, f"g{segment}", at),
            )
            self.kit.add(stored)

    def deliver(self, segment: int, records: Sequence[int], offset: int = 0) -> None:
        for at, record in enumerate(records):
            event = OrderedDelivered(
                *(self.kit.at(), "o1", LEDGER, CHAIN, 0, segment),
                *(f"g{segment}", offset + at, record),
            )
            self.kit.add(event)

    def end(self) -> Kit:
        if self.drained:
            self.kit.phase(PhaseName.DRAINED)
        return self.kit


def switched(delivered: Sequence[tuple[int, Sequence[int]]]) -> Kit:
    """1001 to 1003 are stored in segment 1, and 1003 to 1004 (again, on) in segment 2."""
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002, 1003, 1004])
    chain.store("copier", 1, [1001, 1002])
    chain.store("copier", 2, [1003, 1004], sequence=3)
    for segment, records in delivered:
        offset = {1001: 0, 1002: 1, 1003: 2 if segment == 1 else 0, 1004: 1}.get(records[0], 7)
        chain.deliver(segment, records, offset)
    return chain.end()


def handed_on(last: int = 1002) -> Chain:
    """The deputy goes on after record 1002 of the copier."""
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002])
    chain.store("copier", 1, [1001, 1002])
    chain.open("deputy", last)
    chain.send("deputy", [1003, 1004])
    chain.store("deputy", 2, [1003, 1004])
    return chain


def sound_chains() -> list[Kit]:
    """Histories without a fault: a record stored twice, a hand-over of the sends, a redelivery."""
    change = handed_on()
    change.deliver(1, [1001, 1002])
    change.deliver(1, [1002], 1)
    change.deliver(2, [1003, 1004])
    return [
        switched([(1, [1001, 1002, 1003]), (2, [1004])]),
        switched([(1, [1001, 1002]), (2, [1003]), (2, [1004])]),
        change.end(),
    ]


def emptied(kit: Kit) -> Kit:
    """The same history with an emptied disk: gaps are excused."""
    kit.fault(FaultKind.DISK_EMPTY, MASTER)
    return kit


@breaks(Check.I13)
def a_record_that_came_from_two_segments() -> Kit:
    return switched([(1, [1001, 1002, 1003]), (2, [1003]), (2, [1004])])


@breaks(Check.I13)
def a_gap_at_a_switch() -> Kit:
    chain = Chain(drained=False)
    chain.open("copier")
    chain.send("copier", [1001, 1002, 1003])
    chain.store("copier", 1, [1001])
    chain.deliver(1, [1001])
    chain.deliver(2, [1003])
    return chain.end()


@breaks(Check.I13)
def an_acknowledged_record_that_no_segment_delivers() -> Kit:
    return switched([(1, [1001, 1002, 1003])])


@breaks(Check.I13)
def acknowledged_records_in_a_queue_that_delivers_nothing() -> Kit:
    return switched([])


@breaks(Check.I13)
def a_segment_that_came_before_an_earlier_one() -> Kit:
    chain = handed_on()
    chain.deliver(2, [1003, 1004])
    chain.deliver(1, [1001, 1002])
    return chain.end()


@breaks(Check.I13)
def two_records_in_another_order_in_one_segment() -> Kit:
    return switched([(1, [1002, 1001, 1003]), (2, [1004])])


@breaks(Check.I13)
def a_fenced_sender_whose_record_came_after_a_later_senders() -> Kit:
    chain = handed_on()
    chain.send("copier", [1005])
    chain.deliver(1, [1001, 1002])
    chain.deliver(2, [1003, 1004, 1005])
    return chain.end()


@breaks(Check.I13)
def a_sender_that_went_on_after_the_wrong_record() -> Kit:
    chain = handed_on(last=1001)
    chain.deliver(1, [1001, 1002])
    chain.deliver(2, [1003, 1004])
    return chain.end()


@breaks(Check.I13)
def a_message_of_an_ordered_topic_that_no_sender_sent() -> Kit:
    return switched([(1, [1001, 1002, 1003]), (2, [1004]), (2, [1077])])


@breaks(Check.I13)
def sequences_that_do_not_follow_the_order_of_sending() -> Kit:
    kit = switched([(1, [1001, 1002, 1003]), (2, [1004])])
    for at, event in enumerate(kit.events):
        if isinstance(event, OrderedStored) and event.record == 1004:
            kit.events[at] = event._replace(sequence=2)
    return kit
