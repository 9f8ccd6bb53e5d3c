"""Recovery at boundaries.

A truncation at a segment's first byte, a reset to an earlier position, the last batch of a journal,
and what a checkpoint keeps of them.
"""

import pytest

from fmqcore.batch.header import BatchFault, BatchType
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import replay, survey
from fmqcore.journal.scan import Blank, Cursor, Fault, Scan
from fmqcore.journal.segments import MIN_SEGMENT, index_name, segment_name
from fmqcore.journal.state import JournalState
from fmqcore.policy import MIXED
from fmqcore.tests.journal.writer import DeafWriter, JournalWriter, sample

P = Position


@pytest.mark.parametrize("new_start", [0, MIN_SEGMENT, 5 * MIN_SEGMENT, 9 * MIN_SEGMENT])
def test_interrupted_reset_drops_all_wherever_it_restarts(new_start: int) -> None:
    """D5: everything from 0 on is void, even above the position where the journal restarts."""
    writer = sample(base=3 * MIN_SEGMENT, batches=120)
    at = P(new_start)
    void = Checkpoint(at, at, P(7), 0, False, (), (), drop_from=P(0))
    listing = [(name, len(data)) for name, data in writer.files().items()]
    found = survey(listing, decode_checkpoint(encode_checkpoint(void)))
    assert (found.segments, found.journal_start, found.refusal) == ((), new_start, None)
    assert sorted(found.leftovers) == sorted(name for name, _ in listing)
    assert (found.durable_end, found.cut_at) == (new_start, None)


def test_truncation_at_a_segment_start_removes_that_segment() -> None:
    """The truncated part is gone; nothing was torn, and the previous segment stays sealed."""
    writer = sample(batches=120)
    bases = list(writer.segments)
    checkpoint = writer.checkpoint(drop_from=bases[2])
    found = survey([(n, len(d)) for n, d in writer.files().items()], checkpoint)
    assert [s.base for s in found.segments] == bases[:2]
    assert segment_name(bases[2]) in found.leftovers
    assert index_name(bases[1]) not in found.leftovers, "it is as good as before"
    assert (found.durable_end, found.cut_at, found.refusal) == (bases[2], None, None)


def test_unknown_gap_ends_at_the_first_segment_known_as_lost() -> None:
    """Each known segment is reported for itself; the gap before them has its own finding."""
    one, last = MIN_SEGMENT, 4 * MIN_SEGMENT
    known = tuple(P(n * one) for n in (0, 2, 3, 4))
    checkpoint = Checkpoint(P(0), P(last), P(0), 0, False, known)
    found = survey([(segment_name(P(at)), one) for at in (0, last)], checkpoint)
    assert [(hole.position, hole.end) for hole in found.missing] == [
        (one, 2 * one),
        (2 * one, 3 * one),
        (3 * one, last),
    ]


def test_segments_below_the_newest_are_durable() -> None:
    """D2: a segment is synced before the next starts; the checkpoint is older than that."""
    writer = sample(batches=120)
    first = next(h for h in writer.headers if h.type == BatchType.DATA)
    listing = [(n, len(d)) for n, d in writer.files().items()]
    for checkpoint in (None, writer.checkpoint(durable_end=first.end)):
        assert survey(listing, checkpoint).durable_end == writer.last_base
    assert survey(listing, writer.checkpoint()).durable_end == writer.end


def test_journal_ending_with_control_batch_is_fully_indexed() -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.data(7, 0, [b"v"])
    writer.topic(7, "orders", 4)
    data = bytes(writer.segments[P(0)])
    index = SegmentIndex(P(0))
    stop = replay(Scan(data + bytes(96), P(0), Cursor(P(0), 0)), JournalState(), index)
    assert stop == Blank(writer.end)
    assert index.end == writer.end


def test_unknown_control_payload_is_reported_with_its_position() -> None:
    writer = DeafWriter()
    bad = writer.append(BatchType.CONFIG, b"\x63\x00")
    scan = Scan(bytes(writer.segments[P(0)]), P(0), Cursor(P(0), 0))
    stop = replay(scan, JournalState())
    assert isinstance(stop, Fault)
    assert (stop.position, stop.fault) == (bad.position, BatchFault.CONTENT)


@pytest.mark.parametrize("acked_under", [0, 1, 0xABCDE, MIXED])
@pytest.mark.parametrize("flags", [False, True])
def test_checkpoint_keeps_the_acknowledgement_policy(acked_under: int, flags: bool) -> None:
    """F18: otherwise a master trusts slaves by a policy under which nothing was promised."""
    ends = P(1), P(2), P(3)
    known = Checkpoint(*ends, 4, flags, (), lacks=flags, tail_lost=flags, acked_under=acked_under)
    assert decode_checkpoint(encode_checkpoint(known)) == known
