"""Options that were silently ignored or misapplied are refused or reported."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqcli import common, main
from fmqcli.commands import broker, groups, produce
from fmqcli.send_job import SendJob
from fmqclient.admin.infos import QueueOffsets
from fmqcore.errors import InvalidArgument, NotFound, UnknownQueue
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.chain import Chain, Floor, Segment
from fmqcore.zk.topic import TopicConfig, TopicGroup

ORDERS = TopicConfig("orders", TopicId(1), (TopicGroup(GroupName("g1"), 4),))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("consume t --format %k -o json", "--format and -o json"),
        ("consume t --no-ack", "--no-ack is for --group"),
        ("produce t -o json", "give that, too"),
        ("produce t --name copier", "--name is for --ordered"),
        ("produce t --accept-unknown-end", "--accept-unknown-end is for --ordered"),
        ("produce t -k a -K :", "--key and --key-separator: one of both"),
        ("produce t -f a -f b", "--file is given 2 times (a, b)"),
        ("cluster apply -f a -f -", "--file is given 2 times (a, standard input)"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert main.run(line.split()) == common.USAGE
    assert message in capsys.readouterr().err


def test_an_unknown_group_is_as_an_unknown_queue() -> None:
    for error, group, queue in ((NotFound, "g9", None), (UnknownQueue, "g1", 99)):
        with pytest.raises(error) as caught:
            produce._check_place(ORDERS, group, queue)
        assert common.exit_code(caught.value) == common.FAILED


def test_one_way_produce_does_not_claim_records_are_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for acks, message in (
        ("one_way", "3 sent without an acknowledgement"),
        ("replicated", "3 stored"),
    ):
        fixed = {"unanswered": acks == "one_way"}
        job = SendJob("t", None, None, fixed, 0, 0, common.Output.TABLE)
        job._sent = job._stored = 3
        job._report(0.01)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("there", "option", "code"), [(0, "", 1), (0, "--create", 0), (4, "", 0)])
def test_a_seek_makes_a_group_only_when_asked_to(
    monkeypatch: pytest.MonkeyPatch, there: int, option: str, code: int
) -> None:
    moved: list[str] = []

    class Admin:
        async def offsets(self, group: str, topic: str) -> list[str]:
            return [f"{group} {topic}"] * there

        async def seek(self, name: str, *_: object, **__: object) -> list[Any]:
            moved.append(name)
            return []

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Any]:
        yield SimpleNamespace(admin=Admin)

    monkeypatch.setattr(groups, "client", client)
    line = f"group seek typo orders --to latest {option}"
    assert main.run(line.split()) == code
    assert moved == ([] if code else ["typo"])


@pytest.mark.parametrize(
    ("environment", "line", "cluster", "zookeeper"),
    [
        ({"FMQ_CLUSTER": "e", "FMQ_ZOOKEEPER": "e:1"}, "", "e", "e:1"),
        ({"FMQ_CLUSTER": "e", "FMQ_ZOOKEEPER": "e:1"}, "--cluster o --zookeeper o:1", "o", "o:1"),
        ({"FMQ_CLUSTER": "f"}, "--config {} --zookeeper o:1", "f", "o:1"),
        ({"FMQ_CLUSTER": "e"}, "--config {} --zookeeper o:1", None, "--cluster"),
        ({"FMQ_CLUSTER": "e"}, "--config {} --cluster o --zookeeper o:1", "o", "o:1"),
        ({}, "--set cluster=s --zookeeper o:1", "s", "o:1"),
    ],
)
def test_broker_reads_cluster_and_zookeeper_from_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    line: str,
    cluster: str | None,
    zookeeper: str,
) -> None:
    for name in ("FMQ_CLUSTER", "FMQ_ZOOKEEPER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "b.toml"
    file.write_text('cluster = "f"\n')
    started: list[Any] = []

    def run_broker(settings: Any) -> int:
        started.append(settings)
        return 0

    fake = SimpleNamespace(run_broker=run_broker)
    monkeypatch.setitem(sys.modules, "fmqbroker.app.main", fake)
    given = f"broker run --group g --id b --data d {line.format(file)}".split()
    code = main.run(given)
    if cluster is None:
        assert (code, zookeeper in capsys.readouterr().err) == (common.USAGE, True)
        assert not started
    else:
        assert (code, started[0].cluster, started[0].zookeeper) == (0, cluster, zookeeper)


def test_contradiction_with_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMQ_ZOOKEEPER", "prod:2181")
    named = {"cluster": "", "zookeeper": ""}
    with pytest.raises(InvalidArgument, match=r"'stage:1' in the settings and 'prod:2181' in FMQ"):
        broker._take_environment({"zookeeper": "stage:1"}, named)


@pytest.mark.parametrize(("other", "shown"), [("s1", ["fmq", "fmq"]), ("s2", ["s1", "s2"])])
def test_members_of_one_client_name_are_distinguished(
    capfd: pytest.CaptureFixture[str], other: str, shown: list[str]
) -> None:
    """Two `fmq consume -g` looked like one member."""
    row = QueueOffsets("app", "orders", "g1", 0, 0, 0, 0, session="s1", client="fmq")
    rows = [row, replace(row, queue=1, session=other)]
    groups._show(common.Output.TABLE, rows)
    _, *lines = capfd.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == shown


@pytest.mark.parametrize(
    ("to", "dropped", "reported"),
    [("5000", 2, True), ("5000", 0, False), ("7000", 2, False), ("earliest", 2, False)],
)
def test_seek_to_a_time_of_dropped_segments_says_where_it_went(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    to: str,
    dropped: int,
    reported: bool,
) -> None:
    segment = Segment(3, GroupName("g1"), 1, (1,), (0,), opened_ms=6_000)
    chain = Chain("changes", 1, (), segments=(segment,), floor=Floor(dropped))

    class Admin:
        async def offsets(self, *_: str) -> list[str]:
            return ["there"]

        async def seek(self, *_: object, **__: object) -> list[Any]:
            return []

        async def topic(self, _: str) -> Any:
            return SimpleNamespace(ordered=True)

        @property
        def ordered(self) -> Any:
            return SimpleNamespace(status=self.status)

        async def status(self, _: str) -> list[Any]:
            return [SimpleNamespace(chain=chain)]

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Any]:
        yield SimpleNamespace(admin=Admin)

    monkeypatch.setattr(groups, "client", client)
    assert main.run(["group", "seek", "app", "changes", "--to", to]) == 0
    sentence = "are dropped: the group begins at segment 3, opened at 1970-01-01T"
    assert (sentence in capfd.readouterr().err) == reported
