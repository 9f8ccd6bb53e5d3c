"""Ask the brokers of a group for their status, all at once and not for long; one for a change."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fmqcore.errors import Unavailable, error_of
from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqoperator.core.observation import Answer, Periods, Replica
from fmqoperator.shell.clock import wall_ms
from fmqport.transport import CallRefused, Connection, Method, Transport, TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import STATUS

_TIMEOUT_S: Final = 2.0
_CHANGE_S: Final = 5.0


class Brokers:
    """Connections to brokers, by address; `forget` closes those no longer asked for."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._open: dict[str, Connection] = {}

    async def ask(self, addresses: Mapping[BrokerId, str]) -> dict[BrokerId, Answer]:
        """Return the answers of the brokers that answered."""
        brokers = sorted(addresses)
        found = await asyncio.gather(*(self._ask(b, addresses[b]) for b in brokers))
        return {answer.broker: answer for answer in found if answer is not None}

    async def change(self, addresses: Sequence[str], method: Method, request: Any) -> Any:
        """Return the reply of the first broker that answers; the request may be made twice.

        Raises what the broker refuses, or `Unavailable` if none answers.
        """
        cause = "no broker of these groups is live"
        for address in addresses:
            connection = self._transport.connect(address)
            try:
                reply = await connection.call(method, request, _CHANGE_S)
            except CallRefused as refused:
                raise refused.error from refused
            except TransportError as error:
                cause = str(error)
            else:
                if reply.HasField("error"):
                    raise error_of(reply.error.code, reply.error.message)
                return reply
            finally:
                await connection.close()
        raise Unavailable(f"no broker answers: {cause}")

    async def forget(self, addresses: Mapping[BrokerId, str]) -> None:
        """Close the connections of a group that is gone."""
        for address in addresses.values():
            if connection := self._open.pop(address, None):
                await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        open_now, self._open = self._open, {}
        await asyncio.gather(*(connection.close() for connection in open_now.values()))

    async def _ask(self, broker: BrokerId, address: str) -> Answer | None:
        if address not in self._open:
            self._open[address] = self._transport.connect(address)
        try:
            reply = await self._open[address].call(STATUS, admin_pb2.StatusRequest(), _TIMEOUT_S)
        except TransportError:
            return None
        return answer_of(reply, wall_ms()) if reply.broker == broker else None


_REMEDIES: Final = {remedy.value: remedy for remedy in Remedy}


def answer_of(reply: admin_pb2.StatusReply, now_ms: int) -> Answer:
    """Return a broker's reply, which came at `now_ms`, as the planner knows it."""
    return Answer(
        broker=BrokerId(reply.broker),
        permission=Permission(reply.permission & Permission.FULL),
        epoch=Epoch(reply.epoch),
        end=Position(reply.end),
        durable_end=Position(reply.durable_end),
        commit_end=Position(reply.commit_end),
        cause=reply.reason,
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
        refuses=reply.disk_full_reason,
        damage=reply.damage,
        periods=_periods_of(reply.served_periods, now_ms)
        if reply.HasField("served_periods")
        else None,
        remedy=_REMEDIES.get(reply.remedy, Remedy.NONE),
    )


def _periods_of(found: admin_pb2.ServedPeriods, now_ms: int) -> Periods:
    """Turn ages into times of the operator's own clock; those of brokers may differ."""

    def at_ms(kind: str) -> int | None:
        return now_ms - int(getattr(found, kind)) if found.HasField(kind) else None

    return Periods(
        reads_since_ms=at_ms("reads_served_ms"),
        writes_since_ms=at_ms("writes_served_ms"),
        reads_until_ms=at_ms("reads_ended_ago_ms"),
        writes_until_ms=at_ms("writes_ended_ago_ms"),
        heard_master=found.followed_master,
        heard_at_ms=now_ms - found.master_silent_ms,
        unanswered=found.unacknowledged_reason,
    )
