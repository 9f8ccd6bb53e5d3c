"""Which troubles are news: reported once while they last, again when they recur, not too often."""

from typing import Any

import pytest

from fmqoperator.core.event_dedup import (
    MOST,
    REPEAT_AFTER_S,
    ReportedEvents,
    counted,
    lasting,
    old_definition,
)
from fmqoperator.core.observation import Failure

KEY = ("uid-1", "ZooKeeperAway", "zk:2181 does not answer")

# Each letter is a second: T = a round that reports it, t = one that reports it and then fails, . =
# a whole round that does not, ! = one that fails before it could, ~ = nothing happens. Expected: +
# where it is news.


@pytest.mark.parametrize(
    ("rounds", "news"),
    [
        ("T", "+"),
        ("TTTT", "+---"),
        ("T.T", "+-+"),  # it was over
        ("T...T", "+---+"),
        ("T~T", "+--"),
        ("T!T", "+--"),  # a round that failed says nothing about it
        ("t!!t!t", "+-----"),
        ("T.TT.T", "+-+--+"),
        ("TTT.T", "+---+"),
        (".T", "-+"),
        ("T." * 8, "+-" * MOST + "--" * (8 - MOST)),  # up and down
    ],
)
def test_news(rounds: str, news: str) -> None:
    events, found = ReportedEvents(), ""
    for now_s, what in enumerate(rounds):
        found += "+" if what in "Tt" and events.is_news(KEY, now_s) else "-"
        if what in "T.":
            events.round_ended(KEY[0])
    assert found == news


def test_lasting_trouble_is_reported_again_after_a_while() -> None:
    events = ReportedEvents()
    times = [now_s for now_s in range(0, 2000, 10) if events.is_news(KEY, now_s)]
    assert times == [0, REPEAT_AFTER_S, 2 * REPEAT_AFTER_S, 3 * REPEAT_AFTER_S]


def test_flapping_trouble_is_reported_a_bounded_number_of_times() -> None:
    events, times = ReportedEvents(), []
    for now_s in range(0, 3600, 5):
        if (now_s // 5) % 2:
            events.round_ended(KEY[0])
        elif events.is_news(KEY, now_s):
            times.append(now_s)
        events.round_ended(KEY[0])
    for now_s in times:
        assert sum(now_s <= other < now_s + REPEAT_AFTER_S for other in times) <= MOST
    assert len(times) >= MOST * 3600 / REPEAT_AFTER_S - MOST


@pytest.mark.parametrize("other", [("uid-2", *KEY[1:]), (*KEY[:2], "other words")])
def test_another_resource_or_message_is_news(other: tuple[str, str, str]) -> None:
    events = ReportedEvents()
    assert events.is_news(KEY, 0)
    assert events.is_news(other, 0)
    assert not events.is_news(KEY, 1)


def test_another_resources_round_ends_no_trouble() -> None:
    events = ReportedEvents()
    assert events.is_news(KEY, 0)
    for _ in range(3):
        events.round_ended("uid-2")
    assert not events.is_news(KEY, 1)


def test_event_that_could_not_be_written_is_still_news() -> None:
    events = ReportedEvents()
    assert events.is_news(KEY, 0)
    events.forget(KEY)
    assert events.is_news(KEY, 1)
    assert not events.is_news(KEY, 2)


def test_trouble_long_over_is_forgotten() -> None:
    events = ReportedEvents()
    for at in range(25_000):
        events.is_news((f"uid-{at}", "a", "b"), at)
        events.round_ended(f"uid-{at}")
    assert len(events._reports) <= 10_001
    assert len(events._rounds) <= 10_001


FORBIDDEN = Failure("StatefulSet g1", "Forbidden", "you may not")
INVALID = Failure("StatefulSet g1", "Invalid", "it is wrong")


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[FORBIDDEN]], []),  # a single failure
        ([[FORBIDDEN], []], []),
        ([[FORBIDDEN], [FORBIDDEN]], ["Forbidden"]),
        ([[FORBIDDEN], [], [FORBIDDEN]], []),
        ([[FORBIDDEN], [INVALID]], []),
        ([[FORBIDDEN], [INVALID], [INVALID]], ["Invalid"]),
        ([[FORBIDDEN, INVALID], [INVALID]], ["Invalid"]),
    ],
)
def test_second_failure_in_a_row_is_reported(
    rounds: list[list[Failure]], expected: list[str]
) -> None:
    failures: tuple[Failure, ...] = ()
    for now in rounds:
        failures = counted(failures, now)
    found = list(lasting(failures))
    assert [event.reason for event in found] == expected
    for event in found:
        assert event.type == "Warning"
        assert event.message.startswith("StatefulSet g1: ")


@pytest.mark.parametrize(
    ("sent", "there", "dropped"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1}, {}, "a"),
        ({"a": 1, "b": 2, "c": 3}, {"b": 2}, "a, c"),
        ({"a": None}, {}, ""),  # a removal
        ({"a": 1}, {"a": 1, "b": 7}, ""),  # not sent: a foreign field, or the operator's older one
        ({"memory": {"x": 1}}, {"memory": {"x": 1, "y": 2}}, ""),
        ({"memory": {"x": 1, "y": None}}, {"memory": {"x": 1}}, ""),
        ({"memory": {"x": 1}}, {"memory": {}}, "memory"),
        ({"memory": {"x": 1}}, {}, "memory"),
        ({"brokers": [{"x": 1, "y": 2}]}, {"brokers": [{"x": 1}]}, "brokers"),
        ({}, {"a": 1}, ""),
    ],
)
def test_an_older_definition_keeps_less_than_was_sent(sent: Any, there: Any, dropped: str) -> None:
    found = old_definition("BrokerGroup", sent, there)
    assert [f" drops {dropped}: " in f.message for f in found] == ([True] if dropped else [])
    assert len(list(lasting(found))) == len(found), "reported at once"
