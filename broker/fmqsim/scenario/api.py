"""The parts of a world that the operator and the person use (`world.World` has them all)."""

from typing import Protocol

from fmqcore.zk.group_config import GroupConfig
from fmqsim.engine.zookeeper import Ensemble
from fmqsim.scenario.hosts import BrokerHost, ClientHost, HostWorld


class GroupWorld(HostWorld, Protocol):
    """A world with its machines and group configurations, by name."""

    brokers: dict[str, BrokerHost]
    clients: dict[str, ClientHost]
    configs: dict[str, GroupConfig]

    @property
    def ensemble(self) -> Ensemble:
        """The simulated ZooKeeper."""
        ...

    def record_setup(self) -> None:
        """Record that the cluster is configured as `configs` from now on."""
        ...
