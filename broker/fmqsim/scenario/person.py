"""A person called by an alarm, who empties the disk of a slave that may not follow.

Only where that slave can have more than its master without a defect. Else the refusal must stay,
and the group is never whole again (I11), which shows the defect.
"""

from typing import Final

from e2e.history.events import Fault, FaultKind, State, Step
from fmqcore.policy import HowMany, SlaveCounts
from fmqsim.scenario.api import GroupWorld
from fmqsim.scenario.hosts import BrokerHost

_COMES_S: Final = 1.0


class Person:
    """Reads the brokers' logs, and knows which brokers were declared lost."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._given_up: set[str] = set()

    def gives_up(self, broker: str) -> None:
        """Note that a broker is declared lost (ADR 0022)."""
        self._given_up.add(broker)

    def refused(self, slave: str, why: str) -> None:
        """Handle a master's log event that it refuses a slave."""
        host = self._world.brokers[slave]
        if "would lose committed bytes" in why and self._may_have_more(host):
            self._world.loop.at_world(_COMES_S, self._empty, host)

    def _may_have_more(self, host: BrokerHost) -> bool:
        """Whether the slave may have more than its master without a defect.

        Reads were taken back (ADR 0025), or the policy requires no slave to have anything: NONE,
        and SENT of a master that was declared lost.
        """
        world, policy = self._world, self._world.configs[host.group].policy
        taken_back = any(
            isinstance(e, State) and e.group == host.group and e.degraded and e.served_end
            for e in world.history.events
        )
        sent = policy.counts is SlaveCounts.SENT and host.name in self._given_up
        return taken_back or sent or policy.how_many is HowMany.NONE

    def _empty(self, host: BrokerHost) -> None:
        world = self._world
        host.hold()
        host.kill()
        host.storage.files.wipe()
        world.loop.note(f"a person empties the disk of {host.name}")
        kind, step = FaultKind.DISK_EMPTY, Step.FIRED
        world.history.add(Fault(world.loop.now_ms, 0, kind, host.name, step, "by a person"))
        host.let_go()
