"""Calls of the admin: one broker after another, until one answers.

Any broker answers for topics; only the broker that serves a group's reads answers for its offsets.
"""

from typing import Any

from fmqclient.net.connections import Backoff, Connections
from fmqclient.net.routes import STRANGE_MS, Routes
from fmqcore.errors import (
    FmqError,
    NoPermission,
    Unavailable,
    UnknownTopic,
    error_of,
)
from fmqcore.ids import GroupName, Permission
from fmqcore.routing import candidates
from fmqport.clock import Clock
from fmqport.transport import Method, TransportError


class AdminCalls:
    """Sends one request to the brokers that can answer it. Raises `FmqError`."""

    def __init__(self, connections: Connections, routes: Routes, clock: Clock) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock

    async def ask_any(self, method: Method, request: Any) -> Any:
        """Ask the brokers of each group in turn until one answers: any broker will do.

        An error raised because of an answer has as its cause the last try without one, or whose
        broker could not reach ZooKeeper: that try may have succeeded.
        """
        await self._routes.look_up()
        errors: list[str] = []
        lost: FmqError | None = None
        for _, route in sorted(self._routes.table.groups.items()):
            for broker in candidates(route, Permission.FULL):
                try:
                    reply = await self._connections.to(broker.address).call(
                        method, request, method.timeout_s
                    )
                    _raise_refusal(reply, lost)
                except (TransportError, Unavailable) as error:
                    errors.append(str(error))
                    lost = error
                else:
                    return reply
        if isinstance(lost, Unavailable):
            raise lost
        raise Unavailable(f"no broker answers: {'; '.join(errors) or 'the routes are empty'}")

    async def ask_reader(self, group: GroupName, method: Method, request: Any) -> Any:
        """Ask the broker that serves the reads of a group.

        It may learn of a topic later than others, so `UnknownTopic` is raised only after
        `STRANGE_MS`, or once no broker knows the topic.
        """
        until_ms = self._clock.monotonic_ms() + STRANGE_MS
        backoff, lost = Backoff(self._clock), None
        while True:
            try:
                return await self._call_reader(group, method, request, lost)
            except UnknownTopic as unknown:
                if not request.topic or self._clock.monotonic_ms() >= until_ms:
                    raise
                lost = unknown.__cause__
            await backoff.wait()
            await self._routes.look_up(request.topic)
            await self._routes.topic(request.topic)

    async def _call_reader(
        self, group: GroupName, method: Method, request: Any, lost: BaseException | None
    ) -> Any:
        """Ask the reader; `lost` is an earlier try without an answer, used as the cause."""
        errors: list[str] = []
        for again in (False, True):
            if again:
                await self._routes.look_up()
            route = self._routes.table.groups.get(group)
            for broker in candidates(route, Permission.READ) if route else ():
                try:
                    reply = await self._connections.to(broker.address).call(
                        method, request, method.timeout_s
                    )
                    _raise_refusal(reply, lost)
                except (TransportError, NoPermission) as error:
                    errors.append(f"{broker.id}: {error}")
                    lost = error
                else:
                    return reply
        reasons = "; ".join(dict.fromkeys(errors))  # both times most say the same
        raise Unavailable(f"no broker serves the reads of group {group}: {reasons}")


def _raise_refusal(reply: Any, cause: BaseException | None = None) -> None:
    if reply.HasField("error"):
        error: FmqError = error_of(reply.error.code, reply.error.message)
        raise error from cause
