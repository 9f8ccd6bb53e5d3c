"""A slave's disk fails at its side journal just as it takes the reads over."""

from collections.abc import Callable
from typing import Any

import pytest

from e2e.history.cluster_events import Down, Fault, FaultKind, Step
from fmqcore.consume.offsets.side_journal import NAME
from fmqcore.policy import AckPolicy
from fmqcore.zk.group_state import Mode
from fmqport.disk import DiskFailed
from fmqsim.adapters.disk import SimDisk
from fmqsim.tests.directed import MASTER, SLAVE, THIRD, Stage, play

OTHER = {SLAVE: THIRD, THIRD: SLAVE}


def test_broker_without_side_journal_ends_and_the_other_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays down; the other waits until its session has expired."""
    tries: list[str] = []
    real: Callable[..., Any] = SimDisk.replace_file

    async def trouble(stage: Stage) -> None:
        def fault_step(step: Step) -> None:
            now_ms = stage.loop.now_ms
            stage.history.add(Fault(now_ms, 0, FaultKind.DISK_ERROR, tries[0], step, NAME))

        async def replace_file(disk: SimDisk, name: str, data: bytes) -> None:
            claims = next((each for each in OTHER if each in disk.path), "")
            if name == NAME and claims in (tries or OTHER):
                tries.append(claims)
                fault_step(Step.FIRED)
                raise DiskFailed("input/output error")
            await real(disk, name, data)

        monkeypatch.setattr(SimDisk, "replace_file", replace_file)
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both are in sync")
        for broker in OTHER:
            stage.brokers[broker].hold()
        master = stage.down(MASTER)
        await stage.comes(lambda: tries, "one claims")
        other = OTHER[tries[0]]
        await stage.comes(lambda: stage.now_state.reader == other, "the other reads")
        assert stage.now_state.mode is Mode.SLAVE_CONSUME
        (end,) = (e for e in stage.events(Down) if e.broker == tries[0])
        assert "side journal" in end.reason
        assert len(tries) == 1
        monkeypatch.setattr(SimDisk, "replace_file", real)
        fault_step(Step.HEALED)
        for broker in OTHER:
            stage.brokers[broker].let_go()
        master.let_go()

    play(trouble, slaves=2, policy=AckPolicy())
