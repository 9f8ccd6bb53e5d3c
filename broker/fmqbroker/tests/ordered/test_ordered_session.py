"""The stream of an ordered producer, read while other producers fill the broker's window."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.produce.ordered_session import OrderedSession, OrderedSessions
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.ordered_bench import CHANGES, OPEN, OrderedBench, ordered, ordered_bench
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqcore.ids import Epoch
from fmqcore.ordered.evidence import SenderReport
from fmqcore.zk.chain import Sender
from fmqproto.v1.client_pb2 import ProduceRequest
from fmqproto.v1.client_pb2 import SenderReport as Report

WAITING = "waiting-0000000002"


@asynccontextmanager
async def full_broker(path: Path) -> AsyncIterator[tuple[OrderedBench, Pipe, SenderStanding]]:
    """Run a session of a sender that is second in line; other producers' bytes wait for acks."""
    async with ordered_bench(path) as bench:
        admission: Any = bench.service.admission
        admission.waiting_bytes = admission.settings.total_window_bytes + 1
        senders: Any = SimpleNamespace(
            follow=lambda _: asyncio.Event().wait(), has_moved=lambda _: None
        )
        caller: Any = None  # asked for an active sender only
        sessions = OrderedSessions(
            admission.settings, bench.clock, senders, caller, bench.append, lambda: Epoch(1)
        )
        places = (f"{OPEN.sender.id}-a-0000000000", f"{WAITING}-b-0000000001")
        sender = SenderStanding(CHANGES, OPEN, places[1])
        sender.adopt(OPEN, places)
        pipe = Pipe()
        end: Any = BrokerEnd(pipe)
        session = OrderedSession(sessions, end, sender, admission)
        running = asyncio.create_task(session.run(ProduceRequest()))
        try:
            yield bench, pipe, sender
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_full_broker_reads_a_report_and_heartbeats(tmp_path: Path) -> None:
    """The next segment waits for the report, whatever the acks of other producers wait for."""
    async with full_broker(tmp_path) as (_, pipe, sender):
        pipe.requests.put_nowait(ProduceRequest())
        report = Report(chain_segment=1, first_unacked={0: 12, 1: 21})
        pipe.requests.put_nowait(ProduceRequest(sender_report=report))
        await until(lambda: sender.report == SenderReport(WAITING, 1, (12, 21)))


async def test_full_broker_reads_nothing_after_batches(tmp_path: Path) -> None:
    async with full_broker(tmp_path) as (bench, pipe, _):
        bench.nodes.put(replace(OPEN, sender=Sender(WAITING, 3)))  # it has the role by now
        pipe.requests.put_nowait(ProduceRequest(batches=[ordered(11)]))
        pipe.requests.put_nowait(ProduceRequest(batches=[ordered(12)]))
        await until(lambda: bench.journal.next_offset(CHANGES.id, 0) == 1)
        await bench.journal.wait_durable(bench.journal.end)
        assert pipe.requests.qsize() == 1
        bench.service.admission.waiting_bytes = 0
        bench.service.admission.released.notify()
        await until(lambda: bench.journal.next_offset(CHANGES.id, 0) == 2)
