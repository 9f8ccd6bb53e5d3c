"""A kill of the ordered demo, without a cluster."""

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from fmqdev.demo.display import Show
from fmqdev.demo.ordered import run
from fmqdev.demo.ordered.copying import Acked


class Cluster:
    """A group of two of which each call succeeds."""

    def __init__(self) -> None:
        self.killed = asyncio.Event()
        self.back: list[str] = []
        self.groups = SimpleNamespace(state=self._state)

    async def _state(self, _: str) -> Any:
        return SimpleNamespace(master="g1-0")

    def group(self, _: str) -> list[Any]:
        return [SimpleNamespace(id="g1-0"), SimpleNamespace(id="g1-1")]

    def pid(self, _: str) -> int:
        return 1

    def kill(self, _: str) -> None:
        self.killed.set()

    def start_broker(self, broker: str) -> None:
        self.back.append(broker)

    async def wait_healthy(self, *, within_s: float) -> None:
        assert within_s


async def test_kill_before_the_first_delivery_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target gets its first change from the group that goes on."""
    monkeypatch.setattr(run, "_AFTER_S", 0)
    monkeypatch.setattr(run._Copy, "_lacking_on", lambda *_: [])
    cluster = Cluster()
    show = Show(300, Console(file=io.StringIO()))
    copy = run._Copy(cast(Any, cluster), show, tmp_path / "s", tmp_path / "t", 300)
    copy.sending.acked += [Acked(n, "g1", 1, n, 1.0) for n in range(1, 60)]
    async with asyncio.TaskGroup() as tasks:
        done = tasks.create_task(copy._kill_and_return(0, "master"))
        await cluster.killed.wait()
        copy.sending.acked.append(Acked(60, "g2", 2, 0, 2.0))
        await asyncio.sleep(0.1)
        assert not done.done(), "nothing is read in the other group"
        copy.applying.segments += [1, 2]
    assert (cluster.back, copy.kills[0].segment) == (["g1-0"], 1)
