"""Walks through the small world (`failover/world.py`): exhaustive, random, and healing."""

import random

from fmqcore.ids import Permission
from fmqcore.tests.failover.events import successors
from fmqcore.tests.failover.world import Protocol, World, broken, serves
from fmqcore.zk.group_state import Mode


def explore(start: World, p: Protocol, depth: int, limit: int) -> tuple[int, list[str]]:
    """Search breadth first; return the number of worlds and the shortest path to a broken one."""
    came: dict[World, tuple[World, str] | None] = {start: None}
    frontier = [start]
    for _ in range(depth):
        following: list[World] = []
        for w in frontier:
            for label, after in successors(w, p):
                if after in came:
                    continue
                came[after] = (w, label)
                wrong = broken(after, p)
                if wrong:
                    return len(came), [*_way(came, after), wrong]
                following.append(after)
        frontier = following
        if len(came) > limit or not frontier:
            break
    return len(came), []


def _way(came: dict[World, tuple[World, str] | None], w: World) -> list[str]:
    steps: list[str] = []
    while (before := came[w]) is not None:
        w, label = before
        steps.append(label)
    return steps[::-1]


def walk(start: World, p: Protocol, seed: int, steps: int) -> tuple[World, list[str]]:
    """Walk at random; return the last world, and the path if it is broken."""
    chance = random.Random(seed)
    w, way = start, list[str]()
    for _ in range(steps):
        choices = [c for c in successors(w, p) if c[1] != w]
        if not choices:
            break
        label, w = chance.choice(choices)
        way.append(label)
        wrong = broken(w, p)
        if wrong:
            return w, [*way, wrong]
    return w, []


def heal(w: World, p: Protocol, rounds: int = 200) -> World:
    """End all faults and dead sessions; every broker continues in turn."""
    w = w._replace(cuts=0, crashes=0, moves=0)
    for _ in range(rounds):
        if w.zk.mode is Mode.MASTER and serves(w, w.zk.master, p) is Permission.FULL:
            return w
        before = w
        for prefix in _ORDER:
            for label, after in successors(w, p):
                if label.startswith(prefix) and after != w:
                    w = after
                    break
        if w == before:
            return w
    return w


_ORDER = (
    "restart", "mend", "expire", "remove", "announce", "link", "grant", "promise", "refused",
    "ship", "in vain",
    "land 0", "land 1", "land 2", "look 0", "decide 0", "look 1", "decide 1", "look 2", "decide 2",
    "freeze", "send", "renew",
)  # fmt: skip
