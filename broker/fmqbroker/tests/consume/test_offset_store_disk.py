"""A side-journal I/O error ends the process (D3); a full disk does not.

A broker that survived the error would claim the reads again and again, and keep other slaves from
them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.consume_harness import Rig, at, running, take_over, until
from fmqcore.consume.offsets.side_journal import NAME
from fmqcore.errors import FmqError
from fmqcore.zk.group_state import Mode
from fmqport.disk import DiskFailed

Trouble = Callable[[Rig, pytest.MonkeyPatch], Awaitable[list[str]]]


class Ended(BaseException):
    """The process is over: no error handler catches this."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return why the process ended."""
    reasons: list[str] = []

    def fatal(_: object, reason: str) -> None:
        reasons.append(reason)
        raise Ended(reason)

    monkeypatch.setattr("fmqbroker.tests.consume_harness.Life.fatal", fatal)
    return reasons


def broken(monkeypatch: pytest.MonkeyPatch, of: Any, call: str) -> list[str]:
    """Make that call fail from now on for that file; the list gets an entry for each try."""
    tries: list[str] = []
    real = getattr(of, call)

    async def fail(what: object, *more: Any, **named: Any) -> Any:
        if isinstance(what, str) and what != NAME:
            return await real(what, *more, **named)
        tries.append(call)
        raise DiskFailed(f"{call}: input/output error")

    monkeypatch.setattr(of, call, fail)
    return tries


@asynccontextmanager
async def at_rest(rig: Rig) -> AsyncIterator[Rig]:
    """Wait until the store is open and no background work runs."""
    await rig.open()
    try:
        yield rig
    finally:
        await rig.journal.close()
        await rig.disk.close()


@pytest.mark.parametrize("call", ["read_file", "replace_file", "open"])
async def test_an_io_error_at_a_claim_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str], call: str
) -> None:
    async with at_rest(Rig(tmp_path)) as rig:
        with monkeypatch.context() as patched:
            tries = broken(patched, rig.disk, call)
            with pytest.raises(Ended):
                await take_over(rig, 2)
        assert (len(ends), tries) == (1, [call]), "and it is not tried again"


async def test_io_error_while_becoming_master_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str]
) -> None:
    async with at_rest(Rig(tmp_path)) as rig:
        await take_over(rig, 2)
        rig.offsets.retire()
        rig.group.become(Mode.MASTER, 3)
        tries = broken(monkeypatch, rig.disk, "remove")
        with pytest.raises(Ended):
            await rig.offsets.become_master()
        assert (len(ends), tries) == (1, ["remove"]), "and it is not tried again"


async def an_ack(rig: Rig, patched: pytest.MonkeyPatch) -> list[str]:
    assert rig.offsets._side is not None
    return broken(patched, rig.offsets._side._file, "write")


async def grown_long(rig: Rig, patched: pytest.MonkeyPatch) -> list[str]:
    patched.setattr("fmqbroker.consume.offsets.side_journal.COMPACT_BYTES", 0)
    return broken(patched, rig.disk, "replace_file")


async def of_no_use(rig: Rig, patched: pytest.MonkeyPatch) -> list[str]:
    await rig.offsets.put(at(rig, 4))
    rig.offsets.retire()
    rig.group.become(Mode.MASTER, 3)
    return broken(patched, rig.disk, "remove")


@pytest.mark.parametrize("trouble", [an_ack, grown_long, of_no_use])
async def test_an_io_error_in_the_background_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str], trouble: Trouble
) -> None:
    tries: list[str] = []

    async def at_work() -> None:
        nonlocal tries
        async with running(Rig(tmp_path), lead=False) as rig:
            await take_over(rig, 2)
            tries = await trouble(rig, monkeypatch)
            with suppress(FmqError):
                await rig.offsets.put(at(rig, 5))
            await until(lambda: False)

    with pytest.raises(BaseExceptionGroup):
        await at_work()
    assert (len(ends), len(tries)) == (1, 1), "and it is not tried again"
    assert (tmp_path / NAME).exists(), "the next start looks at it"
