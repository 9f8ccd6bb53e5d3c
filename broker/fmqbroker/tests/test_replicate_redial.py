"""When a slave dials again: at once if its master has come, else after a growing pause."""

from pathlib import Path

import pytest

from fmqbroker.tests.replication_harness import Cluster, cluster, turns, until
from fmqcore.cluster import LiveBroker
from fmqcore.words import Epoch, Position

HOUR_MS = 3_600_000


def announced(c: Cluster, incarnation: str) -> None:
    """The slave sees that live node of its master; none if there is no incarnation."""
    node = LiveBroker(c.master.name, incarnation, "", Epoch(1), Position(0))
    c.slaves[0].group.live = {c.master.name: node} if incarnation else {}
    c.slaves[0].group.changed.notify()


async def test_a_master_that_comes_is_dialed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the pause between two tries is over; and once, not again and again."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        patient = {"redial_min_ms": HOUR_MS, "redial_max_ms": HOUR_MS}
        slave.slave._settings = slave.settings.model_copy(update=patient)
        slave.slave._delay_ms = HOUR_MS
        monkeypatch.setattr(slave.clock, "uniform", lambda low, high: low)  # half an hour, or none
        announced(c, "one")
        await c.master.stop(crash=True)
        await until(lambda: not slave.slave.upstream.connected)
        announced(c, "")
        await turns()
        dials = slave.tap.dials
        await c.master.start()
        await c.master.open_term()
        announced(c, "two")
        await until(lambda: slave.slave.upstream.connected)
        slave.tap.cut()
        await until(lambda: not slave.slave.upstream.connected)
        for _ in range(10):
            announced(c, "two")  # something else has changed: it was dialed since it came
            await turns()
        assert slave.tap.dials == dials + 1
