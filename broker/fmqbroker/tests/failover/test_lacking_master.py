"""When a master that lacks delivered records starts to wait for their holder (ADR 0025)."""

from types import SimpleNamespace
from typing import Any

from fmqbroker.failover.evidence import Gatherer
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker

M, S, T = BrokerId("g1-0"), BrokerId("g1-1"), BrokerId("g1-2")
SHOWN, END = 900, 500


class Group:
    """The view of broker M with a journal up to `END`; `look` returns since when it waits."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.live: dict[BrokerId, LiveBroker] = {}
        self.end = Position(END)
        self.read_by(S)
        parts: Any = SimpleNamespace(me=M, group=self)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self._gatherer = Gatherer(parts, SimpleNamespace(), clock, "i")  # type: ignore[arg-type]

    def read_by(self, reader: BrokerId) -> None:
        mode, shown = Mode.SLAVE_CONSUME, Position(SHOWN)
        state = GroupState(mode, Epoch(2), master=M, reader=reader, max_delivered_position=shown)
        self.state = SimpleNamespace(value=state)

    def there(self, broker: BrokerId, end: int) -> None:
        self.live[broker] = LiveBroker(broker, "i", "a:1", Epoch(1), Position(end))

    def lacking_since_ms(self, now_ms: int) -> int | None:
        self.now_ms = now_ms
        return self._gatherer._lacking_ms(self.end)


def test_lacking_master_waits_from_the_moment_its_source_is_away() -> None:
    group = Group()
    group.there(S, SHOWN)
    assert group.lacking_since_ms(100) is None, "it is there, it may take its time to hand over"
    assert group.lacking_since_ms(5000) is None
    del group.live[S]
    assert group.lacking_since_ms(7000) == 7000
    assert group.lacking_since_ms(8000) == 7000
    group.there(S, SHOWN)
    assert group.lacking_since_ms(9000) is None
    del group.live[S]
    assert group.lacking_since_ms(9500) == 9500


def test_a_reader_that_has_less_is_not_waited_for() -> None:
    group = Group()
    group.there(T, SHOWN - 1)
    group.read_by(T)
    assert group.lacking_since_ms(100) == 100
    group.there(S, SHOWN)  # no longer a reader: it dials within a moment, or never
    assert group.lacking_since_ms(200) == 100


def test_master_that_lacks_nothing_waits_for_no_broker() -> None:
    group = Group()
    assert group.lacking_since_ms(100) == 100
    group.end = Position(SHOWN)
    assert group.lacking_since_ms(200) is None
