"""Whether a broker takes messages: one definition everywhere, one log line per change."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from fmqadapters.process.clock import SystemClock
from fmqadapters.process.free_ports import free_port
from fmqbroker.journal.journal import Journal
from fmqbroker.produce.intake import Cause, Intake
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.serving.gate import Gate
from fmqbroker.tests.app.test_broker import Process
from fmqcore.ids import BrokerId, GroupName, Permission, Position
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_config import GroupConfig, Member
from fmqdev.group_nodes import Groups

ME = BrokerId("g1-0")
UNMET = "needs 1 slave in sync"


class Parts:
    """An intake and the parts it reads."""

    def __init__(self) -> None:
        self.gate, self.commit = Gate(SystemClock()), CommitFrontier()
        self.journal = SimpleNamespace(full="")
        self.intake = Intake(self.gate, self.commit, cast(Journal, self.journal))

    def cause(self) -> Cause | None:
        refusal = self.intake.refusal()
        return refusal.cause if refusal is not None else None

    def lead(self) -> None:
        self.gate.extend_lease(1 << 60)
        self.gate.grant(Permission.FULL, "master")


def test_intake_refusal_names_its_cause() -> None:
    parts = Parts()
    assert parts.cause() is Cause.ROLE
    parts.lead()
    assert parts.cause() is None
    assert parts.intake.serves() == Permission.FULL
    parts.commit.refuse(UNMET, Position(0))
    assert parts.intake.refusal() == (Cause.POLICY, UNMET)
    assert parts.intake.serves() == Permission.READ
    parts.journal.full = "no room"
    assert parts.intake.refusal() == (Cause.ROOM, "no room")
    parts.intake.stopping = True
    assert parts.cause() is Cause.STOPPING
    parts.intake.stopping, parts.journal.full = False, ""
    parts.commit.accept()
    assert parts.cause() is None
    parts.gate.end_lease()
    parts.gate.close("cut off")
    assert parts.cause() is Cause.ROLE


async def test_each_change_is_one_line_with_its_reason() -> None:
    parts = Parts()
    with capture_logs() as log:
        watching = asyncio.create_task(parts.intake.watch())

        async def lines(count: int) -> None:
            async with asyncio.timeout(30):
                while len(log) < count:
                    await asyncio.sleep(0)

        await asyncio.sleep(0)
        parts.lead()
        await lines(1)
        parts.commit.refuse(UNMET, Position(0))
        await lines(2)
        parts.commit.advance(Position(1), Position(1))
        parts.commit.accept()
        await lines(3)
        parts.journal.full = "no room"  # sends no signal
        await lines(4)
        parts.gate.close("cut off")
        await lines(5)
        watching.cancel()
    keys = ("event", "cause", "reason", "log_level")
    assert [tuple(line.get(key) for key in keys) for line in log] == [
        ("messages_accepted", None, None, "info"),
        ("messages_refused", "policy", UNMET, "warning"),
        ("messages_accepted", None, None, "info"),
        ("messages_refused", "room", "no room", "warning"),
        ("messages_refused", "role", "it may not serve writes: cut off", "info"),
    ]


@pytest.fixture
async def alone(tmp_path: Path, zookeeper: str) -> AsyncIterator[tuple[Process, Groups]]:
    """Run a master whose only slave never comes; yield a way to change its policy."""
    broker, groups = Process(tmp_path, zookeeper), Groups(zookeeper, "c")
    members = (Member(ME, broker.address), Member(BrokerId("g1-1"), f"127.0.0.1:{free_port()}"))
    none = AckPolicy(how_many=HowMany.NONE)
    await groups.put_config(GroupConfig(GroupName("g1"), ME, members, none))
    yield broker, groups
    await broker.stop(signal.SIGKILL)
    await groups.close()


@pytest.mark.processes
async def test_all_agree_whether_a_master_takes_messages(
    alone: tuple[Process, Groups],
) -> None:
    broker, groups = alone
    page = f"127.0.0.1:{free_port()}"
    await (await broker.start(set=f"http_listen={page}")).says("messages_accepted")

    async def policy(how_many: HowMany) -> None:
        config = await groups.config("g1")
        await groups.put_config(replace(config, policy=AckPolicy(how_many=how_many)))

    async def seen() -> tuple[int, int, int, bool, bool]:
        command = [sys.executable, "-m", "fmq", "status", "-b", f"fmq://{broker.address}"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        async with aiohttp.ClientSession(f"http://{page}") as http:
            async with http.get("/readyz") as ready, http.get("/readyz?serves=reads") as reads:
                codes = ready.status, reads.status
            async with http.get("/metrics") as reply:
                metrics = await reply.text()
        (write,) = [
            line.endswith(" 1.0")
            for line in metrics.splitlines()
            if line.startswith("fmq_serves") and 'operation="write"' in line
        ]
        return process.returncode or 0, *codes, write, b"takes no messages" in out

    async def agree(wanted: tuple[int, int, int, bool, bool]) -> None:
        async with asyncio.timeout(60):
            while await seen() != wanted:
                await asyncio.sleep(0.05)

    await agree((0, 200, 200, True, False))
    await policy(HowMany.ONE)
    await agree((1, 503, 200, False, True))
    await broker.says("messages_refused")
    await broker.says("cause=policy")
    await policy(HowMany.NONE)
    await agree((0, 200, 200, True, False))
