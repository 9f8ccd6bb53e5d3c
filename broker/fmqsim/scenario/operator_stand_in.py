"""A stand-in for the operator: writes the groups' configuration, and sometimes changes it."""

from dataclasses import replace
from typing import Final

from e2e.traffic.ordered import HOLDER, subscribe_in_order
from e2e.traffic.ports import Door
from fmqcore.ids import BrokerId, Permission
from fmqcore.zk import layout as paths
from fmqcore.zk.group_config import GroupConfig, config_to_json
from fmqsim.scenario.api import GroupWorld
from fmqsim.scenario.person import Person
from fmqsim.scenario.scene import CLUSTER

NAME: Final = "operator"


class Operator:
    """Writes to ZooKeeper without failing; how brokers take the writes is tested here."""

    def __init__(self, world: GroupWorld, person: Person) -> None:
        self._world = world
        self._person = person

    def prepare(self) -> None:
        """Write the groups before brokers start."""
        for config in list(self._world.configs.values()):
            self.put(config)

    async def make_topics(self, door: Door) -> None:
        """Create the topics before clients come. Run it as a client."""
        async with door.client(NAME) as client:
            for topic in self._world.scene.topics:
                await client.admin().create_topic(topic.name, queues=topic.queues)
            if (chain := self._world.scene.ordered) is not None:
                groups = list(self._world.configs)
                await client.admin().ordered.create(chain.topic, groups, queues=chain.queues)
                readers = sorted({reading.readers for reading in chain.reading})
                if any(reading.restarts for reading in chain.reading):
                    readers.append(HOLDER)
                await subscribe_in_order(client, chain.topic, readers)

    def put(self, config: GroupConfig) -> None:
        """Write a group's configuration."""
        world = self._world
        node = paths.config_node(CLUSTER, config.group)
        world.ensemble.put(node, config_to_json(config))
        world.configs[str(config.group)] = config
        world.record_setup()

    def permit(self, group: str, broker: str, permission: Permission) -> None:
        """Limit what a broker may serve."""
        config = self._world.configs[group]
        members = tuple(
            replace(m, permission=permission) if m.id == broker else m for m in config.members
        )
        self.put(replace(config, members=members))

    def request_master(self, group: str, broker: str, lost: str = "") -> None:
        """Make a broker the wanted master; `lost` declares another broker lost."""
        config = self._world.configs[group]
        if lost:
            self._person.gives_up(lost)
        self.put(replace(config, master=BrokerId(broker), declared_lost=BrokerId(lost)))

    def remove(self, group: str, broker: str) -> None:
        """Remove a slave from the members."""
        config = self._world.configs[group]
        members = tuple(m for m in config.members if m.id != broker)
        self.put(replace(config, members=members))

    def take_back(self, group: str, broker: str, before: GroupConfig) -> None:
        """Make a broker a member again, as it was.

        The other members stay as they are now: others come and go, too.
        """
        config = self._world.configs[group]
        back = tuple(m for m in before.members if m.id == broker)
        others = tuple(m for m in config.members if m.id != broker)
        members = tuple(sorted((*others, *back), key=lambda m: m.id))
        self.put(replace(config, members=members))
