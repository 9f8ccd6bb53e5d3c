"""A next version's master writes batches that the others skip: no reader shows them."""

import asyncio

from fmqbroker.tests.journal.test_newer_kinds import planted
from fmqcore.policy import AckPolicy
from fmqcore.tests.journal.writer import SKIPPED
from fmqcore.zk.group_state import Mode
from fmqsim.tests.directed import MASTER, SLAVE, Stage, play


def test_skipped_kind_survives_takeover_and_return() -> None:
    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
        for _ in range(15):  # over several segments, among the traffic
            stage.journal(MASTER).append(planted(SKIPPED, bytes(20_000)))
            await stage.stored(2)
        end = stage.journal(MASTER).end
        await stage.comes(lambda: stage.commit(MASTER).commit_end >= end, "committed")
        assert stage.in_sync(SLAVE)
        master = stage.down(MASTER)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        await asyncio.sleep(3)
        master.let_go()
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "the master is back")
        stage.journal(MASTER).append(planted(SKIPPED))
        emptied = stage.empty(SLAVE)
        await asyncio.sleep(1)
        emptied.let_go()
        await stage.comes(lambda: stage.in_sync(SLAVE), "it is filled again")

    play(trouble, slaves=1, policy=AckPolicy())
