"""Histories in which an ordered topic is not consumed as it was sent: check I13."""

from collections.abc import Sequence

from e2e.checks.findings import Check
from e2e.history.client_events import (
    OrderedDelivered,
    OrderedHandedOn,
    OrderedLowered,
    OrderedOpened,
    OrderedSent,
    OrderedStored,
)
from e2e.history.cluster_events import FaultKind, PhaseName
from e2e.tests.breaks import breaks
from e2e.tests.kit import MASTER, SLAVE, Kit, sound
from e2e.traffic.values import value_of
from fmqcore.batch.columns import encode
from fmqcore.batch.header import BatchType
from fmqcore.ids import TopicId

CHAIN, LEDGER = "chain", "ledger"
_TOPIC = TopicId(8)


class Chain:
    """Segment 1 of an ordered topic in g1, segment 2 in g2, and so on. g1 has journals."""

    def __init__(self, *, drained: bool = True) -> None:
        self.kit = sound()
        self.drained = drained
        self.kit.writer.topic(_TOPIC, CHAIN, 2)

    def open(self, who: str, *last: int, accepts: bool = False) -> None:
        self.kit.add(OrderedOpened(self.kit.at(), who, CHAIN, last or (-1, -1), accepts))

    def hand_on(self, segment: int, *unended: int) -> None:
        self.kit.add(OrderedHandedOn(self.kit.at(), CHAIN, segment, unended))

    def lower(self, segment: int, *end: int, accepted: bool = False) -> None:
        self.kit.add(OrderedLowered(self.kit.at(), CHAIN, segment, end, accepted))

    def send(self, who: str, records: Sequence[int], queue: int = 0) -> None:
        for record in records:
            self.kit.add(OrderedSent(self.kit.at(), who, CHAIN, record, f"k{queue}"))

    def append(self, records: Sequence[int], queue: int = 0) -> int:
        """Append to the journals of g1, and return the first offset."""
        attrs, payload = encode([value_of(r, 40) for r in records], [b"k"] * len(records))
        writer = self.kit.writer
        offset = writer.state.next_offsets.get((_TOPIC, queue), 0)
        place = {"topic_id": _TOPIC, "queue_id": queue, "base_offset": offset}
        writer.append(BatchType.DATA, payload, attrs=attrs, record_count=len(records), **place)
        return offset

    def store(
        self, who: str, segment: int, records: Sequence[int], sequence: int = 1, queue: int = 0
    ) -> None:
        """Store the records, and acknowledge them."""
        offset = self.append(records, queue) if segment == 1 else 0
        for name in self.kit.names:
            self.kit.ends(name)
        self.acked(who, segment, records, sequence, queue, offset)

    def acked(
        self,
        who: str,
        segment: int,
        records: Sequence[int],
        sequence: int = 1,
        queue: int = 0,
        offset: int = 0,
    ) -> None:
        for at, record in enumerate(records):
            stored = OrderedStored(
                *(self.kit.at(), who, CHAIN, record, queue, segment),
                *(sequence + at, f"g{segment}", offset + at),
            )
            self.kit.add(stored)

    def deliver(
        self,
        segment: int,
        records: Sequence[int],
        offset: int = 0,
        queue: int = 0,
        readers: str = LEDGER,
    ) -> None:
        for at, record in enumerate(records):
            event = OrderedDelivered(
                *(self.kit.at(), "o1", readers, CHAIN, queue, segment),
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
    chain.open("deputy", last, -1)
    chain.send("deputy", [1003, 1004])
    chain.store("deputy", 2, [1003, 1004])
    return chain


def accepted(last: int = -1, *unended: int, accepts: bool = True, late: bool = False) -> Chain:
    """The deputy goes on while the end of the copier's segment is not known.

    `late`: the copier sends 1005 after that, which is in its segment.
    """
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002])
    chain.store("copier", 1, [1001, 1002])
    chain.hand_on(2, *unended)
    chain.open("deputy", last, -1, accepts=accepts)
    chain.send("deputy", [1003, 1004])
    chain.store("deputy", 2, [1003, 1004])
    chain.deliver(1, [1001, 1002])
    if late:
        chain.send("copier", [1005])
        chain.append([1005])
        chain.deliver(1, [1005], 2)
    chain.deliver(2, [1003, 1004])
    return chain


def lost_tail(end: int, *, accepted: bool) -> Chain:
    """The deputy learned of record 1005, which was not acknowledged: segment 1 ends at `end`."""
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001, 1002, 1005])
    chain.store("copier", 1, [1001, 1002])
    chain.open("deputy", 1005, -1)
    chain.lower(1, end, 0, accepted=accepted)
    chain.send("deputy", [1003, 1004])
    chain.store("deputy", 2, [1003, 1004])
    chain.deliver(1, [1001, 1002])
    chain.deliver(2, [1003, 1004])
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
        accepted(-1, 1).end(),
        accepted(1002, 1).end(),
        accepted(-1, 1, late=True).end(),
        lost_tail(2, accepted=True).end(),
    ]


def emptied(kit: Kit, *brokers: str) -> Kit:
    """The same history with emptied disks, which were never filled again."""
    for number, broker in enumerate(brokers, 1):
        kit.fault(FaultKind.DISK_EMPTY, broker, number)
    return kit


def filled_again(kit: Kit, broker: str) -> Kit:
    """The same history with an emptied disk that was filled again."""
    emptied(kit, broker)
    kit.up(broker, 0)
    kit.ends(broker)
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
def a_last_record_that_was_lost_without_consent() -> Kit:
    return lost_tail(2, accepted=False).end()


@breaks(Check.I13)
def an_end_that_was_lowered_below_an_acknowledged_record() -> Kit:
    change = handed_on()
    change.deliver(1, [1001, 1002])
    change.lower(1, 1, 0)
    change.deliver(2, [1003, 1004])
    return change.end()


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


@breaks(Check.I13)
def an_acknowledged_record_that_one_emptied_disk_does_not_excuse() -> Kit:
    return emptied(switched([(1, [1001]), (2, [1003, 1004])]), MASTER)


@breaks(Check.I13)
def a_gap_after_two_disks_were_emptied_one_after_the_other() -> Kit:
    kit = filled_again(switched([(1, [1001]), (2, [1003, 1004])]), SLAVE)
    return emptied(kit, MASTER)


@breaks(Check.I13)
def a_missing_record_of_a_group_that_lost_no_disk() -> Kit:
    return emptied(switched([(1, [1001, 1002]), (2, [1003])]), MASTER, SLAVE)


@breaks(Check.I13)
def a_record_acknowledged_before_the_slave_had_it() -> Kit:
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001])
    chain.kit.ends(SLAVE)
    chain.append([1001])
    chain.kit.ends(MASTER)
    chain.acked("copier", 1, [1001])
    chain.deliver(1, [1001])
    chain.kit.ends(SLAVE)
    return chain.end()


@breaks(Check.I13)
def an_acknowledged_record_that_is_not_in_the_journals() -> Kit:
    chain = Chain()
    chain.open("copier")
    chain.send("copier", [1001])
    chain.acked("copier", 1, [1001])
    chain.deliver(1, [1001])
    return chain.end()


@breaks(Check.I13)
def a_sender_that_stored_in_another_queue_after_it_was_fenced() -> Kit:
    chain = handed_on()
    chain.send("copier", [1005], queue=1)
    chain.store("copier", 3, [1005], queue=1)
    chain.deliver(1, [1001, 1002])
    chain.deliver(2, [1003, 1004])
    chain.deliver(3, [1005], queue=1)
    return chain.end()


@breaks(Check.I13)
def two_senders_that_share_a_segment() -> Kit:
    chain = handed_on()
    chain.store("deputy", 1, [1003], queue=1)
    chain.deliver(1, [1001, 1002])
    chain.deliver(2, [1003, 1004])
    return chain.end()


@breaks(Check.I13)
def a_sender_that_did_not_accept_an_unknown_end() -> Kit:
    return accepted(-1, 1, accepts=False).end()


@breaks(Check.I13)
def a_sender_that_did_not_learn_a_known_last_record() -> Kit:
    return accepted(-1).end()


@breaks(Check.I13)
def a_sender_that_learned_no_last_record_of_a_segment() -> Kit:
    return accepted(1001, 1).end()


@breaks(Check.I13)
def a_record_sent_late_into_a_segment_that_had_ended() -> Kit:
    return accepted(1005, late=True).end()


@breaks(Check.I13)
def an_acknowledged_record_sent_after_an_accepting_sender_had_the_role() -> Kit:
    chain = accepted(-1, 1, late=True)
    for name in chain.kit.names:
        chain.kit.ends(name)
    chain.acked("copier", 1, [1005], sequence=3, offset=2)
    return chain.end()
