"""Owners of the brokers' claims, by which the garbage collector deletes volumes. Pure.

It deletes a claim once none of the owners exists any more. So with `storage.onDelete: Delete` the
BrokerGroup is an owner: its volumes go with it, with or without an operator, and with nothing else,
as a person who deletes the StatefulSet only wants it recreated (ADR 0045). A broker that is stopped
for good takes its volume along by the pod that its StatefulSet's controller names, if that is the
only owner.
"""

from collections.abc import Collection
from dataclasses import dataclass

from fmqoperator.api.parts import Reclaim
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts
from fmqoperator.core.children import names
from fmqoperator.core.observation import Claim, Observation

GROUP = "BrokerGroup"
_SET, _POD = "StatefulSet", "Pod"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a claim's owners."""

    claim: Claim
    goes: bool  # from now on it goes with the group
    drops: tuple[str, ...]  # uids of owners with which it goes no more
    cause: str


def changes(seen: Observation, leaving: Collection[str], *, ours: bool) -> tuple[Change, ...]:
    """Return claims of the group that go with another owner than they should.

    `leaving`: brokers that take their volume along. `ours`: the group works on its volumes. A group
    that was refused, say for its name, may have been given claims that another was to keep.
    """
    found = []
    for name, claim in sorted((seen.claims or {}).items()):
        broker = name.removeprefix("data-")
        if names.claim(broker) == name and names.is_broker(seen.group.name, broker):
            change = _change(seen, broker, claim, broker in leaving, ours)
            if not claim.deleting and (change.goes or change.drops):
                found.append(change)
    return tuple(found)


def _change(seen: Observation, broker: str, claim: Claim, leaves: bool, ours: bool) -> Change:
    keeps = seen.group.spec.storage.on_delete is Reclaim.RETAIN
    uid, kinds = seen.group.metadata.uid, {kind for kind, _ in claim.owners}
    has = (GROUP, uid) in claim.owners
    # A claim that was left behind no longer belongs to the group, unless it was to go with it.
    belongs = broker in (*seen.group.brokers, *wanted.leaving(seen)) or _SET in kinds
    goes = not (keeps or has or leaves) and ours and belongs and _POD not in kinds
    drops = [uid] if has and (keeps or leaves) else []
    if _is_past(seen, broker):
        drops += sorted(owner for kind, owner in claim.owners if kind == _SET)
    if goes:
        cause = "storage.onDelete is Delete: it goes with the group"
    elif keeps:
        cause = "storage.onDelete is Retain"
    else:
        cause = "it goes with its broker alone" if leaves else "it stays when the StatefulSet goes"
    return Change(claim, goes, tuple(drops), cause)


def _is_past(seen: Observation, broker: str) -> bool:
    """Whether the claim may keep the mark of a StatefulSet that takes no volumes along any more.

    The StatefulSet's controller, which would remove its mark, looks at no claim without a pod.
    """
    no_pod = seen.pods is not None and broker not in seen.pods
    return no_pod and facts.stateful_set(seen) is not None and not facts.volumes_go_with_set(seen)
