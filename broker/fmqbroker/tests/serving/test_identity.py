"""A restarted broker remembers its earlier incarnations and their promises (F3)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.replication.slave import SlaveReplication
from fmqbroker.serving.identity import Identity, begin, forget_promises
from fmqcore.errors import Unavailable
from fmqcore.failover.term_rules import promise_ms
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.journal.journal_identity import INCARNATIONS
from fmqcore.zk.live_broker import LiveBroker

ME, HOME, NOW_MS = BrokerId("g1-1"), "dev/g1", 1_000_000
GROUP: Any = SimpleNamespace(home=HOME, live={}, session_timeout_ms=2000)


class Clock:
    """A clock that stands unless moved, and records how long a caller would have slept."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self.now_ms = NOW_MS
        self._drawn = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def random_id(self) -> int:
        self._drawn += 1
        return self._drawn

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


async def live(directory: Path, grant_ms: int, clock: Any, *, long: bool = False) -> Identity:
    """An incarnation that promises for that long; `long`: the longest promise before it."""
    disk = FileDisk(str(directory))
    try:
        identity = await begin(ME, GROUP, disk, clock, grant_ms)
        if long:
            await forget_promises(identity, GROUP, disk, clock, grant_ms)
        return identity
    finally:
        await disk.close()


@pytest.mark.parametrize(
    ("lives", "granted_ms"),
    [
        ([1500], 1500),
        ([1500, 1500], 1500),
        ([1500, 9000], 9000),
        ([9000, 1500], 9000),  # what it promised may still run
        ([9000, 1500, 1500, 1500], 9000),  # none of them lasted until it was over
    ],
)
async def test_the_longest_promise_that_may_still_run(
    tmp_path: Path, lives: list[int], granted_ms: int
) -> None:
    clock: Any = Clock()
    found = [await live(tmp_path, grant_ms, clock) for grant_ms in lives]
    assert found[-1].granted_ms == granted_ms
    assert found[-1].earlier == ({found[-2].incarnation} if len(found) > 1 else set())


async def test_expired_promise_is_forgotten(tmp_path: Path) -> None:
    clock: Any = Clock()
    await live(tmp_path, 9000, clock, long=True)
    assert clock.slept_s == [], "there is nothing longer than its own"
    second = await live(tmp_path, 1500, clock, long=True)
    assert clock.slept_s == [promise_ms(9000) / 1000]
    third = await live(tmp_path, 1500, clock)
    assert (second.granted_ms, third.granted_ms) == (9000, 1500)
    assert third.earlier == {second.incarnation, *second.earlier}


async def test_previous_live_node_is_remembered_until_it_is_gone(tmp_path: Path) -> None:
    """The next incarnation need not wait for the node if this one ends before replacing it."""
    clock: Any = Clock()
    first = await live(tmp_path, 1500, clock)
    node = LiveBroker(ME, first.incarnation, "h:1", Epoch(1), Position(0))
    GROUP.live[ME] = node
    try:
        second = await live(tmp_path, 1500, clock)
        third = await live(tmp_path, 1500, clock)
    finally:
        del GROUP.live[ME]
    assert third.earlier == {first.incarnation, second.incarnation}


class Away(SimpleNamespace):
    """A stranger's node stands and ZooKeeper does not answer for a while; then it is gone."""

    def __init__(self, clock: Any) -> None:
        node = LiveBroker(ME, "stranger", "h:1", Epoch(1), Position(0))
        super().__init__(home=HOME, live={ME: node}, session_timeout_ms=2000, clock=clock)
        self.asked = 0

    async def refresh(self) -> None:
        self.asked += 1
        self.clock.now_ms += 1500
        if self.asked < 9:
            raise Unavailable("cut")
        self.live.clear()


async def test_a_session_does_not_run_out_while_zookeeper_is_away(tmp_path: Path) -> None:
    """A broker started in an outage would refuse, though its name is free in a moment."""
    clock: Any = Clock()
    group: Any = Away(clock)
    disk = FileDisk(str(tmp_path))
    try:
        assert (await begin(ME, group, disk, clock, 1500)).incarnation
    finally:
        await disk.close()
    assert group.asked == 9


@pytest.mark.parametrize("line", ["grant_ms=", "grant_ms=x", "grant_ms=-9000", ""])
async def test_directory_without_an_identity_record_starts(tmp_path: Path, line: str) -> None:
    """From an older version, or spoilt: nothing is known, and no broker is kept from starting."""
    (tmp_path / INCARNATIONS).write_text(f"{HOME}\n{line}\nabc\n")
    clock: Any = Clock()
    found = await live(tmp_path, 1500, clock)
    assert found.granted_ms == 1500
    assert found.earlier == {"abc"}


@pytest.mark.parametrize(("granted_ms", "longest_ms"), [(0, 800), (800, 800), (9000, 9000)])
def test_starting_broker_claims_nothing_before_its_promise_ends(
    granted_ms: int, longest_ms: int
) -> None:
    commit: Any = SimpleNamespace(advance=lambda *_: None)
    journal: Any = SimpleNamespace(known_commit_end=0, end=0)
    group: Any = SimpleNamespace(on_master=lambda _: None)
    settings: Any = SimpleNamespace(broker="g1-1", grant_ms=800, redial_min_ms=1)
    clock: Any = Clock()
    none: Any = None
    parts = (settings, clock, none, journal, commit, group)
    slave = SlaveReplication(*parts, "i", None, granted_ms)
    assert slave.upstream.promised_until_ms == NOW_MS + promise_ms(longest_ms)
