"""Observe → plan: what to do now for one group, level-triggered. Pure."""

from fmqoperator.actions import Action
from fmqoperator.seen import Observation


def plan(seen: Observation) -> list[Action]:
    """Everything that can be done at once, in order; empty: all is as declared.

    Equal input, equal plan. What is not known leads to no destructive action.
    """
    raise NotImplementedError
