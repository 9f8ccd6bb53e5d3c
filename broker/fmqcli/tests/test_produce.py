"""`fmq produce` while it waits for more input."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqcli import common, main, send_waits
from fmqcli.commands import produce
from fmqclient.tests.ordered_double import ordered_cluster
from fmqcore.errors import StorageFull, TooLarge


async def test_failure_is_reported_without_further_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tail -f log | fmq produce t`: the report used to wait for the next 10,000 lines."""
    monkeypatch.setattr(send_waits, "STALLED_S", 0.01)
    printed = asyncio.Event()

    def talk(text: str) -> None:
        common.talk(text)
        printed.set()

    monkeypatch.setattr(produce, "talk", talk)

    def send_nowait(*_: object, **__: object) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(StorageFull("the disk is full"))
        return future

    async def two_lines() -> AsyncIterator[list[bytes]]:
        yield [b"a", b"b"]
        await printed.wait()

    producer = SimpleNamespace(outstanding=0, connected={}, send_nowait=send_nowait)
    job = produce._Job("t", None, None, {}, 0, 0, common.Output.TABLE, False)
    async with asyncio.timeout(30), job.watched(producer):
        await job.send(producer, two_lines())
    first, last = capsys.readouterr().err.splitlines()
    assert (first, job.failed) == ("fmq: the disk is full", 2)
    assert last.startswith("fmq: 0 stored, 2 not in ")


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

    job = produce._Job("t", None, None, {}, 0, 0, common.Output.TABLE, True)
    sending = asyncio.create_task(job.send(producer, three_lines()))
    while left:
        await asyncio.sleep(0)
    futures[0].set_result(SimpleNamespace(group="g1", queue=0, offset=7))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    futures[1].set_exception(TooLarge("too large"))
    job.report_cut_short()
    printed = capsys.readouterr()
    assert printed.out == "g1 0 7\n"
    assert printed.err == "fmq: cut short: of 3 sent 1 are stored\n"


def test_a_file_is_opened_where_signals_end_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a pipe waits for its writer: in the loop, SIGTERM and Ctrl-C did not end that."""
    monkeypatch.setattr(produce, "run", lambda _: pytest.fail("the loop is there already"))
    assert main.run(["produce", "t", "-f", "/nope"]) == common.FAILED
    assert "/nope: No such file" in capsys.readouterr().err


async def test_sender_that_accepts_an_unknown_end_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"1\n")
    works: list[Any] = []
    monkeypatch.setattr(produce, "run", works.append)
    command = ["produce", "changes", "--ordered", "--accept-unknown-end", "-f", str(lines)]
    async with ordered_cluster() as double:
        assert main.run([*command, "-b", double.url]) == 0
        *arguments, _ = works[0].args  # a closed file
        with lines.open("rb") as file:
            assert await works[0].func(*arguments, file.fileno()) == 0
        openings = [session.opening.sender for session in double.sessions]
        assert openings
        assert all(sender.accepts_unknown_end for sender in openings)
        assert double.values_of_chain() == [b"1"]
