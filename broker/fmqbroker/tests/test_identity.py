"""What a broker that starts again remembers of the promises of its lives before (F3)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.identity import Identity, begin, forget_promises
from fmqbroker.replicate_slave import SlaveReplication
from fmqcore.failover.claims import promise_ms
from fmqcore.journal.incarnations import INCARNATIONS
from fmqcore.words import BrokerId
from fmqport.files import FileDisk

ME, HOME, NOW_MS = BrokerId("g1-1"), "dev/g1", 1_000_000
GROUP: Any = SimpleNamespace(home=HOME, live={}, session_timeout_ms=2000)


class Clock:
    """Stands; says how long somebody would have slept."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self._drawn = 0

    def monotonic_ms(self) -> int:
        return NOW_MS

    def random_id(self) -> int:
        self._drawn += 1
        return self._drawn

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


async def live(directory: Path, grant_ms: int, clock: Any, *, long: bool = False) -> Identity:
    """A life that promises for so long; `long`: longer than any promise before it."""
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


async def test_a_promise_is_forgotten_when_it_is_over(tmp_path: Path) -> None:
    clock: Any = Clock()
    await live(tmp_path, 9000, clock, long=True)
    assert clock.slept_s == [], "there is nothing longer than its own"
    second = await live(tmp_path, 1500, clock, long=True)
    assert clock.slept_s == [promise_ms(9000) / 1000]
    third = await live(tmp_path, 1500, clock)
    assert (second.granted_ms, third.granted_ms) == (9000, 1500)
    assert third.earlier == {second.incarnation, *second.earlier}


@pytest.mark.parametrize("line", ["grant_ms=", "grant_ms=x", "grant_ms=-9000", ""])
async def test_a_directory_that_says_nothing_of_it(tmp_path: Path, line: str) -> None:
    """Of an older version, or spoilt: nothing is known, and nobody is kept from starting."""
    (tmp_path / INCARNATIONS).write_text(f"{HOME}\n{line}\nabc\n")
    clock: Any = Clock()
    found = await live(tmp_path, 1500, clock)
    assert found.granted_ms == 1500
    assert found.earlier == {"abc"}


@pytest.mark.parametrize(("granted_ms", "longest_ms"), [(0, 800), (800, 800), (9000, 9000)])
def test_who_starts_claims_nothing_before_that_is_over(granted_ms: int, longest_ms: int) -> None:
    commit: Any = SimpleNamespace(advance=lambda *_: None)
    journal: Any = SimpleNamespace(known_commit_end=0, end=0)
    group: Any = SimpleNamespace(on_master=lambda _: None)
    settings: Any = SimpleNamespace(broker="g1-1", grant_ms=800, redial_min_ms=1)
    clock: Any = Clock()
    none: Any = None
    parts = (settings, clock, none, journal, commit, group)
    slave = SlaveReplication(*parts, "i", None, granted_ms)
    assert slave.upstream.promised_until_ms == NOW_MS + promise_ms(longest_ms)
