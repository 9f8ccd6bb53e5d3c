"""Whether the group's policy can be met while a slave is away. Pure.

Two brokers whose policy asks for a slave take no message while one of them restarts, and none after
a promotion until the lost broker is back: a promotion brings the writes back only where another
slave is left.
"""

from collections.abc import Iterator
from typing import Final

from fmqcore.ids import BrokerId
from fmqcore.policy import can_meet
from fmqcore.zk.group_config import GroupConfig
from fmqoperator.api.group import PromotionPolicy
from fmqoperator.core import desired_config as wanted
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Verdict

KIND: Final = "WriteRedundancy"
_REMEDY: Final = "set spec.replicas to 3 or more (policy.howMany zones: 5 or more, without strict)"


def verdict(seen: Observation) -> Verdict:
    """Return the verdict for all declared brokers, present or not: it is about the next restart."""
    promotes = seen.group.spec.promotion.policy is PromotionPolicy.AFTER
    if len(seen.group.brokers) == 1:
        cause = "one broker: none serves while it restarts: set spec.replicas to 3 or more"
        return Verdict(KIND, "False", "Alone", cause)
    lacking = next(_lacking(seen), "")
    if not lacking:
        return Verdict(KIND, "True", "SlaveMayBeAway", "writes go on while any one slave is away")
    message = f"writes pause while a slave is away, also in each rolling change: {lacking}"
    if promotes:
        message += (
            "; spec.promotion: after a promotion no message is accepted before the lost broker, or "
            "a new one in its place, is in sync"
        )
    reason = "PromotionBringsNoWrites" if promotes else "PausesInUpdates"
    return Verdict(KIND, "False", reason, f"{message}: {_REMEDY}")


def _lacking(seen: Observation) -> Iterator[str]:
    """Yield what the policy lacks, for each remaining master and each broker that is away."""
    config = wanted.config(seen)
    members = [m for m in config.members if m.id in seen.group.brokers]
    for away in members:
        for master in members:
            if master.id != away.id and (cause := _without(config, away.id, master.id)):
                yield cause.partition(";")[0]


def _without(config: GroupConfig, away: BrokerId, master: BrokerId) -> str:
    zones = {m.id: m.zone for m in config.members if m.id != master}
    zone = next(m.zone for m in config.members if m.id == master)
    return can_meet(config.policy, zones, zone, frozenset(zones) - {away})
