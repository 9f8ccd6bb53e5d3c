"""Search the small world (`world.py`) breadth first, by hashed states; random walks for depth."""

import random
from typing import NamedTuple

from fmqcore.tests.ordered.events import successors
from fmqcore.tests.ordered.properties import broken
from fmqcore.tests.ordered.world import Protocol, Size, World


class Found(NamedTuple):
    """What a search found: the states, whether it came to the end, the shortest way to a fault."""

    states: int
    complete: bool
    depth: int
    way: list[str]


def explore(start: World, p: Protocol, size: Size, limit: int, depth: int = 1_000) -> Found:
    """Search until the first fault, `limit` states, or `depth` events.

    Keeps a hash of each state and the way as parent numbers: some 200 bytes a state.
    """
    seen = {hash(start)}
    parents: list[tuple[int, str]] = [(-1, "")]
    frontier = [(0, start)]
    for level in range(depth):
        following: list[tuple[int, World]] = []
        for number, w in frontier:
            for label, after in successors(w, p, size):
                key = hash(after)
                if key in seen:
                    continue
                seen.add(key)
                parents.append((number, label))
                wrong = broken(after, size)
                if wrong:
                    return Found(len(seen), False, level + 1, [*_way(parents), wrong])
                following.append((len(parents) - 1, after))
            if len(seen) >= limit:
                return Found(len(seen), False, level + 1, [])
        frontier = following
        if not frontier:
            return Found(len(seen), True, level + 1, [])
    return Found(len(seen), False, depth, [])


def _way(parents: list[tuple[int, str]]) -> list[str]:
    steps = []
    number = len(parents) - 1
    while number > 0:
        number, label = parents[number]
        steps.append(label)
    return steps[::-1]


def replay(start: World, p: Protocol, size: Size, script: str) -> World:
    """Return the world after a script: in each line the start of an event's label."""
    w = start
    for begin in (line.strip() for line in script.splitlines() if line.strip()):
        choices = dict(successors(w, p, size))
        label = next((label for label in choices if label.startswith(begin)), None)
        assert label is not None, f"{begin!r} is none of {sorted(choices)}"
        w = choices[label]
        assert not broken(w, size), broken(w, size)
    return w


def walk(start: World, p: Protocol, size: Size, seed: int, steps: int) -> tuple[World, list[str]]:
    """Walk at random; return the last world, and the way if it is broken."""
    chance = random.Random(seed)
    w, way = start, list[str]()
    for _ in range(steps):
        choices = list(successors(w, p, size))
        if not choices:
            break
        label, w = chance.choice(choices)
        way.append(label)
        wrong = broken(w, size)
        if wrong:
            return w, [*way, wrong]
    return w, []
