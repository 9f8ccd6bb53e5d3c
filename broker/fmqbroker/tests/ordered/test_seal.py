"""SEAL: it ends a segment here, is durable before it counts, and outlives the process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fmqbroker.tests import journal_kit
from fmqbroker.tests.journal_kit import everything, headers
from fmqbroker.tests.ordered_bench import CHANGES, OrderedBench, ordered, ordered_bench
from fmqcore.batch.header import BatchType
from fmqcore.errors import Unavailable
from fmqcore.ids import Position
from fmqproto.v1 import client_pb2 as wire


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[OrderedBench]:
    async with ordered_bench(tmp_path, segment_bytes=8 << 20) as made:
        yield made


async def held_below_end(bench: OrderedBench) -> None:
    """Three records; all members hold two of them."""
    line = bench.line()
    await line.take([ordered(11, 2)])
    await bench.all_durable()
    await line.take([ordered(13)])
    await bench.journal.wait_durable(bench.journal.end)


async def test_sealed_segment_takes_and_acknowledges_no_more(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11, 2)])
    await bench.all_durable()
    sealing = asyncio.create_task(bench.seals.seal(CHANGES.id, 1, (2, 0)))
    await asyncio.sleep(0)
    (ack,) = line.take_due()
    assert ack.code == wire.SEGMENT_CLOSED, "frozen before its SEAL is durable"
    await line.take([ordered(13)])
    (ack,) = line.take_due()
    assert ack.code == wire.SEGMENT_CLOSED
    assert bench.journal.next_offset(CHANGES.id, 0) == 2
    await sealing


async def test_only_a_durable_seal_is_evidence(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    sealing = asyncio.create_task(bench.seals.seal(CHANGES.id, 1, (1, 0)))
    await asyncio.sleep(0)
    assert bench.journal.state.seals[CHANGES.id]
    assert bench.seals.sealed_of(CHANGES.id) == {}
    await sealing
    assert bench.seals.sealed_of(CHANGES.id) == {1: (1, 0)}


async def test_end_is_what_all_members_hold(bench: OrderedBench) -> None:
    await held_below_end(bench)
    chain = bench.cache.of(CHANGES.id)
    assert chain is not None
    assert bench.holdings.held(chain) == (2, 0)
    await bench.seals.seal(CHANGES.id, 1, (2, 0))
    assert bench.seals.sealed_of(CHANGES.id) == {1: (2, 0)}


async def test_end_below_what_was_acknowledged_is_refused(bench: OrderedBench) -> None:
    """A slave's report came between the decision and the seal: an ack may have been sent."""
    await held_below_end(bench)
    await bench.all_durable()
    line_end = bench.journal.end
    with pytest.raises(Unavailable, match="hold more by now"):
        await bench.seals.seal(CHANGES.id, 1, (2, 0))
    assert bench.journal.end == line_end
    assert bench.seals.sealed_of(CHANGES.id) == {}
    assert bench.seals.closed_of(CHANGES.id) == {1}, "what is frozen stays so"
    await bench.seals.seal(CHANGES.id, 1, (3, 0))
    assert bench.seals.sealed_of(CHANGES.id) == {1: (3, 0)}


async def test_broker_that_is_not_master_seals_nothing(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    bench.gate.count_grants(None)
    before = bench.journal.end
    with pytest.raises(Unavailable, match="not the master"):
        await bench.seals.seal(CHANGES.id, 1, (1, 0))
    assert bench.journal.end == before


async def test_seal_outlives_a_start_and_reaches_the_slave(tmp_path: Path) -> None:
    async with ordered_bench(tmp_path / "m") as bench:
        await bench.line().take([ordered(11)])
        await bench.all_durable()
        await bench.seals.seal(CHANGES.id, 1, (1, 0))
        raw = await everything(bench.journal)
    async with journal_kit.running(tmp_path / "m") as again:
        assert again.state.seals[CHANGES.id][1].ends == (1, 0)
    async with journal_kit.running(tmp_path / "s") as slave:
        slave.append_replica(Position(0), raw)
        assert slave.state.seals[CHANGES.id][1].ends == (1, 0)


async def test_seal_is_kept_when_the_journal_goes_on(tmp_path: Path) -> None:
    """SNAP has no seals (ADR 0064): a broker that has seen one keeps it while it runs."""
    async with (
        ordered_bench(tmp_path / "m") as bench,
        journal_kit.running(tmp_path / "s") as slave,
    ):
        await bench.line().take([ordered(11)])
        await bench.all_durable()
        await bench.seals.seal(CHANGES.id, 1, (1, 0))
        journal_kit.fill(bench.journal, 300)
        at = 0
        while at < bench.journal.end:
            part = await bench.journal.read(Position(at), 1 << 16)
            slave.append_replica(Position(at), part)
            at = slave.end
        snaps = [h for h in headers(await everything(slave)) if h.type == BatchType.SNAP]
        assert len(snaps) > 2
        await bench.journal.wait_durable(bench.journal.end)
        assert bench.seals.sealed_of(CHANGES.id) == {1: (1, 0)}
        assert slave.state.seals[CHANGES.id][1].ends == (1, 0)


async def test_truncated_seal_does_not_count(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    kept = bench.journal.end
    await bench.seals.seal(CHANGES.id, 1, (1, 0))
    await bench.journal.truncate(kept)
    bench.open_term(2)
    assert bench.seals.sealed_of(CHANGES.id) == {}
