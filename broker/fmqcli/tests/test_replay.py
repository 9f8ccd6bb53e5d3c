"""How `fmq job replay` ends: its exit status, and what an interrupted run reports."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from fmqcli.commands import replay
from fmqcore.errors import (
    DirectoryLocked,
    InvalidArgument,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownQueue("a record came from queue 2"), 64),
        (UnknownTopic("there is no topic"), 64),
        (InvalidArgument("another --name"), 64),
        (DirectoryLocked("another replay"), 69),
        (Unavailable("no broker answers"), 69),
        (TooLarge("a record"), 3),
        (OSError("no space"), 3),
    ],
)
def test_error_of_a_replay_has_its_exit_code(error: Exception, code: int) -> None:
    assert replay._code_of(error) == code


@asynccontextmanager
async def no_client(_: str) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_replay_reports_how_far_it_is(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def send(job: Any, *_: Any) -> None:
        job.stored = 7_000
        os.kill(os.getpid(), number)
        await asyncio.sleep(60)

    archive = SimpleNamespace(done_before=3, at_work=nullcontext)
    monkeypatch.setattr(replay, "Replay", lambda *_, **__: archive)
    monkeypatch.setattr(replay, "progress_name", lambda *_: "x")
    monkeypatch.setattr(replay, "_arrow", lambda: None)
    monkeypatch.setattr(replay, "client", no_client)
    monkeypatch.setattr(replay._Job, "send", send)
    with pytest.raises(typer.Exit) as ended:
        replay.replay(Path("archive"), topic="orders", to="copy", group=None, name="",
                      acks="replicated", brokers="")  # fmt: skip
    assert ended.value.exit_code == code
    printed = capsys.readouterr().err
    assert "7,000 records stored in copy and noted, 3 were before; run the same" in printed
