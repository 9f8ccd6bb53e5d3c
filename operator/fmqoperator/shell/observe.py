"""Observe one group: all that is known at one moment, as one `Observation`.

The cluster comes from kopf's watches, the rest is asked now: ZooKeeper, then the brokers, each for
a few seconds at most. What does not answer is reported as not known.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fmqcore.errors import FmqError, Malformed
from fmqcore.ids import BrokerId
from fmqoperator.api.group import BrokerGroup
from fmqoperator.core.children import names
from fmqoperator.core.observation import (
    Answer,
    Defaults,
    Failure,
    InZooKeeper,
    Observation,
    Pod,
    PodPhase,
)
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.decoding import last_check, why_not_made
from fmqoperator.shell.kube import Kube, KubeError
from fmqoperator.shell.zookeeper import Ensembles

_EVENTS_S: Final = 2.0  # they may lie in a store of their own, which is away while all else works


@dataclass(frozen=True, slots=True)
class Observer:
    """Reads an `Observation` of one group from Kubernetes, ZooKeeper and the brokers."""

    defaults: Defaults
    kube: Kube
    cache: Cache
    ensembles: Ensembles
    brokers: Brokers

    async def observe(self, group: BrokerGroup, failures: tuple[Failure, ...]) -> Observation:
        """Observe one group. Never raises for what does not answer."""
        key = (group.metadata.namespace, group.metadata.name)
        zookeeper, cause, bad = await self._zookeeper(group)
        pods = self.cache.pods(key)
        return Observation(
            group=group,
            now_ms=wall_ms(),
            defaults=self.defaults,
            children=self.cache.children(key),
            pods=pods,
            claims=self.cache.claims(key),
            nodes=self.cache.nodes(pod.node for pod in (pods or {}).values() if pod.node),
            zookeeper=zookeeper,
            zookeeper_why=cause,
            zookeeper_bad=bad,
            answers=await self._answers(group, zookeeper, pods),
            not_made=await self._not_made(group, pods),
            check=last_check(self.cache.jobs_of(key), group.brokers),
            failures=failures,
        )

    async def chains(self, group: BrokerGroup) -> tuple[ChainSeen, ...] | None:
        """Return the ordered topics that may send to the group; None if that is not known."""
        try:
            ensemble = self.ensembles.of(group.spec.zookeeper.connect)
            return await ensemble.chains_with(group.cluster, group.metadata.name)
        except (FmqError, TimeoutError):
            return None

    async def _not_made(
        self, group: BrokerGroup, pods: Mapping[str, Pod] | None
    ) -> Mapping[str, str]:
        """Return why brokers get no pod, in the words of their controller, from its Events."""
        missing = [] if pods is None else [b for b in group.brokers if b not in pods]
        maker = self.cache.stateful_set((group.metadata.namespace, group.metadata.name))
        if not missing or maker is None or group.spec.hibernated:
            return {}
        meta = maker["metadata"]
        try:
            async with asyncio.timeout(_EVENTS_S):
                events = await self.kube.events_of(meta["namespace"], meta["uid"])
        except (KubeError, TimeoutError):
            return {}
        return {b: cause for b in missing if (cause := why_not_made(b, events))}

    async def _zookeeper(self, group: BrokerGroup) -> tuple[InZooKeeper | None, str, bool]:
        """Return the nodes; else why they are unknown, and whether their content is at fault."""
        try:
            ensemble = self.ensembles.of(group.spec.zookeeper.connect)
            return await ensemble.read_group(group.cluster, group.metadata.name), "", False
        except TimeoutError:
            where = group.spec.zookeeper.connect
            return None, f"ZooKeeper {where} does not answer in time", False
        except FmqError as error:
            return None, str(error), isinstance(error, Malformed)

    async def _answers(
        self, group: BrokerGroup, zookeeper: InZooKeeper | None, pods: Mapping[str, Pod] | None
    ) -> dict[BrokerId, Answer]:
        """Ask the members whose pod runs.

        Brokers know what they serve also without ZooKeeper, and if their configuration was removed
        from it.
        """
        running = [name for name, pod in (pods or {}).items() if pod.phase is PodPhase.RUNNING]
        if zookeeper is None or zookeeper.config is None:
            here = {BrokerId(b): names.address(group, b, self.defaults) for b in running}
            return await self.brokers.ask(here)
        members = zookeeper.config.value.members
        return await self.brokers.ask({m.id: m.address for m in members if m.id in running})
