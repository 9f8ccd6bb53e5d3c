"""Probes and metrics of a broker from its start to its stop."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fmqclient
from fmqadapters.http.pages import Page, serve_pages
from fmqadapters.process.clock import SystemClock
from fmqadapters.process.free_ports import free_port
from fmqbroker.admin.snapshot import (
    BrokerSnapshot,
    ConsumerLag,
    Positions,
    Served,
    SlaveLink,
    TopicsSnapshot,
)
from fmqbroker.admin.status_reply import status_reply
from fmqbroker.app.health import Health, role_of
from fmqbroker.app.metrics import BrokerCollector
from fmqbroker.produce.intake import Cause, Refusal
from fmqbroker.runtime.settings import BrokerSettings
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


def snapshot(
    me: BrokerId,
    state: GroupState,
    *,
    serves: Permission = Permission.NONE,
    refusal: Refusal | None = None,
    allowed: Permission = Permission.FULL,
    **more: Any,
) -> BrokerSnapshot:
    members = tuple(Member(b, f"{b}:1", permission=allowed) for b in (A, B, C))
    return BrokerSnapshot(
        "c",
        GroupName("g"),
        me,
        GroupConfig(GroupName("g"), A, members),
        state,
        registered=more.pop("registered", True),
        granted=serves,
        grant_reason="because",
        serves=serves if refusal is None else serves & ~Permission.WRITE,
        refusal=refusal,
        **more,
    )


class Planted:
    """Stands in for the source of snapshots: no part of a broker is there."""

    def __init__(self, broker: BrokerSnapshot, topics: TopicsSnapshot | None = None) -> None:
        self.broker, self.topics_ = broker, topics or TopicsSnapshot()

    def take(self) -> BrokerSnapshot:
        return self.broker

    async def topics(self) -> TopicsSnapshot:
        return self.topics_


async def figures(collector: BrokerCollector) -> dict[tuple[str, ...], float]:
    """Return the values of all metrics by name and labels but the broker's own."""
    own = ("cluster", "group", "broker")
    return {
        (s.name, *(value for label, value in s.labels.items() if label not in own)): s.value
        async for family in collector.families()
        for s in family.samples
    }


MASTER = GroupState(mode=Mode.MASTER, master=A, reader=A)
TAKEN = GroupState(mode=Mode.SLAVE_CONSUME, master=A, reader=B)
BACK = GroupState(mode=Mode.HANDOVER, master=A, reader=B)


def a_collector(planted: Planted) -> BrokerCollector:
    settings = BrokerSettings(cluster="c", group="g", broker=A, data_dir="-", zookeeper="-")
    health: Any = SimpleNamespace(stage="", probe_ms=-1, snapshots=planted)
    return BrokerCollector(settings, health)


async def test_slave_lag_is_reported_once_known() -> None:
    """After a start, the lag counted the whole journal for each slave that was down."""
    slaves = (
        SlaveLink(B, False, False, Position(0), Position(0)),
        SlaveLink(C, True, True, Position(7), Position(7)),
    )
    ends = Positions(end=Position(10))
    values = await figures(a_collector(Planted(snapshot(A, MASTER, slaves=slaves, positions=ends))))
    assert ("fmq_slave_lag_bytes", B) not in values
    assert values["fmq_slave_lag_bytes", C] == 3
    assert (values["fmq_slave_connected", B], values["fmq_slave_in_sync", C]) == (0, 1)


async def test_counter_does_not_fall_when_tail_is_truncated() -> None:
    """Prometheus takes a fall for a restart at 0: all messages would count again at once."""
    one, two = TopicId(1), TopicId(2)
    planted = Planted(snapshot(B, MASTER))
    collector = a_collector(planted)

    async def counted(names: tuple[tuple[str, TopicId], ...], *stored: int) -> float:
        planted.topics_ = TopicsSnapshot(dict(zip((one, two), stored, strict=True)), names)
        return (await figures(collector))["fmq_topic_messages_total", "t"]

    assert await counted((("t", one),), 100, 9) == 100
    assert await counted((("t", one),), 90, 9) == 100
    assert await counted((("t", one),), 110, 9) == 110
    assert await counted((("t", two),), 110, 9) == 9, "deleted and recreated"


async def test_one_planted_snapshot_feeds_all_readers() -> None:
    """Metrics, readiness and the status call agree, and need no part of a broker."""
    no_room = Refusal(Cause.ROOM, "no room")
    ends = Positions(*map(Position, (1, 2, 3, 4, 5)))
    broker = snapshot(
        A, MASTER, serves=Permission.FULL, refusal=no_room, positions=ends,
        served=Served(reads_served_ms=7, writes_ended_ago_ms=0),
    )  # fmt: skip
    lags = (ConsumerLag("orders", "billing", 3, 2),)
    values = await figures(a_collector(Planted(broker, TopicsSnapshot(consumers=lags))))
    status = status_reply(broker)
    assert [values["fmq_serves", kind] for kind in ("read", "write")] == [1, 0]
    assert [values["fmq_journal_position_bytes", at] for at in Positions._fields] == [1, 2, 3, 4, 5]
    assert (status.journal_start, status.commit_end, status.durable_end, status.end) == (1, 2, 3, 5)
    assert values["fmq_consumer_lag_messages", "orders", "billing"] == 3
    assert role_of(broker).reason == "MASTER: serves READ; it takes no messages: no room"
    assert status.reason == "because; it takes no messages: no room"
    periods = status.served_periods
    assert (periods.reads_served_ms, periods.HasField("writes_served_ms")) == (7, False)
    assert periods.HasField("writes_ended_ago_ms"), "ended just now: 0, not unset"


@pytest.mark.parametrize(
    ("seen", "well", "says"),
    [
        (snapshot(A, MASTER, serves=Permission.FULL), True, "MASTER: serves FULL"),
        (snapshot(A, MASTER), False, "because"),
        (snapshot(A, GroupState()), False, "master, serves nothing"),
        (snapshot(B, MASTER, upstream_connected=True), True, "slave"),
        (snapshot(B, MASTER), False, "not linked to its master g-0"),
        (snapshot(B, TAKEN, serves=Permission.READ), True, "serves READ"),
        (snapshot(C, TAKEN), True, "slave, SLAVE_CONSUME"),
        (snapshot(A, TAKEN), False, "g-1 serves the reads"),
        (snapshot(A, BACK), False, "master, serves nothing"),
        (snapshot(B, BACK), True, "slave, HANDOVER"),
        (snapshot(B, MASTER, upstream_connected=True, registered=False), False, "not registered"),
        (snapshot(A, MASTER, serves=Permission.FULL, registered=False), True, "serves FULL"),
        (snapshot(B, MASTER, allowed=Permission.NONE), True, "configured permission is NONE"),
    ],
)
def test_ready_means_in_its_role(seen: BrokerSnapshot, well: bool, says: str) -> None:
    answer = role_of(seen)
    assert (answer.well, says in answer.reason) == (well, True), answer


@pytest.mark.parametrize("cause", [Cause.POLICY, Cause.ROOM])
def test_a_master_that_refuses_messages_is_not_in_its_role(cause: Cause) -> None:
    refusal = Refusal(cause, "for some reason")
    seen = snapshot(A, MASTER, serves=Permission.FULL, refusal=refusal)
    text = "MASTER: serves READ; it takes no messages: for some reason"
    assert role_of(seen) == (False, text)
    assert role_of(seen, reads_suffice=True) == (True, text), "and reads are not taken away"
    seen = snapshot(B, TAKEN, serves=Permission.READ, refusal=refusal)
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
    health.stage = ""
    health.snapshots = Planted(snapshot(A, MASTER, serves=Permission.FULL))

    def fault(step: Step) -> None:
        if step.kind == "write" and step.name == "probe" and error is not None:
            raise error

    disk.fault = fault
    answer = await health.ready()
    assert (answer.well, says in answer.reason) == (well, True), answer
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
