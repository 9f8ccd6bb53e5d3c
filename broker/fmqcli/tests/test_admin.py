"""`fmq topic|group delete`: check, ask, then delete; `fmq status`, `fmq dev status`."""

import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqcli import common, main
from fmqcli.commands import dev, groups, status, topics
from fmqclient.admin.infos import BrokerStatus, ReplicaStatus
from fmqcore.errors import UnknownTopic
from fmqcore.ids import BrokerId, GroupName, Permission
from fmqdev.broker_process import BrokerStatus as DevStatus
from fmqdev.cluster import ZOOKEEPER
from fmqdev.cluster_plan import BrokerPlan


class Admin:
    """An admin that knows the topic `orders`, read by the group `orders`."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.rows = [BrokerStatus("g1", "g1-0", "h:1", permission=Permission.FULL)]

    def admin(self) -> "Admin":
        return self

    async def topic(self, name: str) -> str:
        if name != "orders":
            raise UnknownTopic(f"there is no topic {name!r}")
        return name

    async def offsets(self, group: str, topic: str) -> list[str]:
        return ["a queue"] if group == "orders" and topic in ("", "orders") else []

    async def status(self) -> list[BrokerStatus]:
        return self.rows

    async def topics(self) -> list[str]:
        return []

    async def delete_topic(self, name: str) -> None:
        self.deleted.append(name)

    async def delete_group(self, group: str, topic: str) -> int:
        self.deleted.append(group)
        return 1


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    admin = Admin()

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Any]:
        yield admin

    for module in (topics, groups, status):
        monkeypatch.setattr(module, "client", client)
    return admin


@pytest.mark.parametrize("command", ["topic", "group"])
@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ("", common.USAGE, "give --yes to proceed"),
        ("n\n", common.FAILED, "nothing was done"),
        ("y\n", 0, "orders"),
    ],
)
def test_irreversible_command_asks_and_names_its_effect(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    admin: Admin,
    command: str,
    answer: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert main.run([command, "delete", "orders"]) == code
    assert message in capsys.readouterr().err
    assert admin.deleted == ([] if code else ["orders"])


def test_undecodable_answer_is_not_a_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, admin: Admin
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    assert main.run(["topic", "delete", "orders"]) == common.FAILED
    assert "nothing was done" in capsys.readouterr().err
    assert not admin.deleted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic", "delete", "nosuch"], "there is no topic 'nosuch'"),
        (["group", "delete", "nosuch"], "there is no consumer group 'nosuch'"),
        (["group", "delete", "orders", "--topic", "t"], "group 'orders' on topic t"),
    ],
)
def test_missing_object_needs_no_confirmation(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main.run(arguments) == common.FAILED
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1, "and no question"


def test_a_broker_group_that_is_named_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One of two weights was used silently."""
    assert main.run(["topic", "create", "t", "-g", "g1:1", "-g", "g1:5"]) == common.USAGE
    assert "'g1' is given twice" in capsys.readouterr().err


def test_permission_has_the_same_name_in_all_output(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """In both commands, as table and as JSON."""
    assert main.run(["status"]) == main.run(["status", "-o", "json"]) == 0
    table, data = capsysbinary.readouterr().out.split(b"\n[", 1)
    assert b" SERVES " in table
    assert json.loads(b"[" + data)[0]["serves"] == "FULL"
    plan = BrokerPlan(BrokerId("g1-0"), GroupName("g1"), "", 1, "h:1", "z:1", Path("x"))
    for output in common.Output:
        dev._show(output, [DevStatus(plan, True, 1, None)])
    table, data = capsysbinary.readouterr().out.split(b"\n[", 1)
    assert b" SERVES " in table
    assert json.loads(b"[" + data)[0]["serves"] == "NONE"


TAKES = BrokerStatus("g1", "g1-0", "h:1", permission=Permission.FULL)


@pytest.mark.parametrize(
    ("row", "code", "message"),
    [
        (TAKES, 0, ""),
        (
            replace(TAKES, unwritable_reason="needs 1 slave"),
            1,
            "g1: takes no messages: needs 1 slave",
        ),
        (
            replace(
                TAKES,
                unwritable_reason="no",
                end=9000,
                withheld_records=5,
                withheld_reason="they wait for slave g1-1",
            ),
            1,
            "g1: 5 messages on g1-0, up to position 9,000, may not be read yet: they wait for",
        ),
        (replace(TAKES, permission=Permission.READ), 1, "g1: takes no messages: no broker serves"),
        (replace(TAKES, permission=Permission.WRITE), 1, "g1: no broker serves READ"),
        (replace(TAKES, error="no answer"), 1, "g1: no broker serves READ"),
        (None, 1, "there is no group"),
    ],
)
def test_status_ends_with_whether_the_cluster_is_healthy(
    admin: Admin,
    capsys: pytest.CaptureFixture[str],
    row: BrokerStatus | None,
    code: int,
    message: str,
) -> None:
    admin.rows = [] if row is None else [row]
    assert main.run(["status"]) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert " FULL " not in printed.out or not code or row is None or bool(row.error)


def test_a_slave_that_does_not_answer_leaves_a_group_healthy(admin: Admin) -> None:
    admin.rows = [TAKES, BrokerStatus("g1", "g1-1", "h:2", error="no answer")]
    assert main.run(["status"]) == 0
    admin.rows.append(BrokerStatus("g2", "g2-0", "h:3", error="no answer"))
    assert main.run(["status"]) == common.FAILED, "each group counts"


def test_table_shows_values_without_markup_or_control_codes(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """An IPv6 address gets no emoji, and control codes in names do not move the cursor."""
    rows = [("[fd00:abc::1]:9876", "me\x1b[2J\nyou"), ("[fd00:100:ab:1::2]:9876", "café")]
    common.show(common.Output.TABLE, ("ADDRESS", "MEMBER"), rows, None)
    _, first, second = capsysbinary.readouterr().out.decode().splitlines()
    assert first.split() == ["[fd00:abc::1]:9876", r"me\x1b[2J\nyou"]
    assert second.split() == ["[fd00:100:ab:1::2]:9876", "café"]


def test_unknown_slave_lag_is_not_shown() -> None:
    row = BrokerStatus("g1", "g1-1", "h:1")
    silent = ReplicaStatus(
        "g1-1", connected=True, in_sync=False, received_end=0, durable_end=0, lag_bytes=50_000_000
    )
    assert "?" in status._cells(row, silent)
    assert "5 B" in status._cells(row, replace(silent, durable_end=7, lag_bytes=5))
    assert "0 B" in status._cells(row, replace(silent, lag_bytes=0))


@pytest.mark.parametrize(("given", "runs"), [("", False), ("", True), ("zk:2181", False)])
def test_dev_status_names_a_zookeeper_that_does_not_run(
    given: str, runs: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def brokers() -> list[DevStatus]:
        return []

    cluster = SimpleNamespace(
        options=SimpleNamespace(zookeeper=given),
        running=True,
        alive=lambda name: runs and name == ZOOKEEPER,
        status=brokers,
        zookeeper_address=given or "127.0.0.1:2181",
    )
    monkeypatch.setattr(dev, "_attached", lambda _: cluster)
    assert main.run(["dev", "status"]) == 0
    assert ("its ZooKeeper is not running: fmq dev down" in capsys.readouterr().err) == (
        not runs and not given
    )


@pytest.mark.parametrize("broker", ["g1-0", "g1-1"])
def test_kill_of_the_default_broker_names_the_others(
    tmp_path: Path,
    broker: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --dir, no other command knows the cluster: `fmq status` found no broker."""

    async def ended(_: str) -> None:
        pass

    ports = {"g1-0": 9876, "g1-1": 9877}
    cluster = SimpleNamespace(
        brokers={name: SimpleNamespace(port=port) for name, port in ports.items()},
        alive=lambda _: True,
        kill=lambda _: None,
        ended=ended,
        pid=lambda _: 7,
        url="fmq://127.0.0.1:9876,127.0.0.1:9877",
    )
    monkeypatch.setattr(dev, "_attached", lambda _: cluster)
    assert main.run(["dev", "kill", broker, "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().err
    assert (f"export FMQ_BROKERS={cluster.url}" in printed) == (broker == "g1-0")
    assert main.run(["dev", "kill", broker]) == 0
    assert "export" not in capsys.readouterr().err, "`fmq` knows the usual cluster by itself"
