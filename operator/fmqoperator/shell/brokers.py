"""What the brokers of a group say of themselves, asked all at once and not for long."""

import asyncio
from collections.abc import Mapping
from typing import Final

from fmqcore.words import BrokerId, Epoch, Permission, Position
from fmqoperator.seen import Answer, Replica
from fmqport.methods import STATUS
from fmqport.transport import Connection, Transport, TransportError
from fmqproto.v1 import admin_pb2

_TIMEOUT_S: Final = 2.0


class Brokers:
    """Connections to brokers, by address; one that nobody asked for is closed by `forget`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._open: dict[str, Connection] = {}

    async def ask(self, addresses: Mapping[BrokerId, str]) -> dict[BrokerId, Answer]:
        """Who answered, and what."""
        brokers = sorted(addresses)
        found = await asyncio.gather(*(self._ask(b, addresses[b]) for b in brokers))
        return {answer.broker: answer for answer in found if answer is not None}

    async def forget(self, addresses: Mapping[BrokerId, str]) -> None:
        """A group is gone."""
        for address in addresses.values():
            if connection := self._open.pop(address, None):
                await connection.close()

    async def close(self) -> None:
        """Close all."""
        open_now, self._open = self._open, {}
        await asyncio.gather(*(connection.close() for connection in open_now.values()))

    async def _ask(self, broker: BrokerId, address: str) -> Answer | None:
        if address not in self._open:
            self._open[address] = self._transport.connect(address)
        try:
            reply = await self._open[address].call(STATUS, admin_pb2.StatusRequest(), _TIMEOUT_S)
        except TransportError:
            return None
        return answer_of(reply) if reply.broker == broker else None


def answer_of(reply: admin_pb2.StatusReply) -> Answer:
    """A broker's reply as the planner knows it."""
    return Answer(
        broker=BrokerId(reply.broker),
        permission=Permission(reply.permission & Permission.FULL),
        epoch=Epoch(reply.epoch),
        end=Position(reply.end),
        durable_end=Position(reply.durable_end),
        commit_end=Position(reply.commit_end),
        why=reply.why,
        zookeeper_connected=reply.zookeeper_connected,
        replicas=tuple(
            Replica(
                BrokerId(r.broker),
                r.connected,
                r.in_sync,
                r.lag_bytes if r.durable_end or not reply.end else None,
            )
            for r in reply.replicas
        ),
        version=reply.version,
        refuses=reply.refuses,
        damage=reply.damage,
    )
