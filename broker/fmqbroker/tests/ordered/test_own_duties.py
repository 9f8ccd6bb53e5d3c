"""The duties of a group's own broker read no more than their step needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from fmqadapters.process.clock import SystemClock
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.own_duties import OwnDuties
from fmqbroker.serving.gate import Gate
from fmqbroker.tests.ordered_harness import G1, G2, PARAMS, Holdings, chain, ids_of, topic
from fmqcore.ids import Permission
from fmqcore.zk.chain import Chain, PerQueue, Segment, Sender
from fmqcore.zk.codec import Versioned

SEGMENTS = (Segment(1, G1, 1, (1,), (0,), end=(4,)), Segment(2, G2, 1, (2,), (7,)))
SHORT = replace(chain(topic()), segments=SEGMENTS, sender=Sender("s", 1), heads=(("app", (1,)),))
"""Segment 1 ends at 4; segment 2 repeats all but its first record."""
CLOSING = replace(SHORT, segments=(replace(SEGMENTS[0], end=None),), closing="planned")


@dataclass
class _Chains:
    written: list[Chain] = field(default_factory=list)

    async def edit(self, _: Versioned[Chain], after: Chain) -> bool:
        self.written.append(after)
        return True


@dataclass
class _Holdings(Holdings):
    progress_reads: int = 0

    def progress(self, topic: Chain) -> Mapping[str, PerQueue]:
        self.progress_reads += 1
        return super().progress(topic)


def _master(holdings: Holdings) -> tuple[OwnDuties, _Chains]:
    gate, chains = Gate(SystemClock()), _Chains()
    gate.extend_lease(1 << 60)
    gate.count_grants(lambda: 0)
    gate.grant(Permission.FULL, "the test says so")
    parts = (cast("ChainCache", chains), holdings, holdings, holdings)
    return OwnDuties(G1, ids_of(G1)[0], gate, *parts), chains


async def test_end_is_given_without_a_read_of_any_progress() -> None:
    holdings = _Holdings(ends=(4,))
    own, chains = _master(holdings)
    for _ in range(2):
        assert (await own.step(Versioned(CLOSING, 1), 0, PARAMS)).acted
    assert holdings.order == ["seal 1"]
    assert [written.segments[0].end for written in chains.written] == [(4,)]
    assert holdings.progress_reads == 0


async def test_end_is_lowered_with_the_progress_read_once() -> None:
    holdings = _Holdings(ends=(2,), progress_of={"app": (2,)})
    own, chains = _master(holdings)
    assert (await own.step(Versioned(SHORT, 1), 0, PARAMS)).acted
    assert [written.segments[0].end for written in chains.written] == [(2,)]
    assert holdings.progress_reads == 1
