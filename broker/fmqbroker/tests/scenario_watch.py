"""The scenarios' watch: ask all brokers who serves, again and again, and judge the answers.

The watch asks the brokers of a group one after another and judges only what is sound: a broker with
a permission in two samples *of one epoch* held that term between them, so another broker with the
same permission in a sample asked and answered between these two is a violation. A broker that
serves reads is also asked for its consumer offsets: none may be lower than what a consumer was
confirmed before the question. So reads never return before the offsets.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from fmqadapters.grpc import GrpcTransport
from fmqcore.ids import BrokerId, Permission
from fmqdev.cluster_plan import BrokerPlan
from fmqdev.demo.verdict import Place
from fmqport.transport import Connection, TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import OFFSETS, STATUS

TOPIC, READERS = "orders", "billing"
NONE, READ = Permission.NONE, Permission.READ
_ANSWER_S: Final = 0.4


class Sample(NamedTuple):
    """One answer of one broker; NONE if it did not answer."""

    broker: str
    permission: Permission
    epoch: int
    mode: str
    why: str


class Watch:
    """Ask all brokers, again and again, and record violations."""

    def __init__(self, plans: Sequence[BrokerPlan]) -> None:
        self.latest = {p.id: Sample(p.id, NONE, 0, "", "not asked yet") for p in plans}
        self.looks: Counter[str] = Counter()
        self.served: Counter[tuple[str, int, Permission]] = Counter()
        self.floors_seen: Counter[str] = Counter()
        self.violations: list[str] = []
        self.promised: dict[Place, int] = {}
        self._plans = plans

    async def run(self) -> None:
        """Watch every group until cancelled."""
        async with asyncio.TaskGroup() as groups:
            for group in sorted({p.group for p in self._plans}):
                groups.create_task(self._group([p for p in self._plans if p.group == group]))

    async def _group(self, plans: Sequence[BrokerPlan]) -> None:
        connections = {p.id: GrpcTransport().connect(p.listen) for p in plans}
        history: list[Sample] = []
        try:
            while True:
                for broker, connection in connections.items():
                    sample = await self._look(broker, connection)
                    history.append(sample)
                    self._two_at_once(history)
                    if READ in sample.permission:
                        await self._floors(broker, connection)
                del history[: -3 * len(plans)]
                await asyncio.sleep(0.02)
        finally:
            for connection in connections.values():
                await connection.close()

    async def _look(self, broker: str, connection: Connection) -> Sample:
        try:
            r = await connection.call(STATUS, admin_pb2.StatusRequest(), _ANSWER_S)
            sample = Sample(broker, Permission(r.permission & 3), r.epoch, r.mode, r.reason)
        except TransportError as error:
            sample = Sample(broker, NONE, 0, "", f"silent: {error}")
        self.latest[BrokerId(broker)] = sample
        self.looks[broker] += 1
        self.served[broker, sample.epoch, sample.permission] += 1
        return sample

    def _two_at_once(self, history: Sequence[Sample]) -> None:
        """Between two samples of one broker in one epoch, no other broker may serve the same."""
        last = history[-1]
        between: list[Sample] = []
        for earlier in reversed(history[:-1]):
            if earlier.broker == last.broker:
                held = last.permission & earlier.permission
                if held and earlier.epoch == last.epoch:
                    self.violations += [
                        f"{last} since {earlier}, and meanwhile {other}"
                        for other in between
                        if other.permission & held
                    ]
                return
            between.append(earlier)

    async def _floors(self, broker: str, connection: Connection) -> None:
        promised = dict(self.promised)  # before it is asked
        request = admin_pb2.OffsetsRequest(topic=TOPIC, group=READERS)
        try:
            reply = await connection.call(OFFSETS, request, _ANSWER_S)
        except TransportError:
            return
        if reply.HasField("error"):
            return  # not any more
        self.floors_seen[broker] += 1
        floors = {Place(row.broker_group, row.queue_id): row.committed for row in reply.queues}
        for place, floor in promised.items():
            if place.group == broker.rpartition("-")[0] and floors.get(place, 0) < floor:
                self.violations.append(
                    f"{broker} serves reads with {place} at {floors.get(place)}; "
                    f"a consumer had the answer that {floor} is stored"
                )
