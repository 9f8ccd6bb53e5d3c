"""Explore the chain of an ordered topic: the real functions in a small world (`world.py`).

The exploration is tested, too: planted mistakes must be found. `python -m fmqcore.tests.ordered`
explores larger worlds.
"""

import pytest

from fmqcore.ordered.evidence import Action
from fmqcore.ordered.machine import RULES
from fmqcore.tests.ordered.mistakes import MISTAKES, READER_FORGOTTEN, Mistake
from fmqcore.tests.ordered.ways import explore, replay, walk
from fmqcore.tests.ordered.world import CHAINS, Faults, Protocol, Size, start
from fmqcore.tests.ordered.worlds import SMALL, Start, begin


@pytest.mark.parametrize("given", SMALL, ids=[s.name.replace(" ", "-") for s in SMALL])
def test_every_world_keeps_order_and_acked_records(given: Start) -> None:
    found = explore(given.world(), given.protocol, given.size, 60_000)
    assert found.way == []
    assert found.complete
    assert found.states >= given.states


@pytest.mark.parametrize("mistake", MISTAKES, ids=[m.name.replace(" ", "-") for m in MISTAKES])
def test_planted_mistakes_are_found(mistake: Mistake) -> None:
    protocol = mistake.protocol()
    world = begin(mistake.script, mistake.faults, mistake.size, protocol)
    found = explore(world, protocol, mistake.size, 30_000)
    print("\n".join(found.way))
    assert found.way, f"not found in {found.states} states"


def test_record_that_a_lost_disk_took_comes_again() -> None:
    size = Size(messages=3, senders=1)
    again = (
        "A sends 2\ng2 replicates\ng2's slave acks\nlower the end 1\nheads move\ng2 delivers 2\n"
    )
    world = begin(READER_FORGOTTEN, Faults(), size, Protocol())
    assert world.consumed == ((1, 1),), "taken back to the end of the journal"
    assert replay(world, Protocol(), size, again).consumed == ((1, 2),)


def test_skipped_record_is_found_though_none_follows() -> None:
    size, protocol = Size(messages=3, segments=3, senders=1), Protocol(keeps_lost_progress=True)
    found = explore(
        begin(READER_FORGOTTEN, Faults(switches=1), size, protocol), protocol, size, 30_000
    )
    assert "acked 3 of epoch 1 is skipped" in found.way[-1]


def test_mistakes_are_the_eight_and_eight_more() -> None:
    assert len({m.name for m in MISTAKES}) == len(MISTAKES) >= 16


def test_random_walks_with_many_faults_keep_the_properties() -> None:
    size, faults = Size(messages=4, segments=6), Faults(3, 3, 1, 3, 3, 2)
    longest = 0
    for seed in range(60):
        world, way = walk(start(size, faults), Protocol(), size, seed, 120)
        assert not way, f"seed {seed}: {way}"
        longest = max(longest, CHAINS[world.chain].next_number - 1)
    assert longest >= 3, "walks that never switch prove little"


def test_every_step_is_taken_by_some_row() -> None:
    used = {row.action for rows in RULES.rows.values() for row in rows}
    assert used == set(Action) - {Action.WAIT}
