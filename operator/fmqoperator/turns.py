"""Whose turn it is when the operator itself brings something new to many groups. Pure.

A new default image (`Defaults.broker_image`, of an upgrade of the operator) makes the pods of every
group outdated that names no image of its own, and a new template of an operator those of all. They
are updated group by group: one that has begun holds its turn until all its brokers run what is new
and are in sync, so that what does not work stops at the first group. What a group's own resource
asks for waits for nobody, nor does anybody wait for it; nor for one that is asked to restart.

The turn is in the group's status (`memory.updating`), so that the next operator knows of it. Two
rounds of one operator never take the same turn (`shell/groups.py`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fmqoperator import facts, moves
from fmqoperator.objects import names
from fmqoperator.objects.pod import template
from fmqoperator.resources import RESTART, Json
from fmqoperator.seen import Observation
from fmqoperator.words import Move, Restart, Step

TEMPLATE: Final = "template"
_NAMED: Final = 3


def brought(seen: Observation) -> str:
    """What makes pods of this group outdated, if the operator brought it: its default image, or
    `TEMPLATE`; else ""."""
    image, stale = seen.defaults.broker_image, facts.outdated(seen)
    asked = facts.template_note(seen, RESTART)
    if not stale or any(p.restart != asked for p in stale):
        return ""
    if not seen.group.spec.image and any(p.image != image for p in stale):
        return image
    return TEMPLATE if is_brought(seen) else ""


def template_of(seen: Observation) -> str:
    """What tells the pods that would be made now from others. Not a restart that was asked for,
    nor the default image: pods say that themselves, and whoever names it has asked for it."""
    made = template(seen.group, replace(seen.defaults, broker_image=""))
    made["metadata"]["annotations"].pop(RESTART, None)
    return names.digest(made)


def is_brought(seen: Observation) -> bool:
    """That template is another one by the operator's doing: the resource has not changed since."""
    known = seen.group.status
    if template_of(seen) == known.memory.template:
        return known.memory.brought
    return known.observed_generation == seen.group.metadata.generation


def noted(seen: Observation, due: Iterable[tuple[Json, str]], *, known: bool) -> Json:
    """What the status remembers of it: whose doing it is, as long as not all pods are made of it.

    `due`: objects that are not as wanted, if that is `known`.
    """
    rolled = known and not any(child["kind"] == "StatefulSet" for child, _ in due)
    brought = is_brought(seen) or (rolled and facts.all_up_to_date(seen))
    return {"template": template_of(seen), "brought": brought}


def waits_for(seen: Observation) -> str:
    """Why it is not this group's turn; "" = it is, or it has it already."""
    most, others = seen.defaults.updates_at_once, seen.updating
    if seen.group.status.memory.updating or not most or len(others) < most:
        return ""
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    what = "pod template" if brought(seen) == TEMPLATE else "image"
    return (
        f"{', '.join(others[:_NAMED])}{more} first: the operator's new {what} comes to "
        f"{most} group{'s' if most > 1 else ''} at a time"
    )


def holding(seen: Observation, held: str) -> Observation:
    """As if the status said so: it was true, and could not be written."""
    status = seen.group.status
    memory = status.memory.model_copy(update={"updating": held})
    status = status.model_copy(update={"memory": memory})
    return replace(seen, group=seen.group.model_copy(update={"status": status}))


def updating(seen: Observation, step: Step | None) -> str:
    """What this group's turn is about, as `brought`; "" = it has none."""
    if isinstance(step, Move | Restart) and step.spreads:
        return brought(seen)
    spec, held = seen.group.spec, seen.group.status.memory.updating
    own = bool(spec.image) and held != TEMPLATE
    over = spec.paused or spec.hibernated or own or _is_whole(seen)
    return "" if over else held


def _is_whole(seen: Observation) -> bool:
    """Every broker runs what is new, and counts."""
    if not facts.all_up_to_date(seen) or moves.unsettled(seen):
        return False
    config = facts.config_of(seen)
    master = facts.state_of(seen).master
    slaves = [] if config is None else [str(m.id) for m in config.members if m.id != master]
    return all(facts.is_in_sync(seen, slave) for slave in slaves)
