"""A broker logs each change of state once, with its reason, at the right level."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fmqbroker.runtime.state_log import StateLog
from fmqbroker.tests.replication_harness import cluster, until
from fmqcore.failover.evidence import Action, Decision, LeaseRule, Part, Remedy
from fmqcore.ids import Epoch, Permission
from fmqcore.zk.group_state import GroupState
from fmqport.coordination import ConnectionLost

Lines = Sequence[Mapping[str, Any]]


def decision(part: Part, permission: Permission, reason: str) -> Decision:
    return Decision(Action.WAIT, part, permission, LeaseRule.NONE, reason)


def of(lines: Lines, event: str) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["event"] == event]


def test_a_waiting_master_logs_its_reason_once() -> None:
    log = StateLog()
    waits = decision(Part.MASTER, Permission.NONE, "g1-1 is not heard")
    checks = decision(Part.MASTER, Permission.NONE, "g1-0 copies what it lacks")
    with capture_logs() as lines:
        for _ in range(100):
            log.note(waits, Epoch(3), 0)
            log.note(checks, Epoch(3), 0)
            log.note(decision(Part.MASTER, Permission.NONE, ""), Epoch(3), 0)
    assert [(line["part"], line["reason"]) for line in lines] == [
        ("master", "g1-1 is not heard"),
        ("master", "g1-0 copies what it lacks"),
    ]


def test_reason_that_comes_back_is_logged_once_a_minute() -> None:
    """A master lost ZooKeeper and is back: the last line must not state that it is away."""
    log = StateLog()
    serves = decision(Part.MASTER, Permission.FULL, "g1-0 serves as master")
    away = decision(Part.MASTER, Permission.FULL, "g1-0 serves by grants, without ZooKeeper")
    with capture_logs() as lines:
        for second in range(0, 200, 10):
            log.note(away if second in (100, 120, 180) else serves, Epoch(3), 1000 * second)
    expected = [serves, away, serves, away, serves]
    assert [line["reason"] for line in lines] == [each.reason for each in expected]


def test_each_change_of_part_or_permission_is_a_line() -> None:
    log = StateLog()
    steps = (
        (Part.MASTER, Permission.NONE, 3, "waits"),
        (Part.MASTER, Permission.FULL, 4, "serves"),
        (Part.MASTER, Permission.FULL, 4, "serves"),
        (Part.SLAVE, Permission.NONE, 5, "follows g1-1"),
        (Part.MASTER, Permission.FULL, 6, "serves"),
    )
    with capture_logs() as lines:
        for part, permission, epoch, reason in steps:
            log.note(decision(part, permission, reason), Epoch(epoch), 0)
    assert [line["epoch"] for line in lines] == [3, 4, 5, 6]


def test_a_wait_for_a_person_is_a_warning() -> None:
    log = StateLog()
    waits = decision(Part.MASTER, Permission.NONE, "g1-1 is not heard")
    with capture_logs() as lines:
        log.note(waits, Epoch(3), 0)
        log.note(replace(waits, reason="journals are lost", remedy=Remedy.BEGIN_AGAIN), Epoch(3), 0)
        log.note(decision(Part.STRANGER, Permission.NONE, "not a member"), Epoch(3), 0)
    assert [line["log_level"] for line in lines] == ["info", "warning", "warning"]


async def test_a_slave_logs_that_it_follows_and_is_level(tmp_path: Path) -> None:
    """And again after a broken stream that was logged."""
    with capture_logs() as lines:
        async with cluster(tmp_path) as c:
            slave = c.slaves[0]
            await until(lambda: of(lines, "caught_up"), "it is level")
            (followed,) = of(lines, "master_followed")
            assert followed["master"] == c.master.name
            assert followed["position"] == 0
            slave.tap.cut()
            await until(lambda: len(of(lines, "caught_up")) == 2, "level again")
            events = [line["event"] for line in lines if line["event"] in
                      ("master_followed", "caught_up", "master_not_followed")]  # fmt: skip
    once = ["master_followed", "caught_up"]
    assert events[:5] == [*once, "master_not_followed", *once]


async def test_a_change_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried, and whichever server the error names."""
    tries = 0

    async def fails(
        edit: Callable[[GroupState], GroupState | None], version: int | None = None
    ) -> GroupState | None:
        nonlocal tries
        tries += 1
        raise ConnectionLost(f"not connected to zk-{tries % 3}:2181")

    async with cluster(tmp_path, heartbeat_ms=20) as c:
        change = c.master.group.change
        with capture_logs() as lines:
            monkeypatch.setattr(c.master.group, "change", fails)
            await c.slaves[0].stop(crash=True)
            await until(lambda: tries >= 10, "it is tried again and again")
            assert len(of(lines, "in_sync_set_unchanged")) == 1
            monkeypatch.setattr(c.master.group, "change", change)
            await until(lambda: not c.isr, "the slave is out")
            await until(lambda: of(lines, "writes_refused"), "the policy cannot be met")
    (emptied,) = of(lines, "in_sync_set")
    (refused,) = of(lines, "writes_refused")
    assert (emptied["isr"], emptied["log_level"]) == ([], "warning")
    assert refused["log_level"] == "warning"
    assert refused["reason"]


async def test_the_policy_can_be_met_again_is_a_line(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        with capture_logs() as lines:
            await c.slaves[0].stop(crash=True)
            await until(lambda: of(lines, "writes_refused"))
            await c.slaves[0].start()
            await until(lambda: of(lines, "writes_accepted"))
    assert [line["log_level"] for line in of(lines, "writes_accepted")] == ["info"]
