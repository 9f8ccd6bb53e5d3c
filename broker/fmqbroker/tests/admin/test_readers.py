"""Which consumer groups read a topic here, by its chain."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fmqbroker.admin.readers import Readers
from fmqbroker.tests.ordered_bench import CHANGES, G1, OPEN

GROUPS = [f"app-{number:04}" for number in range(1000)]
CHAIN = replace(
    OPEN,
    heads=tuple((name, (1, 1)) for name in GROUPS),
    temporary=frozenset(GROUPS[:1]),
)


class Steps:
    """Stands in for `Slices`."""

    def __init__(self) -> None:
        self.count = 0

    async def step(self, count: int = 1) -> None:
        self.count += count


def readers() -> Readers:
    offsets: Any = SimpleNamespace(groups_in=lambda _: (), is_temporary=lambda *_: False)
    chains: Any = SimpleNamespace(of=lambda _: CHAIN)
    return Readers(G1, offsets, chains)


async def test_each_subscription_of_a_chain_is_a_step_of_its_own() -> None:
    """A chain may have thousands of subscriptions: one turn for all would stop the loop."""
    steps: Any = Steps()
    assert readers().names(CHANGES) == GROUPS
    for name in GROUPS:
        assert await readers().reads_all(name, CHANGES, steps)
    assert not await readers().reads_all("another", CHANGES, steps)
    assert steps.count == len(GROUPS) + 1


def test_temporary_subscription_is_known_by_the_chain_alone() -> None:
    """It was opened while this broker group had no reader, which would have noted it."""
    assert [name for name in GROUPS if readers().is_temporary(name, CHANGES)] == GROUPS[:1]
