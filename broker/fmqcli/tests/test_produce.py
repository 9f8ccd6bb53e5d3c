"""`fmq produce` while it waits for more input."""

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcli import common, main, send_job, send_waits
from fmqcli.commands import produce
from fmqcli.send_job import SendJob
from fmqcli.stdio.writer import Writer
from fmqclient.tests.ordered_double import ordered_cluster
from fmqcore.errors import StorageFull, TooLarge, UnknownQueue, UnknownTopic
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup


class Printed:
    """A writer that is never slow."""

    def __init__(self) -> None:
        self.data = b""

    async def write(self, data: bytes) -> None:
        self.data += data


async def test_failure_is_reported_without_further_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tail -f log | fmq produce t`: the report used to wait for the next 10,000 lines."""
    monkeypatch.setattr(send_waits, "STALLED_S", 0.01)
    printed = asyncio.Event()

    def talk(text: str) -> None:
        common.talk(text)
        printed.set()

    monkeypatch.setattr(send_job, "talk", talk)

    def send_nowait(*_: object, **__: object) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(StorageFull("the disk is full"))
        return future

    async def two_lines() -> AsyncIterator[list[bytes]]:
        yield [b"a", b"b"]
        await printed.wait()

    producer = SimpleNamespace(outstanding=0, connected={}, send_nowait=send_nowait)
    job = SendJob("t", None, None, {}, 0, 0, common.Output.TABLE)
    async with asyncio.timeout(30), job.watched(producer):
        await job.send(producer, two_lines())
    first, last = capsys.readouterr().err.splitlines()
    assert (first, job.failed) == ("fmq: the disk is full", 2)
    assert last.startswith("fmq: 0 stored, 2 not in ")


@pytest.mark.parametrize("together", [True, False])
async def test_deleted_topic_ends_produce_between_lines(
    capsys: pytest.CaptureFixture[str], together: bool
) -> None:
    """It went on, and when the topic was there again, the lines in between were in neither."""
    loop, read = asyncio.get_running_loop(), list[bytes]()

    def send_nowait(_: str, value: bytes, **__: object) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = loop.create_future()
        read.append(value)
        if value == b"b":
            error = UnknownTopic("topic t was deleted")
            loop.call_soon(future.set_exception, error)
        else:
            future.set_result(SimpleNamespace(group="g1", queue=0, offset=7))
        return future

    async def lines() -> AsyncIterator[list[bytes]]:
        for values in [[b"a", b"b"]] if together else [[b"a"], [b"b"]]:
            yield values
        await asyncio.Event().wait()

    producer = SimpleNamespace(outstanding=0, connected={}, send_nowait=send_nowait)
    job = SendJob("t", None, None, {}, 0, 0, common.Output.TABLE)
    with pytest.raises(UnknownTopic, match="t was deleted"):
        async with asyncio.timeout(30), job.watched(producer):
            await job.send(producer, lines())
    await job.end_early()
    job.report_cut_short()
    assert read == [b"a", b"b"]
    assert capsys.readouterr().err == "fmq: cut short: of 2 sent 1 are stored\n"


@pytest.mark.parametrize(
    ("connected", "reason"),
    [
        (
            {"g1": "", "g2": ""},
            "no answer from g1, g2: see `fmq status`, for an ordered topic `fmq ",
        ),
        ({"g1": "", "g2": "it has no master"}, "g2: it has no master"),
        ({}, "no answer from any group: see `fmq status`"),
    ],
)
async def test_silent_group_is_named_with_the_next_step(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    connected: dict[str, str],
    reason: str,
) -> None:
    """Its session is open, so there is no reason to name."""
    monkeypatch.setattr(send_waits, "STALLED_S", 0.01)
    printed = asyncio.Event()

    def talk(text: str) -> None:
        common.talk(text)
        printed.set()

    monkeypatch.setattr(send_waits, "talk", talk)
    producer = SimpleNamespace(outstanding=3, connected=connected)
    async with asyncio.timeout(30), send_waits.stalls_reported(producer, lambda: 0):
        await printed.wait()
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"fmq: waiting, 3 not stored yet; {reason}")


async def test_interrupted_produce_reports_how_much_is_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(3)]
    left = list(futures)
    producer = SimpleNamespace(send_nowait=lambda *_, **__: left.pop(0))

    async def three_lines() -> AsyncIterator[list[bytes]]:
        yield [b"a", b"b", b"c"]

    job = SendJob("t", None, None, {}, 0, 0, common.Output.TABLE)
    printed = Printed()
    sending = asyncio.create_task(job.send(producer, three_lines(), printed))
    while left:
        await asyncio.sleep(0)
    futures[0].set_result(SimpleNamespace(group="g1", queue=0, offset=7))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    futures[1].set_exception(TooLarge("too large"))
    await job.end_early()
    job.report_cut_short()
    assert printed.data == b"g1 0 7\n"
    assert capsys.readouterr().err == "fmq: cut short: of 3 sent 1 are stored\n"


def test_signal_ends_produce_while_its_reader_stalls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fmq produce -p | less`: the write held the loop, and with it heartbeats and signals."""
    monkeypatch.setattr(send_job, "_CUT_SHORT_S", 0.01)
    reading, writing = os.pipe()

    def send_nowait(*_: object, **__: object) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(SimpleNamespace(group="g1", queue=0, offset=7))
        return future

    async def lines_for_ever() -> AsyncIterator[list[bytes]]:
        while True:
            yield [b"x"] * 1000
            await asyncio.sleep(0)

    async def terminated_when_full() -> None:
        while select.select([], [writing], [], 0)[1]:
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0)  # the loop turns
        os.kill(os.getpid(), signal.SIGTERM)

    job = SendJob("t", None, None, {}, 0, 0, common.Output.TABLE)

    async def work() -> None:
        producer = SimpleNamespace(send_nowait=send_nowait)
        writer = Writer(writing)
        try:
            async with common.meanwhile(terminated_when_full()):
                await job.send(producer, lines_for_ever(), writer)
        finally:
            await job.end_early()
            writer.close()

    with pytest.raises(common.Terminated):
        common.run(work)
    assert not capsys.readouterr().err, "nothing is written on the loop"
    job.report_cut_short()
    assert capsys.readouterr().err.endswith(" are stored; standard output lacks lines of these\n")
    os.close(reading)  # ends the thread's write


def test_a_file_is_opened_where_signals_end_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a pipe waits for its writer: in the loop, SIGTERM and Ctrl-C did not end that."""
    monkeypatch.setattr(produce, "run", lambda _, **__: pytest.fail("the loop is there already"))
    assert main.run(["produce", "t", "-f", "/nope"]) == common.FAILED
    assert "/nope: No such file" in capsys.readouterr().err


async def test_sender_that_accepts_an_unknown_end_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"1\n")
    works: list[Any] = []
    monkeypatch.setattr(produce, "run", lambda work, **_: works.append(work))
    command = ["produce", "changes", "--ordered", "--accept-unknown-end", "-f", str(lines)]
    async with ordered_cluster() as double:
        assert main.run([*command, "-b", double.url]) == 0
        *arguments, _ = works[0].args  # a closed file
        with lines.open("rb") as file:
            assert await works[0].func(*arguments, file.fileno(), **works[0].keywords) == 0
        openings = [session.opening.sender for session in double.sessions]
        assert openings
        assert all(sender.accepts_unknown_end for sender in openings)
        assert double.values_of_chain() == [b"1"]


async def test_sender_to_a_queue_that_is_not_there_takes_no_role() -> None:
    ordered = TopicConfig("changes", TopicId(1), (TopicGroup(GroupName("g1"), 2),), ordered=True)
    with pytest.raises(UnknownQueue, match="no queue 7: topic changes has 0 to 1"):
        async with produce._sender(cast(Any, None), ordered, topic="changes", queue=7):
            pytest.fail("it has asked for the role")
