"""Whose turn it is when the operator itself brings something new to many groups. Pure.

A new default image (`Defaults.broker_image`, of an upgrade of the operator) makes the pods of every
group outdated that names no image of its own. They are updated group by group: one that has begun
holds its turn until all its brokers run what is new and are in sync, so that an image that does
not work stops at the first group. A group that names its image waits for nobody, nor does anybody
wait for it; nor one that somebody asked to restart.

The turn is in the group's status (`memory.updating`), so that the next operator knows of it. Two
rounds of one operator never take the same turn (`shell/groups.py`).
"""

from dataclasses import replace
from typing import Final

from fmqoperator import facts, moves
from fmqoperator.resources import RESTART
from fmqoperator.seen import Observation
from fmqoperator.words import Move, Restart, Step

_NAMED: Final = 3


def brought(seen: Observation) -> str:
    """The operator's default image, if that is what makes pods of this group outdated; else ""."""
    image, stale = seen.defaults.broker_image, facts.outdated(seen)
    if seen.group.spec.image or all(p.image == image for p in stale):
        return ""
    asked = facts.template_note(seen, RESTART)
    return "" if any(p.restart != asked for p in stale) else image


def waits_for(seen: Observation) -> str:
    """Why it is not this group's turn; "" = it is, or it has it already."""
    most, others = seen.defaults.updates_at_once, seen.updating
    if seen.group.status.memory.updating or not most or len(others) < most:
        return ""
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return (
        f"{', '.join(others[:_NAMED])}{more} first: the operator's new image comes to "
        f"{most} group{'s' if most > 1 else ''} at a time"
    )


def holding(seen: Observation, held: str) -> Observation:
    """As if the status said so: it was true, and could not be written."""
    status = seen.group.status
    memory = status.memory.model_copy(update={"updating": held})
    status = status.model_copy(update={"memory": memory})
    return replace(seen, group=seen.group.model_copy(update={"status": status}))


def updating(seen: Observation, step: Step | None) -> str:
    """The image that this group's turn is about; "" = it has none."""
    if isinstance(step, Move | Restart) and step.spreads:
        return brought(seen)
    spec, held = seen.group.spec, seen.group.status.memory.updating
    over = spec.paused or spec.hibernated or bool(spec.image) or _is_whole(seen)
    return "" if over else held


def _is_whole(seen: Observation) -> bool:
    """Every broker runs what is new, and counts."""
    if not facts.all_up_to_date(seen) or moves.unsettled(seen):
        return False
    config = facts.config_of(seen)
    master = facts.state_of(seen).master
    slaves = [] if config is None else [str(m.id) for m in config.members if m.id != master]
    return all(facts.is_in_sync(seen, slave) for slave in slaves)
