"""What a simulation does at the steps of a chain: traps, and the check of an end."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from fmqcore.ids import Position, TopicId
from fmqcore.journal.state import Sealed
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, ENDED, NEXT, OPEN, UNKNOWN
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Floor, Segment, Sender
from fmqcore.zk.chain_json import chain_to_json
from fmqcore.zk.group_state import Mode
from fmqsim.engine.loop import SimLoop
from fmqsim.report.broker_watch import Insight
from fmqsim.scenario.chain_watch import ChainStep, ChainWatch, Sprung, Trap, step_of
from fmqsim.scenario.end_check import wrong_end
from fmqsim.scenario.scene import CLUSTER

LOWER = replace(DONE, segments=(replace(DONE.segments[0], end=(13,)), *DONE.segments[1:]))
ACCEPTED = replace(
    DONE, segments=(replace(DONE.segments[0], end=(11,), loss=True), *DONE.segments[1:])
)
MOVED = replace(DONE, heads=(("app", (2,)),))
DROPPED = replace(MOVED, segments=MOVED.segments[1:], floor=Floor(1, 1, (4,)))
STEPS = [
    (EMPTY, OPEN, ChainStep.OPEN, "g1"),
    (OPEN, CLOSING, ChainStep.CLOSE, "g1"),
    (CLOSING, ENDED, ChainStep.GIVE_END, "g1"),
    (CLOSING, UNKNOWN, ChainStep.DECLARE_UNKNOWN, "g1"),
    (UNKNOWN, NEXT, ChainStep.OPEN, "g2"),
    (NEXT, DONE, ChainStep.GIVE_END, "g1"),
    (DONE, LOWER, ChainStep.LOWER_END, "g1"),
    (DONE, MOVED, ChainStep.MOVE_HEADS, ""),
    (MOVED, DROPPED, ChainStep.DROP, ""),
]
NODE = layout.chain_node(CLUSTER, "changes")


@pytest.mark.parametrize(("before", "after", "step", "group"), STEPS)
def test_change_of_a_chain_is_named(
    before: Chain, after: Chain, step: ChainStep, group: str
) -> None:
    found = step_of(before, after)
    assert found is not None
    assert (found[0], "" if found[1] is None else found[1].group) == (step, group)


def test_new_subscription_is_no_step() -> None:
    assert step_of(OPEN, replace(OPEN, heads=(("app", (1,)), ("audit", (1,))))) is None


class Watch:
    """A watch over one chain, and what it reports."""

    def __init__(self, chain: Chain) -> None:
        self.loop = SimLoop()
        self.ends: list[tuple[str, int]] = []
        self.handed_on: list[Chain] = []
        self.lowered: list[tuple[int, bool]] = []
        self.chains = ChainWatch(self.loop, self._ended, self.handed_on.append, self._lowered)
        self.chains.wrote(NODE, chain_to_json(chain), "")

    def _ended(self, broker: str, _: Chain, segment: Segment) -> None:
        self.ends.append((broker, segment.number))

    def _lowered(self, _: Chain, segment: Segment, accepted: bool) -> None:
        self.lowered.append((segment.number, accepted))

    def asks(self, chain: Chain) -> float | None:
        return self.chains.asks("g1-0", NODE, chain_to_json(chain))

    def wrote(self, chain: Chain) -> None:
        self.chains.wrote(NODE, chain_to_json(chain), "g1-0")


@pytest.mark.parametrize("late_s", [2.5, None])
def test_trap_before_a_step_delays_or_loses_its_write_once(late_s: float | None) -> None:
    watch, seen = Watch(OPEN), list[Sprung]()

    def spring(sprung: Sprung) -> float | None:
        seen.append(sprung)
        return late_s

    watch.chains.arm(Trap(ChainStep.CLOSE, before=True, spring=spring))
    assert watch.asks(CLOSING) == late_s
    assert watch.asks(CLOSING) == 0
    watch.wrote(CLOSING)
    assert seen == [Sprung(ChainStep.CLOSE, "g1-0", "g1")]


@pytest.mark.parametrize(("after", "accepted"), [(LOWER, False), (ACCEPTED, True)])
def test_lower_end_is_reported_with_what_a_person_accepted(after: Chain, accepted: bool) -> None:
    watch = Watch(DONE)
    watch.wrote(after)
    assert watch.lowered == [(1, accepted)]
    assert watch.chains.lowered == 1
    assert not watch.loop.problems


def test_trap_after_a_step_springs_once_its_write_stands() -> None:
    watch, seen = Watch(OPEN), list[Sprung]()

    def spring(sprung: Sprung) -> float:
        seen.append(sprung)
        return 0.0

    traps = [Trap(step, False, spring) for step in (ChainStep.CLOSE, ChainStep.GIVE_END)]
    for trap in traps:
        watch.chains.arm(trap)
    assert watch.asks(CLOSING) == 0
    assert not seen
    watch.wrote(CLOSING)
    assert [sprung.step for sprung in seen] == [ChainStep.CLOSE]
    watch.chains.disarm(traps[1])
    watch.wrote(ENDED)
    assert len(seen) == 1


def test_end_is_seen_before_it_is_written() -> None:
    watch = Watch(CLOSING)
    watch.asks(ENDED)
    assert watch.ends == [("g1-0", 1)]


def test_write_that_breaks_an_invariant_is_a_problem() -> None:
    for wrong in (CLOSING, _ending_at(ENDED, 15)):
        watch = Watch(ENDED)
        watch.wrote(wrong)
        assert any("K11" in problem for problem in watch.loop.problems)


def test_lowered_end_is_a_step() -> None:
    watch = Watch(ENDED)
    watch.wrote(_ending_at(ENDED, 13))
    assert not watch.loop.problems


def _ending_at(chain: Chain, offset: int) -> Chain:
    return replace(chain, segments=(replace(chain.segments[0], end=(offset,)),))


class Group:
    """A master that gives an end, and what its members hold: an `EndWorld`."""

    def __init__(
        self, seal: Sealed | None, held: Mapping[str, int], mode: Mode = Mode.MASTER
    ) -> None:
        seals = {} if seal is None else {TopicId(0): {1: seal}}
        journal = SimpleNamespace(
            state=SimpleNamespace(seals=seals),
            durable_end=Position(500),
            index_start=Position(0),
            committed_offset=lambda _topic, _queue, position: position // 10,
        )
        self._insight = Insight()
        self._insight.journal = cast("None", journal)
        self._insight.gate = cast("None", SimpleNamespace(mode=mode))
        self._held = dict(held)

    def insight(self, _: str) -> Insight:
        return self._insight

    def most_durable(self, _: str) -> dict[str, int]:
        return self._held


WHOLE = {"g1-0": 150, "g1-1": 140}
SEALED = Sealed((14,), Position(500))
WRONG = [
    ("no seal", Group(None, WHOLE), "no durable SEAL"),
    ("another end", Group(Sealed((15,), Position(500)), WHOLE), "no durable SEAL"),
    ("not durable", Group(Sealed((14,), Position(501)), WHOLE), "no durable SEAL"),
    ("a member lacks it", Group(SEALED, WHOLE | {"g1-1": 139}), "g1-1 holds (13,) only"),
]


@pytest.mark.parametrize(("group", "reason"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_master_ends_a_segment_by_a_seal_that_all_hold(group: Group, reason: str) -> None:
    (found,) = wrong_end(group, "g1-0", ENDED, ENDED.segments[0])
    assert reason in found


@pytest.mark.parametrize(
    "group", [Group(SEALED, WHOLE), Group(None, {"g1-1": 0}, Mode.SLAVE_CONSUME)]
)
def test_sealed_end_or_a_takeover_readers_is_right(group: Group) -> None:
    assert not list(wrong_end(group, "g1-0", ENDED, ENDED.segments[0]))


def test_another_senders_segment_is_reported_with_its_chain() -> None:
    watch = Watch(UNKNOWN)
    watch.wrote(NEXT)
    assert watch.handed_on == [], "the same sender goes on"
    deputy = replace(NEXT.segments[1], number=3, sender_epoch=2)
    handed = replace(NEXT, segments=(*DONE.segments, deputy), sender=Sender("deputy", 2))
    watch.wrote(handed)
    assert watch.handed_on == [handed]
