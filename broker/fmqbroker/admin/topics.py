"""Handlers of the calls that create, change and delete topics, ordinary and ordered ones.

Any broker answers them: they change ZooKeeper alone. A handler raises what it refuses.
"""

from collections.abc import Mapping, Sequence

from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.cluster.routes import topic_route
from fmqbroker.cluster.topic_alteration import alter_topic, set_chain_groups
from fmqbroker.cluster.view import ClusterView
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.errors import AlreadyExists, InvalidArgument, NotFound
from fmqcore.ids import GroupName, TopicId
from fmqcore.names import require_name
from fmqcore.ordered.requests import change_groups, create_chain
from fmqcore.zk.chain import DEFAULT_LEASE_MS, ChainGroup
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqcore.zk.topic_changes import GroupChange
from fmqport.coordination import Coordination
from fmqport.transport import CallContext, Handlers
from fmqproto.v1 import admin_pb2
from fmqwire import methods


class TopicAdmin:
    """The handlers of the `Admin` service that change topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        coordination: Coordination,
        view: ClusterView,
        chains: ChainNodes,
    ) -> None:
        self._settings = settings
        self._coordination = coordination
        self._view = view
        self._chains = chains

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {
            methods.CREATE_TOPIC: self.create_topic,
            methods.ALTER_TOPIC: self.alter_topic,
            methods.DELETE_TOPIC: self.delete_topic,
        }

    async def create_topic(
        self, _: CallContext, request: admin_pb2.CreateTopicRequest
    ) -> admin_pb2.CreateTopicReply:
        """Create a topic in ZooKeeper."""
        if request.HasField("ordered"):
            topic = await self._create_ordered(request)
        else:
            groups = [TopicGroup(GroupName(g.group), g.queues, g.weight) for g in request.groups]
            topic = await self._view.create_topic(
                request.name, request.queues, groups, if_not_exists=request.if_not_exists
            )
            if topic.ordered:
                raise AlreadyExists(
                    f"topic {topic.name} exists and is ordered: choose another name, or ask for an "
                    "ordered topic"
                )
        return admin_pb2.CreateTopicReply(topic=topic_route(topic))

    async def alter_topic(
        self, _: CallContext, request: admin_pb2.AlterTopicRequest
    ) -> admin_pb2.AlterTopicReply:
        """Give a topic more queues, more groups or other weights; a chain other groups."""
        if request.chain_groups:
            return admin_pb2.AlterTopicReply(topic=topic_route(await self._alter_ordered(request)))
        changes = [
            GroupChange(
                GroupName(g.group),
                g.queues if g.HasField("queues") else None,
                g.weight if g.HasField("weight") else None,
            )
            for g in request.groups
        ]
        view, named = self._view, {change.group for change in changes}
        if request.all_groups:
            changes += [GroupChange(g) for g in view.lasting_groups() if g not in named]
        topic = await alter_topic(
            self._coordination, self._settings.cluster, view, request.name, request.queues, changes
        )
        return admin_pb2.AlterTopicReply(topic=topic_route(topic))

    async def delete_topic(
        self, _: CallContext, request: admin_pb2.DeleteTopicRequest
    ) -> admin_pb2.DeleteTopicReply:
        """Delete a topic from ZooKeeper; retention deletes its stored messages later.

        Asked again after it was interrupted, it deletes the chain that was left.
        """
        number = TopicId(request.id) if request.id else None
        try:
            deleted = await self._view.delete_topic(request.name, number)
        except NotFound:
            if await self._chains.delete_left(request.name):
                return admin_pb2.DeleteTopicReply()
            raise
        if deleted.ordered:
            await self._chains.delete(deleted.name, deleted.id)
        return admin_pb2.DeleteTopicReply()

    # ---- ordered topics
    async def _create_ordered(self, request: admin_pb2.CreateTopicRequest) -> TopicConfig:
        """Create the topic, then its chain; complete an interrupted creation."""
        require_name("topic", request.name)
        if request.groups:
            raise InvalidArgument(
                f"ordered topic {request.name}: name the groups in `ordered` alone"
            )
        groups, wanted = _chain_groups(request.ordered.groups), request.ordered
        self._view.require_groups(group.group for group in groups)
        members, lease_ms = self._members(groups), wanted.lease_ms or DEFAULT_LEASE_MS
        chain = create_chain(
            request.name,
            request.queues,
            groups,
            members,
            allow_single=wanted.allow_single,
            lease_ms=lease_ms,
        )
        topic = await self._view.create_topic(
            request.name,
            request.queues,
            [TopicGroup(g.group, request.queues, g.weight) for g in groups],
            if_not_exists=request.if_not_exists,
            ordered=True,
        )
        if not topic.ordered:
            raise AlreadyExists(
                f"topic {topic.name} exists and is not ordered: choose another name"
            )
        await self._chains.create(
            create_chain(
                topic.name,
                max(g.queues for g in topic.groups),
                chain.groups,
                members,
                allow_single=wanted.allow_single,
                lease_ms=lease_ms,
                topic_id=topic.id,
            )
        )
        return topic

    async def _alter_ordered(self, request: admin_pb2.AlterTopicRequest) -> TopicConfig:
        """Change the groups of a chain. A new one gets its queues first; one that leaves, last."""
        name = request.name
        topic = await self._chains.topic(name)
        if request.queues or request.groups or request.all_groups:
            raise InvalidArgument(
                f"ordered topic {name}: only the chain's groups can be changed, not the "
                "number of queues: leave the other options out"
            )
        groups = _chain_groups(request.chain_groups)
        chain = (await self._chains.read(topic)).value
        old = {g.group: g.weight for g in chain.groups}
        self._view.require_groups(g.group for g in groups if g.group not in old)
        members, new = self._members(groups), {g.group: g.weight for g in groups}
        change_groups(chain, groups, members)  # refused before the topic is changed
        await self._set_groups(name, old | new)
        await self._chains.edit(topic, lambda stored: change_groups(stored, groups, members))
        return await self._set_groups(name, new)

    async def _set_groups(self, name: str, weights: Mapping[GroupName, int]) -> TopicConfig:
        cluster = self._settings.cluster
        return await set_chain_groups(self._coordination, cluster, self._view, name, weights)

    def _members(self, groups: Sequence[ChainGroup]) -> dict[GroupName, int]:
        configs = self._view.configs
        return {g.group: len(configs[g.group].members) for g in groups if g.group in configs}


def _chain_groups(groups: Sequence[admin_pb2.ChainGroup]) -> list[ChainGroup]:
    return [ChainGroup(GroupName(g.group), g.weight if g.HasField("weight") else 1) for g in groups]
