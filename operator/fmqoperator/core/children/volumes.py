"""The brokers' volumes: whether each exists as large as declared, and which to grow. Pure.

Volumes that brokers left behind, which no longer belong to the group, are kept as they are: they
are not reported, and not grown before their broker is wanted again. No volume is ever made smaller.
"""

from collections.abc import Collection, Mapping
from typing import Final

from fmqoperator.core import facts
from fmqoperator.core.children import names
from fmqoperator.core.children.quantities import amount, too_small
from fmqoperator.core.observation import Claim, Observation
from fmqoperator.core.plan_types import Verdict

KIND: Final = "StorageReady"
NOT_BOUND: Final = "NotBound"
_WORST_FIRST: Final = (
    *("VolumeLost", "VolumeGoes", "NoVolume", "NotBound", "ResizeFails", "CannotGrow", "Growing"),
)
REPORTED: Final = frozenset({"VolumeLost", "VolumeGoes", "ResizeFails", "CannotGrow"})
"""Reasons that a person must look after, reported whenever they start."""


def of_brokers(seen: Observation) -> Mapping[str, Claim] | None:
    """Return the claims of the group's brokers, by broker; None: not known."""
    if seen.claims is None:
        return None
    found = {broker: seen.claims.get(names.claim(broker)) for broker in seen.group.brokers}
    return {broker: claim for broker, claim in found.items() if claim is not None}


def to_grow(seen: Observation) -> list[tuple[str, Claim]]:
    """Return brokers and claims that are to grow now.

    A claim without a volume, and so without a capacity, cannot be changed: the API server refuses.
    """
    size, claims = seen.group.spec.storage.size, of_brokers(seen) or {}
    return [
        (broker, claim)
        for broker, claim in claims.items()
        if not claim.deleting and not claim.lost
        if too_small(claim.requested, size) and too_small(claim.capacity, size)
        if claim.expandable is not False
    ]


def last_copy_goes(seen: Observation, stopped: Collection[str]) -> str:
    """Return why these may not be stopped: the last copy would go; "" = another broker has it.

    Their claims were deleted, and their volumes go with the pods, with all that was acknowledged.
    """
    state = facts.state_of(seen)
    holders = {str(state.master), *map(str, state.isr)} - {""}
    claims = of_brokers(seen) or {}
    gone = {b for b, claim in claims.items() if claim.deleting and not claim.lost}
    going = holders & gone & set(stopped)
    if not going or holders - going:
        return ""
    named = ", ".join(names.claim(broker) for broker in sorted(going))
    return (
        f"claim {named} is being deleted, its volume would go with the pod, and no other broker "
        "holds its data: raise spec.replicas so that a new broker copies it first"
    )


def largest(seen: Observation) -> str:
    """Return the most that a broker's claim asks for: the API server accepts no smaller request."""
    claims = of_brokers(seen)
    if claims is None:
        return seen.group.status.volume_size
    sizes = [c.requested for c in claims.values() if amount(c.requested) is not None]
    return max(sizes, key=lambda size: amount(size) or 0, default="")


def verdict(seen: Observation) -> Verdict:
    """Return whether each broker has its volume, as large as declared, or the worst lack."""
    claims = of_brokers(seen)
    if claims is None:
        return Verdict(KIND, "Unknown", "NotListed", "the group's volumes cannot be listed")
    found: dict[str, list[str]] = {}
    for broker, claim in claims.items():
        if lack := _lack(seen, broker, claim):
            found.setdefault(lack[0], []).append(lack[1])
    missing = [broker for broker in seen.group.brokers if broker not in claims]
    if missing and not seen.group.spec.hibernated:
        found["NoVolume"] = [f"no volume yet: {', '.join(missing)}"]
    worst = next((reason for reason in _WORST_FIRST if reason in found), None)
    if worst is None:
        return Verdict(KIND, "True", "Bound")
    return Verdict(KIND, "False", worst, "; ".join(found[worst]))


def _lack(seen: Observation, broker: str, claim: Claim) -> tuple[str, str] | None:
    """Return what one claim lacks: reason and sentence; None: nothing."""
    size, name = seen.group.spec.storage.size, claim.name
    if claim.lost:
        remedy = f"delete claim {name} and pod {broker}: the broker then copies the journal"
        return "VolumeLost", f"volume of {broker} is lost: {remedy}"
    if claim.deleting:
        return "VolumeGoes", f"claim {name} is being deleted"
    if not claim.capacity:
        cause = f"claim {name} has no volume yet: kubectl describe pvc {name} shows why"
        return NOT_BOUND, cause
    if not too_small(claim.capacity, size):
        return None
    if claim.resize:
        return "ResizeFails", f"claim {name} cannot grow to {size}: {claim.resize}"
    if too_small(claim.requested, size) and claim.expandable is False:
        cause = "its StorageClass does not grow volumes"
        now = largest(seen)
        back = f", or set storage.size back to {now}" if too_small(now, size) else ""
        return (
            "CannotGrow",
            f"claim {name} cannot grow: {cause}: set allowVolumeExpansion there{back}",
        )
    waits = f": {claim.waits}" if claim.waits else ""
    return "Growing", f"claim {name} grows to {size}{waits}"
