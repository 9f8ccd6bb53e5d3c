"""A broker's live node has a new number each time it is recreated (F13)."""

from fmqadapters.process.clock import SystemClock
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.live_node import LiveNode
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.live_broker import LiveBroker
from fmqport.coordination import Node, SessionState

ME = BrokerId("g1-0")


class Tree:
    """One node, in a continuing session."""

    state, session_id = SessionState.CONNECTED, 77

    def __init__(self) -> None:
        self.node: Node | None = None

    async def get(self, _: str) -> Node | None:
        return self.node

    async def create(self, _: str, data: bytes, *, ephemeral: bool) -> None:
        assert ephemeral
        self.node = Node(data, 0, self.session_id)

    async def set(self, _: str, data: bytes, version: int) -> int:
        assert self.node is not None
        self.node = Node(data, self.node.version + 1, self.session_id)
        return self.node.version


async def no_parent() -> bool:
    raise AssertionError("it is there")


def saying(end: int) -> LiveBroker:
    return LiveBroker(ME, "i", "h:1", Epoch(1), Position(end))


async def test_recreated_live_node_has_new_number_even_if_unnoticed() -> None:
    """Others that looked meanwhile may claim; it is recreated because there is more to report."""
    tree = Tree()
    live = LiveNode(
        tree,  # type: ignore[arg-type]
        SystemClock(),
        "/live/g1-0",
        ME,
        Signal(),
        no_parent,
    )
    await live.announce(saying(8))
    assert live.standing == 1
    await live.announce(saying(16))
    assert live.standing == 1, "it stood all the while"
    tree.node = None
    await live.announce(saying(24))
    assert live.standing == 2
