"""Each invariant of a chain is noticed when it is broken: K1 to K12."""

from dataclasses import replace

import pytest

from fmqcore.ordered.invariants import broken_invariants, broken_step, require_sound
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, ENDED, G1, NEXT, OPEN, UNKNOWN
from fmqcore.zk.chain import Chain, ChainGroup, Floor, Segment, Sender

FIRST, SECOND = DONE.segments


def _with(first: Segment = FIRST, second: Segment = SECOND) -> Chain:
    return replace(DONE, segments=(first, second))


BROKEN: list[tuple[str, Chain]] = [
    ("K1", _with(second=replace(SECOND, number=3))),
    ("K1", replace(DONE, floor=Floor(1, 1, (0,)))),
    ("K2", _with(first=replace(FIRST, end=None))),
    ("K2", replace(ENDED, closing=None)),
    ("K2", replace(UNKNOWN, closing=None)),
    ("K2", replace(EMPTY, closing="no segment")),
    ("K2", _with(first=replace(FIRST, end_unknown=True))),
    ("K3", _with(first=replace(FIRST, end=(9,)))),
    ("K3", _with(first=replace(FIRST, start=(1, 2)))),
    ("K3", _with(first=replace(FIRST, start=(-1,)))),
    ("K3", replace(DONE, heads=(("app", (1, 1)),))),
    ("K4", _with(second=replace(SECOND, sender_epoch=0))),
    ("K4", replace(OPEN, sender=Sender("copier-1", 2))),
    ("K5", _with(first=replace(FIRST, end=(11,)))),
    ("K5", replace(OPEN, segments=(replace(SECOND, number=3),), floor=Floor(2, 1, (1,)))),
    ("K6", _with(second=replace(SECOND, group=G1, start=(13,)))),
    ("K7", replace(DONE, heads=(("app", (3,)),))),
    ("K7", replace(DONE, heads=(("app", (0,)),))),
    ("K8", replace(NEXT, heads=(("app", (2,)),))),
    ("K9", replace(EMPTY, floor=Floor(0, 1, (5,)))),
    ("K9", replace(EMPTY, floor=Floor(4, 1))),
    ("K10", replace(EMPTY, groups=(ChainGroup(G1),))),
    ("K10", replace(EMPTY, groups=(ChainGroup(G1), ChainGroup(G1)))),
    ("K3", replace(DONE, start_numbers=(("app", (1, 1)),), last_start=1)),
    ("K18", replace(DONE, start_numbers=(("app", (3,)),), last_start=2)),
    ("K18", replace(DONE, start_offsets=(("gone", (3,)),))),
]


@pytest.mark.parametrize("chain", [EMPTY, OPEN, CLOSING, ENDED, UNKNOWN, NEXT, DONE])
def test_sound_chains_break_nothing(chain: Chain) -> None:
    assert broken_invariants(chain) == []
    assert require_sound(chain) is chain
    assert broken_step(chain, chain) == []


@pytest.mark.parametrize(("number", "chain"), BROKEN)
def test_each_broken_invariant_is_named(number: str, chain: Chain) -> None:
    assert number in {what.partition(":")[0] for what in broken_invariants(chain)}
    with pytest.raises(AssertionError, match=rf"{number}: "):
        require_sound(chain)


def test_a_later_end_may_be_given_but_none_is_changed() -> None:
    other = _with(first=replace(FIRST, end=(13,)))
    assert broken_step(NEXT, DONE) == []
    assert broken_step(DONE, other)[0].startswith("K11")
    assert broken_step(DONE, NEXT)[0].startswith("K11")
    assert broken_step(DONE, _with(first=replace(FIRST, start=(9,))))[0].startswith("K11")
    assert broken_step(UNKNOWN, CLOSING)[0].startswith("K11")
    assert broken_step(DONE, other, lowers=True) == []


def test_heads_numbers_and_sender_epochs_never_fall() -> None:
    moved = replace(DONE, heads=(("app", (2,)),))
    assert broken_step(moved, DONE)[0].startswith("K12")
    assert broken_step(DONE, moved) == []
    assert broken_step(DONE, replace(ENDED, heads=DONE.heads))[0].startswith("K12")
    assert broken_step(DONE, replace(DONE, sender=Sender("x", 0)))[0].startswith("K12")
    assert broken_step(moved, replace(moved, heads=())) == []
    assert broken_step(replace(DONE, last_start=2), DONE)[0].startswith("K18")
