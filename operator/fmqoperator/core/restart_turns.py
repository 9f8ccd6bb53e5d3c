"""Whose turn it is when the brokers of several groups are to be restarted. Pure.

Groups of one cluster share topics: their brokers are restarted group by group, whatever the reason.
A change that came to two groups at once would stop a slave of each, and a topic over both takes no
message meanwhile. Paused groups block no other group; nor does a group wait to restart a broker
that runs nothing, or is not in sync: that takes nothing away.

A new default image (`Defaults.broker_image`, of an upgrade of the operator) makes the pods outdated
of every group that names no image, and a new template of an operator those of all groups. They are
updated group by group: a group that has started holds its turn until all its brokers run the new
version and are in sync, so that a version that does not work stops at the first group. What a
group's own resource asks for does not wait for groups of other clusters, nor do they wait for it.

The turn is in the group's status (`memory.restart_turn`), so that the next operator knows it. Two
rounds of one operator never take the same turn (`shell/groups.py`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fmqoperator.api.base import Json
from fmqoperator.api.group import RESTART
from fmqoperator.core import facts
from fmqoperator.core import switchovers as moves
from fmqoperator.core.children import names
from fmqoperator.core.children.pod import template
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Move, Restart, Step

TEMPLATE: Final = "template"
OWN: Final = "own"
"""A turn for what the group's own resource asks for: image, settings, a restart."""
_NAMED: Final = 3


def brought(seen: Observation) -> str:
    """Return what the operator changed if that outdates pods of this group, else "".

    It is the operator's default image, or `TEMPLATE`.
    """
    image, stale = seen.defaults.broker_image, facts.outdated(seen)
    asked = facts.template_note(seen, RESTART)
    if not stale or any(p.restart != asked for p in stale):
        return ""
    if not seen.group.spec.image and any(p.image != image for p in stale):
        return image
    return TEMPLATE if is_brought(seen) else ""


def template_of(seen: Observation) -> str:
    """Return a digest that distinguishes pods made now from others.

    It ignores a restart that was asked for and the default image: pods show these themselves, and a
    group that names an image asked for it.
    """
    made = template(seen.group, replace(seen.defaults, broker_image=""))
    made["metadata"]["annotations"].pop(RESTART, None)
    return names.digest(made)


def is_brought(seen: Observation) -> bool:
    """Whether the operator changed that template: the resource has not changed since."""
    known = seen.group.status
    if template_of(seen) == known.memory.template:
        return known.memory.template_from_operator
    return known.observed_generation == seen.group.metadata.generation


def noted(seen: Observation, due: Iterable[tuple[Json, str]], *, known: bool) -> Json:
    """Return what the status remembers: whose change it is, until all pods are made from it.

    `due`: objects that are not as wanted, if that is `known`.
    """
    rolled = known and not any(child["kind"] == "StatefulSet" for child, _ in due)
    brought = is_brought(seen) or (rolled and facts.all_up_to_date(seen))
    return {"template": template_of(seen), "template_from_operator": brought}


def waits_for(seen: Observation) -> str:
    """Return why it is not this group's turn; "" = it is, or the group already has it."""
    if seen.group.status.memory.restart_turn:
        return ""
    if seen.rolling:
        return f"{_some(seen.rolling)} first: groups of one cluster are restarted one after another"
    most, others = seen.defaults.updates_at_once, seen.updating
    if not brought(seen) or not most or len(others) < most:
        return ""
    what = "pod template" if brought(seen) == TEMPLATE else "image"
    return (
        f"{_some(others)} first: the operator's new {what} rolls out to "
        f"{most} group{'s' if most > 1 else ''} at a time"
    )


def _some(groups: tuple[str, ...]) -> str:
    more = f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    return f"{', '.join(groups[:_NAMED])}{more}"


def place_of(body: Json) -> tuple[str, frozenset[str], str]:
    """Return where a BrokerGroup's cluster is: its name, its ZooKeeper's servers, the path."""
    spec, namespace = body.get("spec") or {}, body["metadata"].get("namespace", "")
    hosts, _, path = str((spec.get("zookeeper") or {}).get("connect", "")).partition("/")
    return spec.get("cluster") or namespace, frozenset(hosts.split(",")), path.strip("/")


def is_same_cluster(one: Json, other: Json) -> bool:
    """Whether two BrokerGroups share topics. (One may name fewer servers of the ensemble.)"""
    first, second = place_of(one), place_of(other)
    return (first[0], first[2]) == (second[0], second[2]) and bool(first[1] & second[1])


def holding(seen: Observation, held: str) -> Observation:
    """Return the observation as if the status had this turn, which could not be written."""
    status = seen.group.status
    memory = status.memory.model_copy(update={"restart_turn": held})
    status = status.model_copy(update={"memory": memory})
    return replace(seen, group=seen.group.model_copy(update={"status": status}))


def updating(seen: Observation, step: Step | None) -> str:
    """Return the change for which it is this group's turn, as in `brought`; "" = none."""
    if isinstance(step, Move | Restart) and step.spreads:
        return brought(seen) or OWN
    spec, held = seen.group.spec, seen.group.status.memory.restart_turn
    own = bool(spec.image) and held not in (TEMPLATE, OWN)
    over = spec.paused or spec.hibernated or own or _is_whole(seen)
    return "" if over else held


def _is_whole(seen: Observation) -> bool:
    """Whether every broker runs the new version, and all slaves are in sync."""
    if not facts.all_up_to_date(seen) or moves.unsettled(seen):
        return False
    config = facts.config_of(seen)
    master = facts.state_of(seen).master
    slaves = [] if config is None else [str(m.id) for m in config.members if m.id != master]
    return all(facts.is_in_sync(seen, slave) for slave in slaves)
