"""A topic has properties that only a next version knows: brokers and clients keep them."""

import json
from functools import partial
from typing import Any

from e2e.traffic.ports import Door
from fmqcore.policy import AckPolicy
from fmqcore.properties import Properties
from fmqcore.zk import layout
from fmqcore.zk.group_state import Mode
from fmqsim.scenario.scene import CLUSTER
from fmqsim.tests.directed import MASTER, SLAVE, Stage, play

NEXT = {"compacted": {"chains": 3}}


def _noted(stage: Stage, broker: str) -> list[Properties]:
    return list(stage.journal(broker).state.topic_properties.values())


def test_unknown_properties_survive_alteration_and_restart() -> None:
    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
        node, altered = layout.topic_node(CLUSTER, "t"), list[Any]()

        def read() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(stage.ensemble.peek(node) or b"")
            return found

        before = read()
        before["groups"][0]["tier"] = "ssd"
        stage.ensemble.put(node, json.dumps(before | NEXT).encode())

        async def alter(door: Door) -> None:
            async with door.client("alter") as client:
                altered.append(await client.admin().alter_topic("t", queues=4))

        stage._client("alter", alter)
        await stage.comes(lambda: altered, "it is altered")
        after = read()
        assert after["compacted"] == NEXT["compacted"]
        assert after["groups"][0] == before["groups"][0] | {"queues": 4}
        assert dict(altered[0].properties) == NEXT
        assert dict(altered[0].groups[0].properties) == {"tier": "ssd"}
        for broker in (MASTER, SLAVE):
            await stage.comes(partial(_noted, stage, broker), "its journal has them")
        master = stage.down(MASTER)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        master.let_go()
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "the master is back")
        for broker in (MASTER, SLAVE):
            assert [dict(found) for found in _noted(stage, broker)] == [NEXT]

    play(trouble, slaves=1, policy=AckPolicy())
