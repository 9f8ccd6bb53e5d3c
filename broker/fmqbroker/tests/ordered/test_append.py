"""A master's ordered batches on a real journal: judged, appended, acknowledged (K13, K14)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.journal.journal import Appended, BatchDraft
from fmqbroker.ordered.chain_lease import Lease
from fmqbroker.ordered.session_batches import SessionBatches
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.ordered_bench import (
    CHANGES,
    G1,
    G2,
    OPEN,
    SLAVE,
    OrderedBench,
    close_of,
    ordered,
    ordered_bench,
)
from fmqbroker.tests.produce_harness import batch
from fmqcore.batch.control import Seal, encode_seal
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.errors import ErrorCode, StorageFull
from fmqcore.ids import BrokerId, Offset, TopicId
from fmqcore.zk.chain import Segment, Sender
from fmqproto.v1 import client_pb2 as wire


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[OrderedBench]:
    async with ordered_bench(tmp_path, segment_bytes=8 << 20) as made:
        yield made


def end(bench: OrderedBench, queue: int = 0) -> int:
    return bench.journal.next_offset(CHANGES.id, queue)


async def refused(line: SessionBatches, wanted: wire.ProduceBatch) -> wire.ProduceAck:
    await line.take([wanted])
    (ack,) = line.take_due()
    assert ack.correlation == wanted.correlation
    return ack


async def test_ack_waits_for_every_configured_member(bench: OrderedBench) -> None:
    bench.group.state = replace(
        bench.group.state, value=replace(bench.group.state.value, isr=frozenset())
    )
    line, first = bench.line(), ordered(11, 3)
    await line.take([first])
    assert end(bench) == 3
    await bench.journal.wait_durable(bench.journal.end)
    bench.commit.advance(bench.journal.end, bench.journal.end)
    assert line.take_due() == [], "the policy and the in-sync set do not count"
    bench.reports(bench.journal.end - 1)
    assert line.take_due() == []
    await bench.all_durable()
    (ack,) = line.take_due()
    assert (ack.correlation, ack.code, ack.base_offset) == (first.correlation, 0, 0)
    assert ack.store_ms > 0
    assert line.bytes == 0


async def test_new_member_is_awaited(bench: OrderedBench) -> None:
    third = BrokerId("g1-2")
    bench.group.configure(bench.ends.me, SLAVE, third)
    line = bench.line()
    await line.take([ordered(11)])
    await bench.all_durable()
    assert line.take_due() == []
    assert bench.replication.reported in line.signals, "it moves no commit end: it is out of sync"
    bench.reports(bench.journal.end, third)
    assert len(line.take_due()) == 1


@pytest.mark.parametrize("again", [False, True], ids=["the same session", "a repeat"])
async def test_member_that_lost_its_disk_does_not_count(bench: OrderedBench, again: bool) -> None:
    """K14: it had the batch in this term, before the ack was given; one disk is left with it."""
    bench.lease.set(Lease())
    line = bench.line()
    await line.take([ordered(11)])
    await bench.all_durable()
    assert line.take_due() == []
    end = bench.journal.end
    bench.reports(0)
    bench.lease.set(Lease(1 << 60, 4, 4))
    if again:
        line = bench.line()
        await line.take([ordered(11)])
    assert line.take_due() == []
    bench.reports(end)
    assert len(line.take_due()) == 1
    bench.reports(0)
    assert bench.ends.all_end() == end, "a segment ends no lower than what was acknowledged"


async def test_each_ack_of_a_turn_needs_all_disks(bench: OrderedBench) -> None:
    """K14: the first batch is on the new disk again, the second one is not yet."""
    line = bench.line()
    await line.take([ordered(11)])
    first_end = bench.journal.end
    await line.take([ordered(12)])
    bench.lease.set(Lease())
    await bench.all_durable()
    assert line.take_due() == []
    bench.reports(first_end)
    bench.lease.set(Lease(1 << 60, 4, 4))
    assert len(line.take_due()) == 1


async def test_position_of_an_earlier_term_does_not_count(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11)])
    await bench.all_durable()
    bench.replication.links[SLAVE].epoch = bench.term.newest
    bench.open_term(2)
    (ack,) = line.take_due()
    assert ack.code == wire.DELIVERY_UNKNOWN
    assert "appended in epoch 1, but the broker is in epoch 2" in ack.message


@pytest.mark.parametrize(
    "lease", [Lease(), Lease(0, 4, 4), Lease(1 << 60, 5, 4)], ids=["none", "over", "changed"]
)
async def test_no_ack_without_the_lease(bench: OrderedBench, lease: Lease) -> None:
    bench.lease.set(lease)
    line = bench.line()
    await line.take([ordered(11)])
    await bench.all_durable()
    assert line.take_due() == []
    assert bench.lease.changed in line.signals
    bench.lease.set(Lease(1 << 60, 5, 5))
    assert [ack.code for ack in line.take_due()] == [0]


async def test_no_ack_of_a_segment_that_closed(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11)])
    await bench.all_durable()
    bench.nodes.put(close_of(OPEN))
    await bench.cache.read("changes")
    (ack,) = line.take_due()
    assert ack.code == wire.SEGMENT_CLOSED
    assert "segment 1 takes no more records: planned" in ack.message
    assert (await refused(line, ordered(12))).code == wire.SEGMENT_CLOSED
    assert end(bench) == 1


async def test_ack_that_never_becomes_due_is_unknown(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11, timeout_ms=500)])
    await bench.journal.wait_durable(bench.journal.end)
    assert line.wait_s() == 0.25
    bench.clock.advance(400)
    assert line.take_due() == []
    assert line.wait_s() == 0.1
    bench.clock.advance(100)
    (ack,) = line.take_due()
    assert ack.code == wire.DELIVERY_UNKNOWN
    assert "it is not durable on g1-1" in ack.message
    assert line.wait_s() is None


async def test_repeat_has_its_first_offset_and_is_not_stored(bench: OrderedBench) -> None:
    await bench.all_durable()  # the slave has reported, and lacks what follows
    line = bench.line()
    await line.take([ordered(11, 2), ordered(13, 2)])
    again = bench.line()
    await again.take([ordered(11, 2), ordered(13, 2), ordered(15)])
    assert end(bench) == 5
    assert again.take_due() == [], "a repeat waits as the first one does"
    await bench.all_durable()
    assert [(a.code, a.base_offset) for a in again.take_due()] == [(0, 0), (0, 2), (0, 4)]
    assert [a.store_ms for a in line.take_due()] != [0, 0]


async def test_repeat_needs_no_producer_table(bench: OrderedBench) -> None:
    line = bench.line()
    sent = [ordered(11 + n) for n in range(20)]
    await line.take(sent)
    assert len(bench.journal.state.producers) == 0
    again = bench.line()
    await again.take(sent[:1])
    await bench.all_durable()
    assert [a.base_offset for a in again.take_due()] == [0]
    assert end(bench) == 20


async def test_queues_have_sequences_of_their_own(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(21, queue=1), ordered(11), ordered(22, 2, queue=1)])
    assert (end(bench, 0), end(bench, 1)) == (1, 3)


REFUSALS: list[tuple[wire.ProduceBatch, wire.ErrorCode, str]] = [
    (ordered(14), wire.OUT_OF_SEQUENCE, "sequence 14 of queue 0 came where 13 is next"),
    (ordered(12, 3), wire.MALFORMED, "send a batch again with the same records"),
    (ordered(13, epoch=2), wire.SENDER_FENCED, "ask for the role again"),
    (ordered(13, queue=2), wire.UNKNOWN_QUEUE, "queue 2: changes has 2"),
    (ordered(13, segment=2), wire.OVERLOADED, "has not read segment 2 yet"),
    (ordered(13, ack=wire.RECEIVED), wire.INVALID_ARGUMENT, "no other level"),
    (ordered(13, payload_crc=1), wire.BAD_CRC, "CRC32C"),
    (ordered(13, deliver_at_ms=9), wire.UNSUPPORTED, "delivers at once only"),
    (batch(1, topic_id=70), wire.INVALID_ARGUMENT, "takes ordered batches of one topic only"),
]


@pytest.mark.parametrize(("wanted", "code", "reason"), REFUSALS)
async def test_refused_batch_is_not_stored(
    bench: OrderedBench, wanted: wire.ProduceBatch, code: wire.ErrorCode, reason: str
) -> None:
    line = bench.line()
    await line.take([ordered(11, 2)])
    await bench.all_durable()
    line.take_due()
    ack = await refused(line, wanted)
    assert ack.code == code
    assert reason in ack.message
    assert ack.expected_sequence == (13 if code == wire.OUT_OF_SEQUENCE else 0)
    assert end(bench) == 2


async def test_ordinary_batch_of_an_ordered_topic_is_refused(bench: OrderedBench) -> None:
    """Offset and sequence would drift apart (K3), also once the topic is noted."""
    await bench.line().take([ordered(11)])
    async with bench.session(5, 0, "orders") as session:
        await session.send(batch(1, topic_id=70, queue_id=0))
        ack = await session.ack()
    assert ack.code is ErrorCode.INVALID_ARGUMENT
    assert "is ordered" in ack.message
    assert end(bench) == 1


async def test_order_stays_while_a_batch_waits_for_a_read(bench: OrderedBench) -> None:
    """The second segment is opened here; its batches are pipelined before it is known."""
    line = bench.line()
    await line.take([ordered(11, 2)])
    opened = Segment(2, G1, 3, (13, 21), (2, 0))
    ended = replace(OPEN.segments[0], end=(2, 0))
    bench.nodes.put(replace(OPEN, segments=(ended, opened)))
    bench.nodes.gate.clear()
    sent = [ordered(13 + n, segment=2) for n in range(4)]
    taking = asyncio.create_task(line.take(sent))
    await asyncio.sleep(0.01)
    assert end(bench) == 2
    bench.nodes.gate.set()
    await taking
    assert end(bench) == 6
    await bench.all_durable()
    acks = line.take_due()
    assert acks[0].code == wire.SEGMENT_CLOSED
    assert [(a.correlation, a.code, a.base_offset) for a in acks[1:]] == [
        (b.correlation, 0, 2 + n) for n, b in enumerate(sent)
    ]


async def test_two_sessions_do_not_store_a_record_twice(bench: OrderedBench) -> None:
    """A sender that dialled again: what it sent before may still arrive, at the same time."""
    lines = bench.line(), bench.line()
    sent = [ordered(11 + n) for n in range(5)]
    await asyncio.gather(*(line.take(sent) for line in lines))
    assert end(bench) == 5
    await bench.all_durable()
    for line in lines:
        assert [(a.code, a.base_offset) for a in line.take_due()] == [(0, n) for n in range(5)]


async def test_each_batch_waits_for_its_own_place(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11)])
    first = bench.journal.end
    await line.take([ordered(12)])
    await bench.journal.wait_durable(bench.journal.end)
    bench.reports(first)
    assert [ack.base_offset for ack in line.take_due()] == [0]
    bench.reports(bench.journal.end)
    assert [ack.base_offset for ack in line.take_due()] == [1]


async def test_chain_is_read_once_in_a_term(bench: OrderedBench) -> None:
    """What was cached in an earlier term may hide a closing and an end that others gave."""
    line = bench.line()
    before = bench.nodes.reads
    await line.take([ordered(11), ordered(12)])
    assert bench.nodes.reads == before + 1
    bench.nodes.put(close_of(OPEN))
    bench.open_term(2)
    (ack, *_) = await _acks_of(bench.line(), ordered(13))
    assert ack.code == wire.SEGMENT_CLOSED
    assert end(bench) == 2


async def _acks_of(line: SessionBatches, *batches: wire.ProduceBatch) -> list[wire.ProduceAck]:
    await line.take(batches)
    return line.take_due()


async def test_without_zookeeper_a_chain_not_read_is_not_used(bench: OrderedBench) -> None:
    bench.nodes.failing = True
    line = bench.line()
    (ack,) = await _acks_of(line, ordered(11))
    assert ack.code == wire.OVERLOADED
    assert end(bench) == 0
    bench.nodes.failing = False
    await line.take([ordered(11)])
    bench.nodes.failing = True
    await line.take([ordered(12)])
    assert end(bench) == 2, "once read it serves for the term"


async def test_lost_records_close_the_segment(bench: OrderedBench) -> None:
    started = Segment(1, G1, 3, (11, 21), (5, 0))
    bench.nodes.put(replace(OPEN, segments=(started,)))
    (ack,) = await _acks_of(bench.line(), ordered(11))
    assert ack.code == wire.SEGMENT_CLOSED
    assert "g1 has lost records" in ack.message
    closed = bench.nodes.chains["changes"].value
    assert closed.closing is not None
    assert "below the start 5" in closed.closing
    assert closed.closing_class == "journal"
    assert end(bench) == 0


async def test_session_without_a_waiting_ack_sleeps(bench: OrderedBench) -> None:
    """Among a thousand sessions each change of a chain would wake all others."""
    line = bench.line()
    (arrived,) = line.signals
    await line.take([ordered(11)])
    assert arrived.count == 1, "its ack does not wait for what comes behind it in the message"
    assert bench.cache.changed in line.signals
    await bench.all_durable()
    assert len(line.take_due()) == 1
    assert list(line.signals) == [arrived]


async def test_other_sender_with_the_same_epoch_is_fenced(bench: OrderedBench) -> None:
    """The lost chain had given it that epoch, and the restored one gave it to another."""
    await bench.line().take([ordered(11)])
    for sequence in (11, 12):  # one is stored, by another
        (ack,) = await _acks_of(bench.line("other-0000000001"), ordered(sequence))
        assert ack.code == wire.SENDER_FENCED
    assert end(bench) == 1


async def test_open_segment_that_was_sealed_here_is_closed(bench: OrderedBench) -> None:
    """A restored chain may open a number again that the lost one had used up."""
    payload = encode_seal(Seal(CHANGES.id, 1, (0, 0)))
    bench.journal.append(BatchDraft(BatchType.SEAL, payload, crc32c(payload)))
    before = end(bench)
    (ack,) = await _acks_of(bench.line(), ordered(11))
    assert ack.code == wire.SEGMENT_CLOSED
    closed = bench.nodes.chains["changes"].value
    assert "was sealed in g1 before" in (closed.closing or "")
    assert end(bench) == before


async def test_refusals_for_want_of_room_wake_the_coordinator(
    bench: OrderedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(_: BatchDraft) -> Appended:
        raise StorageFull("the disk limit is reached")

    line, calls = bench.line(), list[TopicId]()
    bench.append.on_room_changed(calls.append)
    await line.take([ordered(11)])
    assert calls == []
    with monkeypatch.context() as full:
        full.setattr(bench.journal, "append", append)
        for _ in range(2):
            (ack,) = (await _acks_of(bench.line(), ordered(12)))[-1:]
            assert ack.code == wire.STORAGE_FULL
        assert calls == [CHANGES.id] * 2, "the disk may be full again, in another segment"
    await line.take([ordered(12), ordered(13)])
    assert len(calls) == 3, "there is room again"


async def test_tail_that_a_restart_lost_comes_again(bench: OrderedBench) -> None:
    """The next sequence follows from the journal alone (K13)."""
    line = bench.line()
    await line.take([ordered(11)])
    kept = bench.journal.end
    await line.take([ordered(12), ordered(13)])
    await bench.journal.truncate(kept)
    bench.open_term(2)
    (gap,) = (await _acks_of(bench.line(), ordered(14)))[-1:]
    assert (gap.code, gap.expected_sequence) == (wire.OUT_OF_SEQUENCE, 12)
    again = bench.line()
    await again.take([ordered(12)])
    assert end(bench) == 2


async def test_late_sender_is_fenced_for_good(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11)])
    ended = replace(OPEN.segments[0], end=(1, 0))
    opened = Segment(2, G2, 4, (12, 21), (0, 0))
    bench.nodes.put(replace(OPEN, segments=(ended, opened), sender=Sender("copier-0000000002", 4)))
    await bench.cache.read("changes")
    (_, ack) = await _acks_of(line, ordered(12))
    assert ack.code == wire.SENDER_FENCED
    assert "copier-0000000002 is active" in ack.message


async def test_master_that_takes_no_messages_refuses(bench: OrderedBench) -> None:
    line = bench.line()
    bench.service.intake.stopping = True
    (ack,) = await _acks_of(line, ordered(11))
    assert ack.code == wire.NO_PERMISSION
    assert end(bench) == 0


async def test_pending_ack_gets_its_fsync(tmp_path: Path) -> None:
    async with ordered_bench(tmp_path, checkpoint_interval_ms=10**9) as bench:
        bench.journal.set_flush(sync=False, interval_ms=0)
        journal = bench.journal
        for sequence in (11, 12):
            await bench.line().take([ordered(sequence)])
            await until(lambda: journal.durable_end == journal.end, "an fsync for the ack alone")


async def test_header_bears_epoch_and_sequence(bench: OrderedBench) -> None:
    chain = replace(OPEN, segments=(Segment(1, G1, 70_000, (2**32 + 5, 1), (0, 0)),))
    bench.nodes.put(replace(chain, sender=Sender("copier-0000000001", 70_000)))
    await bench.line().take([ordered(2**32 + 5, epoch=70_000)])
    (found,) = await bench.journal.find(CHANGES.id, 0, Offset(0), 9)
    header, _ = await bench.journal.read_batch(found)
    assert (header.producer_id, header.producer_epoch) == (0, 70_000 - 65_536)
    assert header.base_sequence == 5
