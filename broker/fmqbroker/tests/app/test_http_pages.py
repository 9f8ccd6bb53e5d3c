"""Probes and metrics of a broker from its start to its stop."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fmqclient
from fmqadapters.http.pages import Page, serve_pages
from fmqadapters.process.clock import SystemClock
from fmqadapters.process.free_ports import free_port
from fmqbroker.app.health import Health, Running, role_of
from fmqbroker.app.metrics import BrokerCollector
from fmqbroker.journal.journal import Journal
from fmqbroker.produce.intake import Intake
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqbroker.tests.app.test_broker import Process, broker
from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqcore.ids import BrokerId, GroupName, Permission, Position, TopicId
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.disk import DiskFailed, DiskFull
from fmqport.tests.promtool import complaints
from fmqport.transport import TransportError

__all__ = ["broker"]  # the fixture

A, B, C = BrokerId("g-0"), BrokerId("g-1"), BrokerId("g-2")


def running(
    me: BrokerId,
    state: GroupState,
    *,
    serves: Permission = Permission.NONE,
    standing: int = 1,
    linked: bool = False,
    allowed: Permission = Permission.FULL,
    unmet: str = "",
    full: str = "",
) -> Running:
    members = tuple(Member(b, f"{b}:1", permission=allowed) for b in (A, B, C))
    found: Any = SimpleNamespace(
        me=me,
        gate=(gate := SimpleNamespace(permission=lambda: serves, why="because", epoch=1)),
        intake=Intake(
            cast(Gate, gate),
            cast(CommitFrontier, SimpleNamespace(unwritable_reason=unmet or None)),
            cast(Journal, SimpleNamespace(full=full)),
        ),
        group=SimpleNamespace(
            standing=standing,
            state=SimpleNamespace(value=state),
            config=GroupConfig(GroupName("g"), A, members),
        ),
        slave=SimpleNamespace(upstream=SimpleNamespace(connected=linked)),
    )
    return cast(Running, found)


MASTER = GroupState(mode=Mode.MASTER, master=A, reader=A)
TAKEN = GroupState(mode=Mode.SLAVE_CONSUME, master=A, reader=B)
BACK = GroupState(mode=Mode.HANDOVER, master=A, reader=B)


def test_removed_slave_has_no_metrics() -> None:
    """The link stays until the master's next term: an alert would fire until then."""
    seen: Any = running(A, MASTER)
    seen.journal = SimpleNamespace(end=Position(10))
    seen.master = SimpleNamespace(links={B: LinkView(), BrokerId("g-3"): LinkView()})
    slaves = {s.labels["slave"] for f in a_collector()._replication(seen) for s in f.samples}
    assert slaves == {B}


def a_collector() -> BrokerCollector:
    settings = BrokerSettings(cluster="c", group="g", broker=A, data_dir="-", zookeeper="-")
    return BrokerCollector(settings, cast(Health, None))


def test_slave_lag_is_reported_once_known() -> None:
    """After a start, the lag counted the whole journal for each slave that was down."""
    seen: Any = running(A, MASTER)
    seen.journal = SimpleNamespace(end=Position(10))
    links = {B: LinkView(), C: LinkView(durable_end=Position(7))}
    seen.master = SimpleNamespace(links=links)
    values = {(s.name, s.labels["slave"]): s.value for f in a_collector()._replication(seen)
            for s in f.samples}  # fmt: skip
    assert ("fmq_slave_lag_bytes", B) not in values
    assert values["fmq_slave_lag_bytes", C] == 3
    assert values["fmq_slave_connected", B] == 0


async def test_counter_does_not_fall_when_tail_is_truncated() -> None:
    """Prometheus takes a fall for a restart at 0: all messages would count again at once."""
    seen: Any = running(B, MASTER)
    offsets = {(TopicId(1), 0): 50, (TopicId(1), 1): 50, (TopicId(2), 0): 9}
    seen.journal = SimpleNamespace(state=SimpleNamespace(next_offsets=offsets, topics={}))
    seen.view = SimpleNamespace(topics_by_id={TopicId(1): SimpleNamespace(name="t", id=TopicId(1))})
    collector = a_collector()

    async def counted() -> dict[str, float]:
        (family,) = [family async for family in collector._topics(seen)]
        return {sample.labels["topic"]: sample.value for sample in family.samples}

    assert await counted() == {"t": 100}
    offsets[TopicId(1), 0] = 40
    assert await counted() == {"t": 100}
    offsets[TopicId(1), 0] = 60
    assert await counted() == {"t": 110}
    seen.view.topics_by_id = {
        TopicId(2): SimpleNamespace(name="t", id=TopicId(2))
    }  # deleted and recreated
    assert await counted() == {"t": 9}


@pytest.mark.parametrize(
    ("seen", "well", "says"),
    [
        (running(A, MASTER, serves=Permission.FULL), True, "MASTER: serves FULL"),
        (running(A, MASTER), False, "because"),
        (running(A, GroupState()), False, "master, serves nothing"),
        (running(B, MASTER, linked=True), True, "slave"),
        (running(B, MASTER), False, "not linked to its master g-0"),
        (running(B, TAKEN, serves=Permission.READ), True, "serves READ"),
        (running(C, TAKEN), True, "slave, SLAVE_CONSUME"),
        (running(A, TAKEN), False, "g-1 serves the reads"),
        (running(A, BACK), False, "master, serves nothing"),
        (running(B, BACK), True, "slave, HANDOVER"),
        (running(B, MASTER, linked=True, standing=0), False, "not registered"),
        (running(A, MASTER, serves=Permission.FULL, standing=0), True, "serves FULL"),
        (running(B, MASTER, allowed=Permission.NONE), True, "configured permission is NONE"),
    ],
)
def test_ready_means_in_its_role(seen: Running, well: bool, says: str) -> None:
    answer = role_of(seen)
    assert (answer.well, says in answer.why) == (well, True), answer


@pytest.mark.parametrize("why", ["needs 1 slave", "no room"])
def test_a_master_that_refuses_messages_is_not_in_its_role(why: str) -> None:
    kind = "full" if why == "no room" else "unmet"
    seen = running(A, MASTER, serves=Permission.FULL, **{kind: why})  # type: ignore[arg-type]
    text = f"MASTER: serves READ; it takes no messages: {why}"
    assert role_of(seen) == (False, text)
    assert role_of(seen, reads_suffice=True) == (True, text), "and reads are not taken away"
    seen = running(B, TAKEN, serves=Permission.READ, **{kind: why})  # type: ignore[arg-type]
    assert role_of(seen) == (True, "SLAVE_CONSUME: serves READ"), "no client expects messages there"


@pytest.mark.parametrize(
    ("error", "well", "says"),
    [
        (None, True, "a flushed write took"),
        (DiskFull("no room"), True, "the disk is full: no room"),
        (DiskFailed("EIO"), False, "the disk fails: EIO"),
    ],
)
async def test_ready_needs_a_disk_that_answers(
    tmp_path: Path, error: Exception | None, well: bool, says: str
) -> None:
    disk = FaultDisk(tmp_path)
    health = Health(disk, SystemClock())
    assert not (await health.ready()).well
    assert health.started().well
    health.stage, health.running = "", running(A, MASTER, serves=Permission.FULL)

    def fault(step: Step) -> None:
        if step.kind == "write" and step.name == "probe" and error is not None:
            raise error

    disk.fault = fault
    answer = await health.ready()
    assert (answer.well, says in answer.why) == (well, True), answer
    assert health.probe_ms >= 0, "it waited, however it ended"
    await disk.close()


async def test_a_taken_address_is_named() -> None:
    async def page() -> Page:
        return Page("x")

    async with serve_pages("127.0.0.1:0", {"/x": page}) as port:
        with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with serve_pages(f"127.0.0.1:{port}", {"/x": page}):
                pass


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.processes
async def test_broker_serves_probes_and_metrics(
    broker: Process, http: aiohttp.ClientSession
) -> None:
    root = f"http://127.0.0.1:{free_port()}"
    await (await broker.start(set=f"http_listen={root[7:]}")).serves()

    async def get(path: str) -> tuple[int, str]:
        async with http.get(f"{root}/{path}") as reply:
            return reply.status, await reply.text()

    assert await get("livez") == (200, "the event loop turns\n")
    assert await get("startupz") == (200, "running\n")
    async with asyncio.timeout(60):
        while (ready := await get("readyz"))[0] != 200:
            await asyncio.sleep(0.05)
    assert ready[1].startswith("MASTER: serves FULL; a flushed write took")
    async with fmqclient.connect(f"fmq://{broker.address}") as client:
        await client.admin().create_topic("orders", queues=2)
        async with client.producer() as producer:
            for n in range(10):
                await producer.send("orders", b"%d" % n)
    status, text = await get("metrics")
    assert status == 200
    assert complaints(text) == ""
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    def value(name: str, *labels: str) -> float:
        return found[name, *sorted(("c", "g1", "g1-0", *labels))]

    assert value("fmq_topic_messages_total", "orders") == 10
    assert value("fmq_serves", "write") == value("fmq_serves", "read") == 1
    assert value("fmq_mode", "MASTER") == 1
    assert value("fmq_journal_position_bytes", "commit") > 0
    assert value("fmq_scan_bytes_total") == value("fmq_scans_refused_total") == 0
    assert found["process_resident_memory_bytes",] > 0
    assert (await get("nothing"))[0] == 404
    assert await broker.stop() == 0, "an orderly stop, pages or not"
