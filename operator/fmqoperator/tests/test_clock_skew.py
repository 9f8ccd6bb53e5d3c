"""Times that an operator with another clock wrote: no wait lasts longer than it should."""

from fmqcore.ids import BrokerId
from fmqoperator.api.times import as_text, of_text
from fmqoperator.core.facts import REPLICATION, behind_since_ms
from fmqoperator.core.promotion import Wait, gone_since_ms, promotion
from fmqoperator.core.status.group import status
from fmqoperator.tests.plan_kit import lose_master
from fmqoperator.tests.world import running

AHEAD_MS = 3_600_000


def test_promotion_delay_counts_from_now_if_the_clock_was_ahead() -> None:
    made = running(True, promotion={"policy": "after", "afterSeconds": 60})
    lose_master(made)
    made.run(lambda w: gone_since_ms(w.seen()) is not None)
    made.body["status"]["memory"]["masterGoneSinceMs"] = made.now_ms + AHEAD_MS
    found = promotion(made.seen())
    assert isinstance(found, Wait)
    assert found.at_ms == made.now_ms + 60_000
    made.round()
    assert made.body["status"]["memory"]["masterGoneSinceMs"] == made.now_ms


def test_broker_is_behind_since_now_if_the_clock_was_ahead() -> None:
    made = running(True)
    made.silent.add(BrokerId("g1-1"))
    made.broken.add("g1-1")
    made.run(lambda w: behind_since_ms(w.seen()) is not None)
    for each in made.body["status"]["conditions"]:
        if each["type"] == REPLICATION:
            each["lastTransitionTime"] = as_text(made.now_ms + AHEAD_MS)
    times = {c["type"]: c["lastTransitionTime"] for c in status(made.seen())["conditions"]}
    assert of_text(times[REPLICATION]) <= made.now_ms
