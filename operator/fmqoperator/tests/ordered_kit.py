"""A group with an ordered topic that sends to it, and what tests do to it."""

from dataclasses import replace
from typing import Any

from fmqcore.zk.group_config import KeptOut
from fmqoperator.tests.chain_samples import G1, G2, SENDER, chain, seen
from fmqoperator.tests.world import World, running


def cordon(made: World, broker: str) -> World:
    node = made.pods[broker].node
    made.nodes[node] = replace(made.nodes[node], drain_reason="is cordoned")
    return made


def with_topic(*topics: Any, moves: bool = True) -> World:
    made = running(moves, replicas=3)
    made.chains = topics or (seen(chain(G2, G1), SENDER),)
    return made


def outdated(made: World) -> World:
    """Return the world with a step due: its template is applied, and no pod made from it."""
    made.spec(image="new:2")
    made.round()
    return made


def kept_out(made: World) -> KeptOut | None:
    assert made.config is not None
    return made.config.value.kept_out


def sending_group(made: World) -> str:
    assert made.chains
    found = made.chains[0].chain
    assert found is not None
    assert found.last is not None
    return found.last.group if found.closing is None else ""
