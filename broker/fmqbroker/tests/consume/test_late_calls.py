"""A call held up by a cut arrives after its caller has moved on over another connection."""

from pathlib import Path
from typing import Any

import fmqclient
from fmqbroker.app.interceptors import STANDARD
from fmqbroker.app.server import around
from fmqbroker.cluster.view import ClusterView
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.calls import Calls
from fmqbroker.tests.consume_harness import Rig, consuming, key, running, until
from fmqclient.tests.memory import MemoryConnection, MemoryTransport
from fmqcore.errors import ErrorCode
from fmqcore.ids import BrokerId, GroupName, TopicId
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqport.coordination import BadVersion, Node, NodeExists
from fmqport.transport import CallContext, TransportError
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import CREATE_TOPIC, DELETE_TOPIC, ROUTES, SEEK


class HeldTransport(MemoryTransport):
    """Hold up the first call of that method; its handler runs when the cut is over."""

    def __init__(self, method: Any, *, lost_after: bool = False) -> None:
        super().__init__(0)
        self.method = method
        self.lost_after = lost_after  # it arrives at once, and its answer is lost
        self.late: list[Any] = []

    def connect(self, address: str) -> Any:
        return _HeldConnection(self, address)


class _HeldConnection(MemoryConnection):
    async def call(self, method: Any, request: Any, timeout_s: float) -> Any:
        held: Any = self._transport
        if method is held.method and not held.late:
            copy = type(request)()
            copy.CopyFrom(request)
            server = self._server()
            held.late.append(lambda: server.handlers[method](CallContext(method, "late"), copy))
            if held.lost_after:
                await held.late[0]()
            raise TransportError(f"{self.address}: no answer in time")
        return await super().call(method, request, timeout_s)


async def _routes(_: CallContext, __: client_pb2.RouteRequest) -> client_pb2.RouteReply:
    broker = client_pb2.BrokerRoute(id="g1-0", address="h:1001", permission=3, live=True)
    return client_pb2.RouteReply(
        cluster="c",
        groups=[client_pb2.GroupRoute(group="g1", epoch=1, mode="MASTER", brokers=[broker])],
        topics=[
            client_pb2.TopicRoute(
                name="orders",
                id=1,
                groups=[client_pb2.TopicGroup(group="g1", weight=1, queues=4)],
            )
        ],
    )


def handlers_of(admin: Calls) -> dict[Any, Any]:
    return {**admin.handlers, ROUTES: _routes}


async def test_late_seek_does_not_undo_a_later_seek(tmp_path: Path) -> None:
    """The caller retried, got its answer, and has moved the group elsewhere since."""
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, *(b"%d" % n for n in range(10)))
        await rig.committed()
        net = HeldTransport(SEEK)
        await net.serve("h:1001", handlers_of(admin))
        async with fmqclient.connect("fmq://h:1001", transport=net) as c:
            at_8 = await c.admin().seek("billing", "orders", offset=8, queues=[("g1", 0)])
            assert at_8[0].committed == 8
            at_0 = await c.admin().seek("billing", "orders", offset=0, queues=[("g1", 0)])
            assert at_0[0].committed == 0
        await net.late[0]()
        async with consuming(rig) as member:
            await until(lambda: member.got, "delivered")
            assert member.got[0].first_offset == 0, "what the seek was to bring again is skipped"


async def test_seek_whose_earlier_try_arrived_late_still_succeeds(tmp_path: Path) -> None:
    """The seek is applied twice, with the requested result."""
    async with running(Rig(tmp_path)) as rig:
        admin = admin_of(rig)
        rig.produce(0, *(b"%d" % n for n in range(10)))
        await rig.committed()
        net = HeldTransport(SEEK, lost_after=True)
        await net.serve("h:1001", handlers_of(admin))
        async with fmqclient.connect("fmq://h:1001", transport=net) as c:
            for offset in (8, 3):
                rows = await c.admin().seek("billing", "orders", offset=offset, queues=[("g1", 0)])
                assert [row.committed for row in rows] == [offset]
        entry = rig.offsets.get(key(0))
        assert entry is not None
        assert entry.floor == 3


class Tree:
    """Stands in for ZooKeeper."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}

    async def sync(self, path: str) -> None: ...

    def watch(self, path: str, changed: Any) -> Any:
        return lambda: None

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        found = self.nodes.get(path)
        return None if found is None else Node(*found, 0)

    async def children(self, path: str) -> list[str]:
        under = [p[len(path) + 1 :] for p in self.nodes if p.startswith(path + "/")]
        return sorted({name.partition("/")[0] for name in under})

    async def create(self, path: str, data: bytes, **_: Any) -> None:
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = (data, 0)

    async def set(self, path: str, data: bytes, version: int) -> int:
        if version not in (-1, self.nodes[path][1]):
            raise BadVersion(path)
        self.nodes[path] = (data, self.nodes[path][1] + 1)
        return self.nodes[path][1]

    async def delete(self, path: str, version: int = -1) -> None:
        self.nodes.pop(path, None)


async def test_late_deletion_does_not_touch_recreated_topic() -> None:
    """The deletion would remove everything in the new topic."""
    tree, group = Tree(), GroupName("g1")
    config = GroupConfig(group, BrokerId("g1-0"), (Member(BrokerId("g1-0"), "h:1001"),))
    await tree.create(layout.config_node("c", group), config_to_json(config))
    view = ClusterView(tree, "c")  # type: ignore[arg-type]
    await view.load()

    async def create(
        _: CallContext, request: admin_pb2.CreateTopicRequest
    ) -> admin_pb2.CreateTopicReply:
        topic = await view.create_topic(request.name, request.queues, (), if_not_exists=True)
        return admin_pb2.CreateTopicReply(topic=client_pb2.TopicRoute(name=topic.name, id=topic.id))

    async def delete(
        _: CallContext, request: admin_pb2.DeleteTopicRequest
    ) -> admin_pb2.DeleteTopicReply:
        await view.delete_topic(request.name, TopicId(request.id) if request.id else None)
        return admin_pb2.DeleteTopicReply()

    net = HeldTransport(DELETE_TOPIC)
    handlers = {CREATE_TOPIC: create, DELETE_TOPIC: around(delete, STANDARD)}
    await net.serve("h:1001", {**view.handlers, **handlers})
    async with fmqclient.connect("fmq://h:1001", transport=net) as c:
        admin = c.admin()
        for call in (admin.create_topic, admin.delete_topic, admin.create_topic):
            try:
                await call("orders")
            except fmqclient.Unavailable:
                await call("orders")  # as a client does
    assert (await net.late[0]()).error.code == ErrorCode.NOT_FOUND
    assert list(view.topics) == ["orders"]
    await view.delete_topic("orders")  # whichever it is
    assert not view.topics
