"""Asks every broker many times a second what it serves, to measure outages."""

import asyncio
from collections.abc import Iterable
from typing import Final

from fmqadapters.grpc import GrpcTransport
from fmqcore.ids import Permission
from fmqdev.cluster_plan import BrokerPlan
from fmqdev.demo.traffic import now_ms
from fmqdev.demo.verdict import Seen
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import STATUS

INTERVAL_S: Final = 0.05
_ANSWER_S: Final = 1.0
"""Seconds after which a broker without an answer counts as serving nothing."""


class Probe:
    """`run` until cancelled; `looks` has the observations."""

    def __init__(self, brokers: Iterable[BrokerPlan]) -> None:
        self.looks: list[Seen] = []
        self._brokers = list(brokers)

    async def run(self) -> None:
        """Ask all brokers side by side."""
        async with asyncio.TaskGroup() as all_brokers:
            for broker in self._brokers:
                all_brokers.create_task(self._ask(broker))

    async def _ask(self, broker: BrokerPlan) -> None:
        connection = GrpcTransport().connect(broker.listen)
        try:
            while True:
                asked_ms = now_ms()
                try:
                    reply = await connection.call(STATUS, admin_pb2.StatusRequest(), _ANSWER_S)
                    permission = Permission(reply.permission)
                except TransportError:
                    permission = Permission.NONE
                # A broker that does not serve may have stopped already when it was asked.
                at_ms = now_ms() if permission else asked_ms
                self.looks.append(Seen(at_ms, broker.group, broker.id, permission))
                await asyncio.sleep(INTERVAL_S)
        finally:
            await connection.close()

    def serves(self, broker: str, need: Permission) -> bool:
        """Whether the broker serves it by the newest look."""
        for look in reversed(self.looks):
            if look.broker == broker:
                return need in look.permission
        return False
