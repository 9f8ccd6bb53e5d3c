"""A person whom an alarm calls: empties a disk, lets a group begin again, releases a segment.

A disk is emptied only where that slave may not follow and can have more than its master without a
defect. Else the refusal must stay, and the group is never whole again (I11), which shows the
defect. A group begins again only if at least two disks were lost. The loss of records of a segment
is accepted where its master asks for that: consumers would wait there for good.
"""

import asyncio
from functools import partial
from typing import Final

from e2e.history.cluster_events import Fault, FaultKind, State, Step
from e2e.traffic.ports import Door
from fmqcore.errors import FmqError, InvalidArgument
from fmqcore.ids import GroupName
from fmqcore.policy import HowMany, SlaveCounts
from fmqcore.zk import layout as paths
from fmqcore.zk.group_state import begin_again_state, state_to_json
from fmqsim.scenario.api import GroupWorld
from fmqsim.scenario.hosts import BrokerHost, ClientHost
from fmqsim.scenario.scene import CLUSTER

_COMES_S: Final = 1.0
_RELEASES_S: Final = 3.0
_AGAIN_S: Final = 0.5
_DECIDES_S: Final = 30.0
"""Delay of the decision: a broker that is only away for a while is back by then."""


class Person:
    """Reads the brokers' logs, and knows which brokers were declared lost."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._given_up: set[str] = set()
        self._asked: set[tuple[str, int]] = set()

    def gives_up(self, broker: str) -> None:
        """Note that a broker is declared lost (ADR 0022)."""
        self._given_up.add(broker)

    def refused(self, slave: str, reason: str) -> None:
        """Handle a master's log event that it refuses a slave."""
        host = self._world.brokers[slave]
        if "would lose committed bytes" in reason and self._may_have_more(host):
            self._world.loop.at_world(_COMES_S, self._empty, host)

    def waits(self, group: str, epoch: int) -> None:
        """Handle a broker's log event that it waits for a person because journals are lost."""
        if (group, epoch) not in self._asked:
            self._asked.add((group, epoch))
            self._world.loop.at_world(_DECIDES_S, self._begin_again, group, epoch)

    def loses(self, topic: str, segment: int) -> None:
        """Handle a master's log event that its whole group has lost records of a segment."""
        name = f"person-{segment}"
        if name not in self._world.clients:
            release = partial(self._release, topic, segment)
            host = self._world.clients[name] = ClientHost(self._world, name, release)
            self._world.loop.at_world(_RELEASES_S, host.start)

    async def _release(self, topic: str, segment: int, door: Door) -> None:
        """Act as `fmq ordered release --accept-loss`. Run it as a client."""
        while self._world.traffic.consuming:
            try:
                async with door.client("person") as client:
                    await client.admin().ordered.release(topic, segment, accept_loss=True)
                    return
            except InvalidArgument:
                return  # it is gone
            except FmqError:
                await asyncio.sleep(_AGAIN_S)

    def _begin_again(self, group: str, epoch: int) -> None:
        """Act as `fmq cluster begin-again` if the group still waits there and disks were lost."""
        world = self._world
        state = world.state(group)
        members = {m.id for m in world.configs[group].members}
        emptied = {
            e.on
            for e in world.history.events
            if isinstance(e, Fault) and e.kind is FaultKind.DISK_EMPTY and e.on in members
        }
        if state.epoch == epoch and len(emptied | self._given_up & members) > 1:
            world.loop.note(f"a person lets {group} begin again at epoch {epoch}")
            node = paths.state_node(CLUSTER, GroupName(group))
            world.ensemble.put(node, state_to_json(begin_again_state(state)))

    def _may_have_more(self, host: BrokerHost) -> bool:
        """Whether the slave may have more than its master without a defect.

        Reads were taken back (ADR 0025), or the policy requires no slave to have anything: NONE,
        and SENT of a master that was declared lost.
        """
        world, policy = self._world, self._world.configs[host.group].policy
        taken_back = any(
            isinstance(e, State)
            and e.group == host.group
            and e.degraded
            and e.max_delivered_position
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
