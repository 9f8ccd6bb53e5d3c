"""How a sender stands in the line, and the records before its first one."""

from dataclasses import replace

import pytest

from fmqcore.ids import Offset
from fmqcore.ordered.chain_ends import chain_end
from fmqcore.ordered.evidence import Action, Duty, SenderReport, Serving
from fmqcore.ordered.senders import Standing, records_before, standing_of
from fmqcore.tests.ordered.chains import ALL_WHOLE, DONE, EMPTY, ENDED, G1, G2, OPEN, UNKNOWN, made
from fmqcore.zk.chain import Chain, Floor, RecordPlace, Segment, Sender

A, B = "copier-1", "copier-2"
LATER = replace(OPEN, sender=Sender(B, 2))

STANDINGS: list[tuple[str, Chain, tuple[str, ...], str, int, Standing]] = [
    ("alone, before any segment", EMPTY, (A,), A, 0, Standing.NEXT),
    ("named by the chain", OPEN, (A, B), A, 1, Standing.ACTIVE),
    ("named while it closes", ENDED, (A,), A, 1, Standing.ACTIVE),
    ("behind another", OPEN, (A, B), B, 0, Standing.WAITING),
    ("first, the chain has not gone on yet", OPEN, (B,), B, 0, Standing.NEXT),
    ("no place, never active", OPEN, (A,), B, 0, Standing.LOST),
    ("no place, still named", OPEN, (B,), A, 1, Standing.LOST),
    ("no place, another is active", LATER, (B,), A, 1, Standing.FENCED),
    ("a place, but another has become active", LATER, (A, B), A, 1, Standing.FENCED),
    ("the earlier sender's session, for the first time", LATER, (B,), A, 0, Standing.LOST),
]


@pytest.mark.parametrize(
    ("chain", "line", "sender", "epoch", "standing"),
    [row[1:] for row in STANDINGS],
    ids=[row[0] for row in STANDINGS],
)
def test_standing_of_a_sender(
    chain: Chain, line: tuple[str, ...], sender: str, epoch: int, standing: Standing
) -> None:
    assert standing_of(chain, line, sender, epoch) is standing


def third() -> Chain:
    """Two ended segments of one sender, the second sends record 3 again; then another sender."""
    first = replace(DONE.segments[0], end=(14,))  # sequences 1 to 4
    second = replace(DONE.segments[1], end=(2,))  # sequences 3 and 4
    segments = (first, second, Segment(3, G1, 2, (5,), (20,)))
    return replace(DONE, segments=segments, sender=Sender(B, 2))


def test_last_record_is_of_the_newest_segment_that_has_one() -> None:
    assert records_before(third(), 2) == {0: RecordPlace(1, 4, 2, G2, Offset(1))}


def test_new_sender_goes_on_below_records_that_a_group_lost() -> None:
    """Acknowledged were 5 to 9 in g1; all its disks were lost, and it started again, empty.

    The sender that is there knows it, so a person decides. One that comes after it is shown the
    last record that is there: it sends 5 to 9 again, and none is left out.
    """
    before = Segment(1, G2, 1, (1,), (0,), end=(4,))
    closing = replace(OPEN, segments=(before, Segment(2, G1, 1, (5,), (0,))), closing="g1 is gone")
    given = made(Duty.END, closing, group=G1, serving=Serving.MASTER, sealed={2: (0,)})
    assert given.action is Action.GIVE_END
    assert given.edit is not None
    report = SenderReport(A, 2, (10,))
    waits = made(Duty.SEND, given.edit, line=(A, B), report=report, groups=ALL_WHOLE)
    assert waits.action is Action.WAIT
    assert "restart the sender if it can send again all after its `last` record" in waits.reason
    opened = made(Duty.SEND, given.edit, line=(B,), groups=ALL_WHOLE)
    assert opened.edit is not None
    assert opened.edit.segments[-1].first_sequence == (5,)
    assert records_before(opened.edit, 2) == {0: RecordPlace(1, 4, 1, G2, Offset(3))}
    assert not opened.edit.segments[1].loss, "no person was asked, and nothing is left out"


def test_last_record_may_lie_in_an_earlier_segment() -> None:
    chain = third()
    empty = replace(chain.segments[1], end=(0,))  # the sender went before it sent anything again
    chain = replace(chain, segments=(chain.segments[0], empty, chain.segments[2]))
    assert records_before(chain, 2) == {0: RecordPlace(1, 4, 1, G1, Offset(13))}


def test_orphans_above_an_end_are_no_last_record() -> None:
    chain = third()
    beyond = replace(chain.segments[2], first_sequence=(6,))
    assert records_before(replace(chain, segments=(*chain.segments[:2], beyond)), 2) == {}


def test_last_record_is_of_the_newest_sender_below_an_older_one() -> None:
    """The first sender's end was not known when the second one started; it is higher."""
    first = Segment(1, G1, 1, (1,), (0,), (9,))
    second = Segment(2, G2, 2, (1,), (0,), (3,))
    idle = Segment(3, G2, 3, (10,), (3,), (3,))
    segments = (first, second, idle, Segment(4, G1, 4, (10,), (9,)))
    chain = replace(DONE, segments=segments, sender=Sender(B, 4))
    assert records_before(chain, 4) == {0: RecordPlace(2, 3, 2, G2, Offset(2))}


def test_a_dropped_segment_does_not_stand_for_an_unknown_end() -> None:
    unknown = replace(UNKNOWN.segments[0], number=2)
    chain = replace(UNKNOWN, segments=(unknown,), floor=Floor(1, 1, (2,)))
    assert chain_end(chain) is None
    known = replace(unknown, end_unknown=False, end=(14,))
    assert chain_end(replace(chain, segments=(known,))) == known.last_sequence


def test_last_record_is_known_once_its_segment_is_dropped() -> None:
    """A sender that sends nothing comes between; consumers have read all before it."""
    idle = Segment(4, G2, 3, (5,), (2,))
    segments = (*third().segments[:2], replace(third().segments[2], end=(20,)), idle)
    read = replace(third(), segments=segments, sender=Sender("c-1", 3), heads=(("app", (4,)),))
    dropped = made(Duty.TIDY, read).edit
    assert dropped is not None
    assert dropped.segments == (idle,)
    assert records_before(dropped, 3) == {0: RecordPlace(1, 4, 2, G2, Offset(1))}
    assert records_before(dropped, 3) == records_before(read, 3)


def test_first_sender_and_unknown_ends_have_no_last_record() -> None:
    assert records_before(OPEN, 1) == {}
    assert records_before(UNKNOWN, 2) == {}
